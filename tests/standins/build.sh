#!/usr/bin/env bash
# Builds the image of the stand-ins, unless Docker has one of the same inputs. Prints, as the last word: present or built.
# Usage: build.sh WEIGHTS    the file that scripts/tiny_gguf.py writes; Docker has the images that it is made of
set -euo pipefail
# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../images/closed-network/lib.sh"

weights=${1:?usage: build.sh WEIGHTS}
image=slipway/test-engines:1
here=$(cd "$CLOSED_DIR/../../tests/standins" && pwd)
started=$SECONDS

sources_key() {
  (cd "$here" && find . -type f ! -path '*/__pycache__/*' ! -name README.md -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) \
    | sha256sum
}

# What they need beside Python, unpacked; a folder for every set of pins.
site_packages() { # prints the folder
  local arch dir machine tag tags=()
  arch=$(docker version --format '{{.Server.Arch}}')
  case $arch in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) die "no wheels are known for the architecture $arch: amd64 or arm64" ;;
  esac
  for tag in manylinux2014 manylinux_2_17 manylinux_2_28; do tags+=(--platform "${tag}_$machine"); done
  dir=$CACHE/wheels/standins-$arch-$(key_of "$here/requirements.txt")
  if [[ ! -d $dir ]]; then
    mkdir -p "$CACHE/wheels"
    step "download the wheels of tests/standins/requirements.txt" python3 -m pip install --quiet --no-deps \
      --require-hashes --disable-pip-version-check --only-binary=:all: --implementation cp --python-version 3.11 "${tags[@]}" \
      --target "$CACHE/tmp/site" --requirement "$here/requirements.txt" >&2
    rm -rf "$CACHE/wheels/standins-$arch"-*
    mv "$CACHE/tmp/site" "$dir"
  fi
  say "$dir"
}

sources=$(sources_key)
ids=$(docker image inspect --format '{{.Id}}' "$PYTHON_IMAGE" "$LLAMACPP_IMAGE")
key=$(key_of "$sources" "$weights" "$ids")
if [[ $(image_inputs "$image") == "$key" ]]; then
  say "$image: present"
  exit
fi
say "$image: building"
open_cache
old=$(image_id "$image")
site=$(site_packages)
context=$CACHE/tmp/context
mkdir -p "$context"
cp -R "$site" "$context/site"
cp -R "$here"/{Dockerfile,bin,packages} "$context/"
cp "$weights" "$context/tiny.gguf"
find "$context" -name __pycache__ -prune -exec rm -rf {} +
step "put the stand-ins into the image" docker build --network none --build-arg "BASE=$PYTHON_IMAGE" \
  --build-arg "LLAMACPP=$LLAMACPP_IMAGE" --label "$KEY_LABEL=$key" --tag "$image" "$context"
drop_image "$old"
say "$image: built in $((SECONDS - started)) s"
