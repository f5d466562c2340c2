# The LeaderWorkerSet controller compiled from its Go module, compatible with the official image: arguments for /manager,
# which runs as nobody. It only connects to the API server, so the image contains nothing else.
# shellcheck shell=bash
image=$LWS_IMAGE
inputs() { say "$CLOSED_DIR/go/lws"; }

build() { # DIR KEY
  local root=$1/root made
  made=$(go_binaries lws lws "-X sigs.k8s.io/lws/pkg/version.GitVersion=${image#*:}" sigs.k8s.io/lws/cmd)
  # The rotator of its certificate looks for the folder of the serving certificates there.
  mkdir -p "$root/tmp"
  install -m755 "$made/cmd" "$root/manager"
  import_root "$root" "$image" "$2" 'USER 65532' 'ENTRYPOINT ["/manager"]'
}
