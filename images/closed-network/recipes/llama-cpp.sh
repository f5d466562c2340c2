# The llama.cpp server from Debian's packages, compatible with the official server image: arguments for llama-server, which by
# default listens on port 8080 of all addresses (Debian's default port differs). The release is Debian's, which the label has,
# not the one in the name.
# shellcheck shell=bash
image=$LLAMACPP_IMAGE

build() { # DIR KEY
  local root=$1/root version
  debian_root "$root" sid llama.cpp-tools
  mkdir -p "$root/app"
  ln -s /usr/bin/llama-server "$root/app/llama-server"
  version=$(in_root "$root" llama-server --version 2>&1 | sed -n 's/^version: \([0-9.]*\).*/\1/p')
  [[ -n $version ]] || die "the version of Debian's llama-server could not be determined. Check the output of llama-server --version."
  import_root "$root" "$image" "$2" "LABEL org.opencontainers.image.version=$version" 'WORKDIR /app' \
    'ENV LLAMA_ARG_HOST=0.0.0.0' 'ENV LLAMA_ARG_PORT=8080' 'ENTRYPOINT ["/app/llama-server"]' \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  say "  $image is Debian's llama.cpp $version"
}
