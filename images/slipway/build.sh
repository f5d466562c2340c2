#!/usr/bin/env bash
# Builds the slipway image from this checkout, unless Docker has one with the same inputs. Prints the result as the last word:
# present or built. pip downloads the wheels on this host, so the build itself needs no network.
# Usage: build.sh IMAGE BASE_IMAGE [ARCHITECTURE] [PYTHON]
set -euo pipefail
umask 022 # for the file modes in the wheel and the image
# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../closed-network/lib.sh"

image=${1:?usage: build.sh IMAGE BASE_IMAGE [ARCHITECTURE] [PYTHON]}
base=${2:?usage: build.sh IMAGE BASE_IMAGE [ARCHITECTURE] [PYTHON]}
arch=${3:-$(docker version --format '{{.Server.Arch}}')}
python=${4:-python3}
root=$(cd "$CLOSED_DIR/../.." && pwd)
started=$SECONDS

case $arch in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) die "the architecture '$arch' is not supported. Use amd64 or arm64." ;;
esac

# Downloads the wheels of the pinned requirements, into one folder per set of pins.
requirement_wheels() { # prints the folder
  local dir tag tags=()
  dir=$CACHE/wheels/$arch-$(key_of "$root/requirements/runtime.txt")
  for tag in manylinux2014 manylinux_2_17 manylinux_2_28 manylinux_2_34; do tags+=(--platform "${tag}_$machine"); done
  if [[ ! -d $dir ]]; then
    mkdir -p "$CACHE/wheels"
    step "download the wheels of requirements/runtime.txt" "$python" -m pip download --quiet --no-deps \
      --require-hashes --disable-pip-version-check --only-binary=:all: \
      --implementation cp --python-version 3.11 "${tags[@]}" --dest "$CACHE/tmp/wheels" \
      --requirement "$root/requirements/runtime.txt" >&2
    rm -rf "$CACHE/wheels/$arch"-*
    mv "$CACHE/tmp/wheels" "$dir"
  fi
  say "$dir"
}

# Builds a copy of the sources, because setuptools writes next to them, with the setuptools in requirements/build.txt. Times
# and modes are fixed, so that the same Python builds equal wheels from equal sources.
own_wheel() { # DEST
  local source=$CACHE/tmp/source backend=$CACHE/tmp/backend
  mkdir -p "$source"
  cp -R "$root/src" "$root/pyproject.toml" "$source/"
  chmod -R u=rwX,go=rX "$source"
  step "download the build requirements of slipway" "$python" -m pip install --quiet --no-deps --require-hashes \
    --disable-pip-version-check --only-binary=:all: --target "$backend" --requirement "$root/requirements/build.txt"
  step "build the wheel of slipway" env PYTHONPATH="$backend" SOURCE_DATE_EPOCH=315532800 "$python" -m pip wheel --quiet \
    --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir "$1" "$source"
}

# Writes the contents of the image in CycloneDX format. If the base is not Debian, its packages are missing.
write_bill() { # CONTEXT
  local container digest from=$CACHE/tmp/base release system=()
  mkdir -p "$from"
  container=$(docker create --platform "linux/$arch" "$base" true)
  # shellcheck disable=SC2064  # expands the current name
  trap "docker rm $container" EXIT
  if docker cp "$container:/var/lib/dpkg/status" "$from/status"; then
    docker cp --follow-link "$container:/etc/os-release" "$from/os-release"
    release=$(sed -n 's/^VERSION_CODENAME=//p' "$from/os-release")
    system=(--dpkg-status "$from/status" --release "$release")
  fi
  digest=$(docker image inspect --format '{{if .RepoDigests}}{{index .RepoDigests 0}}{{else}}{{.Id}}{{end}}' "$base")
  "$python" "$CLOSED_DIR/../slipway/sbom.py" --wheels "$1/wheels" --base "$base" --base-digest "$digest" "${system[@]}" \
    --output "$1/sbom.cdx.json"
}

sources_key() {
  (cd "$root/src" && find . -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' -print0 | LC_ALL=C sort -z \
    | xargs -0 sha256sum) | sha256sum
}

sources=$(sources_key)
base_id=$(docker image inspect --format '{{.Id}}' "$base")
key=$(key_of "$CLOSED_DIR"/../slipway/{Dockerfile,build.sh,sbom.py} "$root/pyproject.toml" "$root/requirements/runtime.txt" \
  "$root/requirements/build.txt" "$sources" "$arch" "$base_id")
if [[ $(image_inputs "$image") == "$key" ]]; then
  say "$image: present"
  exit
fi
say "$image: building"
open_cache
old=$(image_id "$image")
context=$CACHE/tmp/context
mkdir -p "$context/wheels"
wheels=$(requirement_wheels)
cp "$wheels"/*.whl "$context/wheels/"
own_wheel "$context/wheels"
cp "$CLOSED_DIR/../slipway/Dockerfile" "$context/"
step "write the bill of materials" write_bill "$context"
step "install the wheels into the image" docker build --network none --platform "linux/$arch" --build-arg "BASE=$base" \
  --label "$KEY_LABEL=$key" --tag "$image" "$context"
drop_image "$old"
say "$image: built in $((SECONDS - started)) s"
