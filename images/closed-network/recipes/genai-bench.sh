# genai-bench from its wheel, on Debian's Python. OME BenchmarkJobs run it.
# shellcheck shell=bash
# shellcheck source=images/closed-network/wheels.sh
source "$CLOSED_DIR/wheels.sh"
image=$GENAI_BENCH_IMAGE
inputs() { printf '%s\n' "$CLOSED_DIR/wheels.sh" "$CLOSED_DIR/python/genai-bench.txt"; }

build() { # DIR KEY
  local root=$1/root
  python_root "$root" genai-bench
  python_program "$root" genai-bench genai_bench.cli.cli cli
  import_root "$root" "$image" "$2" 'USER 65532' 'ENV PYTHONPATH=/opt/genai-bench' 'ENV PYTHONUNBUFFERED=1' \
    'ENV PATH=/usr/local/bin:/usr/bin:/bin' 'ENTRYPOINT ["genai-bench"]'
}
