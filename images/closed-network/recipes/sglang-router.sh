# SGLang's router from its wheel, on Debian's Python. OME runtimes start it with python3 -m sglang_router.launch_router.
# shellcheck shell=bash
# shellcheck source=images/closed-network/wheels.sh
source "$CLOSED_DIR/wheels.sh"
image=$SGLANG_ROUTER_IMAGE
inputs() { printf '%s\n' "$CLOSED_DIR/wheels.sh" "$CLOSED_DIR/python/sglang-router.txt"; }

build() { # DIR KEY
  local root=$1/root
  python_root "$root" sglang-router
  import_root "$root" "$image" "$2" 'USER 65532' 'ENV PYTHONPATH=/opt/sglang-router' 'ENV PYTHONUNBUFFERED=1' \
    'ENV PATH=/usr/local/bin:/usr/bin:/bin' 'ENTRYPOINT ["python3", "-m", "sglang_router.launch_router"]'
}
