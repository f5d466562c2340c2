#!/usr/bin/env bash
# Makes the image of a cluster whose nodes Ansible can log in to: kind's own, with SSH and Python. Docker has kind's.
# The last word is its name.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=images/closed-network/lib.sh
source "$here/../../images/closed-network/lib.sh"

image=slipway-test/gpu-cluster:${NODE_IMAGE##*:}
mirror=$(debian_mirror)
open_cache
old=$(image_id "$image")
step "put SSH and Python into $NODE_IMAGE" docker build --network host --build-arg http_proxy --build-arg https_proxy \
  --build-arg "NODE=$NODE_IMAGE" --build-arg "MIRROR=$mirror" --tag "$image" "$here/image" >&2
drop_image "$old"
say "$image"
