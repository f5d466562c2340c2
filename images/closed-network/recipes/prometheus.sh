# Prometheus and promtool compiled from their Go module, compatible with the official image: arguments for /bin/prometheus,
# which runs as nobody. It discovers targets from Kubernetes, files and HTTP only. The module does not contain its web pages,
# so it only serves the API.
# shellcheck shell=bash
image=$PROMETHEUS_IMAGE
inputs() { say "$CLOSED_DIR/go/prometheus"; }

build() { # DIR KEY
  local root=$1/root module=github.com/prometheus/prometheus tags=remove_all_sd,enable_kubernetes_sd flags name made
  GOFLAGS="$(go env GOFLAGS) -tags=$tags"
  export GOFLAGS
  # The flags contain the tags, so that other tags change the key.
  flags="-X github.com/prometheus/common/version.Version=${image#*:v} -X main.tags=$tags"
  mkdir -p "$root/bin" "$root/etc/prometheus" "$root/prometheus" "$root/tmp"
  made=$(go_binaries prometheus prometheus "$flags" "$module/cmd/prometheus" "$module/cmd/promtool")
  for name in prometheus promtool; do install -m755 "$made/$name" "$root/bin/$name"; done
  chmod 1777 "$root/tmp" "$root/prometheus"
  import_root "$root" "$image" "$2" 'USER 65534' 'WORKDIR /prometheus' 'ENV PATH=/bin' 'ENTRYPOINT ["/bin/prometheus"]' \
    'CMD ["--config.file=/etc/prometheus/prometheus.yml","--storage.tsdb.path=/prometheus"]'
}
