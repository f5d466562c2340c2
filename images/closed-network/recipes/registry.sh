# The CNCF registry compiled from its Go module, compatible with the official image: arguments for registry, such as its
# configuration file. It runs as nobody. Apart from it, the image only contains public certificate authorities.
# shellcheck shell=bash
image=$REGISTRY_IMAGE
inputs() { say "$CLOSED_DIR/go/registry"; }

build() { # DIR KEY
  local root=$1/root module=github.com/distribution/distribution/v3 made sources
  made=$(go_binaries registry registry "-X $module/version.version=v${image#*:}" "$module/cmd/registry")
  mkdir -p "$root/bin" "$root/etc/distribution" "$root/etc/ssl/certs" "$root/var/lib/registry" "$root/tmp"
  install -m755 "$made/registry" "$root/bin/registry"
  sources=$(module_files registry "$module")
  install -m644 "$sources/cmd/registry/config-dev.yml" "$root/etc/distribution/config.yml"
  install -m644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  chown 65534:65534 "$root/var/lib/registry"
  chmod 1777 "$root/tmp"
  import_root "$root" "$image" "$2" 'USER 65534' 'ENV PATH=/bin' 'ENV OTEL_TRACES_EXPORTER=none' 'EXPOSE 5000' \
    'VOLUME ["/var/lib/registry"]' 'ENTRYPOINT ["registry"]' 'CMD ["serve", "/etc/distribution/config.yml"]'
}
