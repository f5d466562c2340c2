# The llama.cpp server from Debian's packages, used like the official server image: arguments go to llama-server, which
# listens on port 8080 of all addresses unless told otherwise (Debian's build has another default port).
# shellcheck shell=bash
image=$LLAMACPP_IMAGE

build() { # DIR KEY
  local root=$1/root
  debian_root "$root" sid llama.cpp-tools
  mkdir -p "$root/app"
  ln -s /usr/bin/llama-server "$root/app/llama-server"
  import_root "$root" "$image" "$2" 'WORKDIR /app' 'ENV LLAMA_ARG_HOST=0.0.0.0' 'ENV LLAMA_ARG_PORT=8080' 'ENTRYPOINT ["/app/llama-server"]' \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
}
