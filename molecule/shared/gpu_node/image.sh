#!/usr/bin/env bash
# Makes the image of a machine on which the role gpu_node is tried: Debian with systemd and SSH, and what its system
# lacks there. What makes it Ubuntu-like or RHEL-like, prepare.yml writes.
#
#   image.sh debian     with containerd 1
#   image.sh ubuntu     with containerd 2
#   image.sh rhel       with dnf and rpm, and no apt for Python
#
# The last word is the name of the image. Needs what images/closed-network/build.sh needs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=images/closed-network/lib.sh
source "$here/../../../images/closed-network/lib.sh"

suite=bookworm
common=(systemd systemd-sysv dbus openssh-server sudo python3 ca-certificates)
case ${1:-} in
  debian) packages=(python3-apt containerd) ;;
  ubuntu) packages=(python3-apt containerd) ;;
  rhel) packages=(dnf python3-dnf rpm createrepo-c) ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac

# Beside the one of the suite, whose libraries it runs with.
newer_containerd() { # ROOT
  local mirror
  mirror=$(debian_mirror)
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  apt-config dump | grep -E '^Acquire::https?::Proxy' > "$1/etc/apt/apt.conf.d/90host-proxy" || true
  say "deb $mirror sid main" > "$1/tmp/sid.list"
  # shellcheck disable=SC2016  # the inner shell expands its own variables
  in_root "$1" sh -euc 'cd /tmp
    mkdir -p lists/partial
    options="-o Dir::Etc::SourceList=/tmp/sid.list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=/tmp/lists"
    # Another user could not write to /dev/null, which is a file here.
    options="$options -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false"
    apt-get -q $options update
    apt-get -q $options download containerd
    dpkg --extract containerd_*.deb /tmp/containerd
    cp containerd/usr/bin/* /usr/bin/
    rm -rf /tmp/*'
  rm -f "$1/etc/resolv.conf" "$1/etc/apt/apt.conf.d/90host-proxy"
}

# Nothing of these may reach the machine on which the container runs.
harmless() { # ROOT
  in_root "$1" sh -euc 'systemctl --quiet mask systemd-udevd systemd-udev-trigger systemd-modules-load systemd-sysctl \
      systemd-remount-fs getty.target console-getty systemd-networkd systemd-resolved \
      systemd-binfmt sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount
    systemctl --quiet enable ssh
    ssh-keygen -A
    mkdir -p /root/.ssh
    chmod 700 /root/.ssh
    # Of a real machine: an id that changes with every start.
    printf "%s\n" "[Unit]" "DefaultDependencies=no" "Before=sysinit.target" "[Service]" "Type=oneshot" \
      "ExecStart=/bin/sh -c \"cp /proc/sys/kernel/random/uuid /run/boot_id; mount --bind /run/boot_id /proc/sys/kernel/random/boot_id\"" \
      "[Install]" "WantedBy=sysinit.target" > /etc/systemd/system/boot-id.service
    systemctl --quiet enable boot-id'
}

make_root() { # DIR KEY
  local root=$1/root
  debian_root "$root" $suite "${common[@]}" "${packages[@]}"
  rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
  [[ $system != ubuntu ]] || newer_containerd "$root"
  harmless "$root"
  import_root "$root" "$image" "$2" 'ENV container=docker' 'STOPSIGNAL SIGRTMIN+3' 'ENTRYPOINT ["/sbin/init"]'
}

system=$1
# In an open network it comes from there on hosts of other distributions.
SLIPWAY_DEBIAN_MIRROR=$(debian_mirror 2> /dev/null) || SLIPWAY_DEBIAN_MIRROR=http://deb.debian.org/debian
export SLIPWAY_DEBIAN_MIRROR
image=slipway-test/gpu-node:$system
docker info > /dev/null 2>&1 || die "Docker does not answer; scripts/docker.sh installs and starts it"
open_cache
key=$(key_of "$CLOSED_DIR/lib.sh" "$here/image.sh" "$system")
if [[ $(image_inputs "$image") != "$key" ]]; then
  dir=$(mktemp -d "$CACHE/tmp/image.XXXXXX")
  old=$(image_id "$image")
  step "make $image" make_root "$dir" "$key" >&2
  drop_image "$old"
  rm -rf --one-file-system "$dir"
fi
say "$image"
