# metrics-server compiled from its Go module, compatible with the official image: arguments for /metrics-server, which runs as
# nobody. It only connects to the API server and kubelets, with mounted certificates, so the image contains nothing else.
# shellcheck shell=bash
image=$METRICS_SERVER_IMAGE
inputs() { say "$CLOSED_DIR/go/metrics-server"; }

build() { # DIR KEY
  local root=$1/root made
  made=$(go_binaries metrics-server metrics-server "-X k8s.io/client-go/pkg/version.gitVersion=${image#*:}" \
    sigs.k8s.io/metrics-server/cmd/metrics-server)
  mkdir -p "$root"
  install -m755 "$made/metrics-server" "$root/metrics-server"
  import_root "$root" "$image" "$2" 'USER 65534' 'ENTRYPOINT ["/metrics-server"]'
}
