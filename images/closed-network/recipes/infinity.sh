# Infinity from its wheels, on Debian's Python: embeddings and ranking on CPUs, 1.7 GB. For `make engines`.
# shellcheck shell=bash
# shellcheck source=images/closed-network/wheels.sh
source "$CLOSED_DIR/wheels.sh"
# shellcheck source=images/closed-network/cuda.sh
source "$CLOSED_DIR/cuda.sh"
image=$INFINITY_IMAGE
inputs() { printf '%s\n' "$CLOSED_DIR"/{wheels.sh,cuda.sh,python/infinity.txt}; }

build() { # DIR KEY
  local root=$1/root
  python_root "$root" infinity
  step "leave out CUDA" without_cuda "$root/opt/infinity"
  python_program "$root" infinity_emb infinity_emb.cli cli
  import_root "$root" "$image" "$2" 'ENV PYTHONPATH=/opt/infinity' 'ENV PYTHONUNBUFFERED=1' \
    'ENV PATH=/usr/local/bin:/usr/bin:/bin' 'ENTRYPOINT ["infinity_emb"]'
}
