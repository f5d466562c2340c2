#!/usr/bin/env bash
# Removes the packages for NVIDIA GPUs from lists of pinned requirements. torch requires them, but no CPU code uses them;
# images/closed-network/cuda.sh creates the libraries without which torch does not start.
#
# usage: scripts/without-cuda.sh LIST...     called by `make requirements`
set -euo pipefail

for list in "$@"; do
  awk '/^[^ #]/ { leaves_out = /^(nvidia|cuda|triton)[a-z0-9-]*==/ } !leaves_out' "$list" > "$list.new"
  mv "$list.new" "$list"
done
