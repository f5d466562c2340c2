# A kind node: Kubernetes, etcd and CoreDNS compiled from their Go modules, containerd and other programs from Debian, kind's
# base files from its Go module. The pod network is node/static-cni, so clusters need disableDefaultCNI. kube-proxy's image is
# for the nftables mode, and also contains iptables.
# shellcheck shell=bash
image=$NODE_IMAGE
inputs() { printf "%s\n" "$CLOSED_DIR/node" "$CLOSED_DIR"/go/{kind,kubernetes}; }

version=${image#*:}
minor=${version#v1.}
minor=${minor%%.*}
stamp="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1"
stamp+=" -X k8s.io/component-base/version.gitMinor=$minor -X k8s.io/component-base/version.gitTreeState=clean"
node_packages=(
  systemd systemd-sysv dbus kmod mount procps hostname
  containerd runc containernetworking-plugins libseccomp2 pigz
  iproute2 nftables iptables conntrack ethtool ebtables socat
  ca-certificates curl jq
)

kubernetes_programs=(kubelet kubeadm kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy)
# One module contains all programs, in the versions that this kubeadm requests, so packages that etcd and CoreDNS share with
# Kubernetes are compiled once.
packages=(
  "${kubernetes_programs[@]/#/k8s.io/kubernetes/cmd/}"
  go.etcd.io/etcd/server/v3
  slipway.inference/closed-network/kubernetes/{coredns,pause}
)

build() { # DIR KEY
  local dir=$1 compiled
  mkdir "$dir/bin"
  # Fails early if something is missing, before minutes of compiling.
  need_debootstrap
  node_files > /dev/null
  compiled=$(go_binaries kubernetes kubernetes "$stamp" "${packages[@]}")
  cp "$compiled"/* "$dir/bin/"
  mv "$dir/bin/server" "$dir/bin/etcd" # Go names a program after its package
  control_plane_images "$dir"
  node_root "$dir/node" "$dir/bin"
  step "put the control plane's images into the node image" assemble "$dir" "$2"
}

node_files() { # prints the folder of kind's files for a node
  local files
  files=$(module_files kind sigs.k8s.io/kind)/images/base/files
  [[ -d $files ]] || die "kind's Go module does not contain the files of its node image: $files"
  say "$files"
}

requested_images() { # BINARIES; prints the images that this kubeadm requests
  "$1/kubeadm" config images list --kubernetes-version "$version"
}

# The images get the names that kubeadm requests, so their programs must have these versions.
check_locked_versions() { # IMAGE...
  local name module tag locked=$CLOSED_DIR/go/kubernetes
  for name in "$@"; do
    tag=${name##*:}
    case $name in
      */etcd:*) module=go.etcd.io/etcd/server/v3 tag=v${tag%-*} ;; # the image's own revision follows the version
      */coredns:*) module=github.com/coredns/coredns ;;
      *) continue ;;
    esac
    grep -qE "^(require)?[[:space:]]*$module $tag( |\$)" "$locked/go.mod" \
      || die "kubeadm $version requests $name, but $locked/go.mod has another version. Run go get -C $locked $module@$tag."
  done
}

control_plane_images() { # DIR; leaves DIR/images.tar
  local dir=$1 text images name binary root
  text=$(requested_images "$dir/bin")
  mapfile -t images <<< "$text"
  check_locked_versions "${images[@]}"
  for name in "${images[@]}"; do
    binary=${name##*/}
    binary=${binary%%:*}
    root=$dir/root-$binary
    if [[ $binary == kube-proxy ]]; then
      debian_root "$root" bookworm nftables iptables kmod
    else
      mkdir -p "$root/tmp"
      chmod 1777 "$root/tmp"
    fi
    install -D -m755 "$dir/bin/$binary" "$root/usr/local/bin/$binary"
    import_root "$root" "$name" - 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
      "ENTRYPOINT [\"/usr/local/bin/$binary\"]"
    rm -rf "$root"
  done
  docker save --output "$dir/images.tar" "${images[@]}"
  docker image rm "${images[@]}" > /dev/null
}

node_root() { # DIR BINARIES
  local root=$1 files pause setup
  pause=$(requested_images "$2" | sed -n 's#.*/\(pause:.*\)#\1#p')
  [[ -n $pause ]] || die "kubeadm $version lists no pause image."
  setup=$(cat "$CLOSED_DIR/node/setup")
  debian_root "$root" bookworm "${node_packages[@]}"
  files=$(node_files)
  mkdir -p "$root"/{kind/bin,etc/containerd,opt/cni/bin,etc/kubernetes/manifests,etc/systemd/system/kubelet.service.d}
  install -m755 "$files"/usr/local/bin/* "$root/usr/local/bin/"
  install -m755 "$files"/kind/bin/* "$root/kind/bin/"
  install -m644 "$files/etc/crictl.yaml" "$root/etc/"
  install -m644 "$files/etc/default/kubelet" "$root/etc/default/"
  install -m644 "$files"/etc/sysctl.d/* "$root/etc/sysctl.d/"
  install -m644 "$files"/etc/systemd/system/{containerd,kubelet,undo-mount-hacks}.service \
    "$files/etc/systemd/system/kubelet.slice" "$root/etc/systemd/system/"
  install -m644 "$files"/etc/systemd/system/kubelet.service.d/* "$root/etc/systemd/system/kubelet.service.d/"
  # The first change sets the pause image that this kubeadm requests. The second lets pods with an OOM score start on hosts
  # without CAP_SYS_RESOURCE, where a score cannot be lowered.
  sed -e "s#pause:3.10\"#$pause\"#" -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
    "$files/etc/containerd/config.toml" > "$root/etc/containerd/config.toml"
  ln -sf /usr/bin/containerd /usr/bin/ctr "$root/usr/local/bin/"
  cp "$root"/usr/lib/cni/{host-local,ptp,portmap,loopback} "$root/opt/cni/bin/"
  install -m755 "$2"/{kubelet,kubeadm,kubectl} "$root/usr/bin/"
  install -m755 "$CLOSED_DIR"/node/{static-cni,crictl} "$root/usr/local/bin/"
  install -m644 "$CLOSED_DIR/node/static-cni.service" "$root/etc/systemd/system/"
  printf %s "$version" > "$root/kind/version"
  in_root "$root" sh -c "$setup"
}

# Runs as a step, so the trap belongs to the step's shell, and always runs at the end of the step.
assemble() { # DIR KEY
  local base=slipway-node-base:$2 builder=slipway-node-build-$2
  docker rm --force "$builder" > /dev/null 2>&1 || true
  # shellcheck disable=SC2064  # expands the current names
  trap "docker rm --force $builder || true; docker image rm $base || true" EXIT
  import_root "$1/node" "$base" "$2" 'ENV container=docker'
  docker run --detach --name "$builder" --privileged --entrypoint sleep "$base" infinity
  docker exec --detach "$builder" containerd
  timeout 60 sh -c "until docker exec $builder ctr version; do sleep 0.3; done" \
    || die "containerd did not start in the node image within 60 s."
  docker cp --quiet "$1/images.tar" "$builder:/images.tar"
  docker exec "$builder" sh -euc 'ctr -n k8s.io images import --no-unpack /images.tar
    rm /images.tar
    kill "$(pidof containerd)"
    while pidof containerd; do sleep 0.1; done'
  docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' --change 'CMD []' \
    --change 'STOPSIGNAL SIGRTMIN+3' "$builder" "$image"
}
