# Prometheus and promtool compiled from its Go module, used like the official image: arguments go to /bin/prometheus, which
# runs as nobody. Of its ways to find targets it has Kubernetes, files and HTTP only, and its pages for browsers are not in
# the module: it serves its API alone.
# shellcheck shell=bash
image=$PROMETHEUS_IMAGE
inputs() { say "$CLOSED_DIR/go/prometheus"; }

build() { # DIR KEY
  local root=$1/root module=github.com/prometheus/prometheus tags=remove_all_sd,enable_kubernetes_sd flags name made
  GOFLAGS="$(go env GOFLAGS) -tags=$tags"
  export GOFLAGS
  # The tags stand here too, so that others make another binary.
  flags="-X github.com/prometheus/common/version.Version=${image#*:v} -X main.tags=$tags"
  mkdir -p "$root/bin" "$root/etc/prometheus" "$root/prometheus" "$root/tmp"
  made=$(go_binaries prometheus prometheus "$flags" "$module/cmd/prometheus" "$module/cmd/promtool")
  for name in prometheus promtool; do install -m755 "$made/$name" "$root/bin/$name"; done
  chmod 1777 "$root/tmp" "$root/prometheus"
  import_root "$root" "$image" "$2" 'USER 65534' 'WORKDIR /prometheus' 'ENV PATH=/bin' 'ENTRYPOINT ["/bin/prometheus"]' \
    'CMD ["--config.file=/etc/prometheus/prometheus.yml","--storage.tsdb.path=/prometheus"]'
}
