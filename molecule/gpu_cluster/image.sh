#!/usr/bin/env bash
# Builds a node image with SSH and Python, so that Ansible can log in to the nodes. Docker must have kind's node image.
# Prints the name of the image as the last word.
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
