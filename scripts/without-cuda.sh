#!/usr/bin/env bash
# Takes the packages for NVIDIA GPUs out of resolved lists. torch asks for them on the package index, and nothing on CPUs
# uses them; images/closed-network/cuda.sh has what torch needs to start without.
#
# usage: scripts/without-cuda.sh LIST...     `make requirements` calls it
set -euo pipefail

for list in "$@"; do
  awk '/^[^ #]/ { leaves_out = /^(nvidia|cuda|triton)[a-z0-9-]*==/ } !leaves_out' "$list" > "$list.new"
  mv "$list.new" "$list"
done
