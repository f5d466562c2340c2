#!/usr/bin/env bash
# Installs kubernetes.core in DEST/ansible_collections. It extracts the collection from the `ansible` wheel, whose hash is
# pinned, so only a Python package index is needed. The cache keeps the extracted collection.
# Usage: collections.sh DEST
set -euo pipefail

dest=${1:?usage: collections.sh DEST}
pins=$(cd "$(dirname "$0")/.." && pwd)/requirements/collections.txt
collection=kubernetes/core
version=6.6.0

cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/collections
kept=$cache/kubernetes-core-$version.tar
installed=$dest/ansible_collections/$collection

# Prints the version in a collection's manifest, or nothing if there is no collection.
version_of() { # COLLECTION_DIR
  sed -n 's/^ *"version": "\(.*\)",\{0,1\}$/\1/p' "$1/MANIFEST.json" 2> /dev/null | head -n 1
}

[[ $(version_of "$installed") != "$version" ]] || exit 0

if [[ ! -e $kept ]]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/.work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "Downloading kubernetes.core $version (50 MB)"
  # The wheel requires a newer Python than the collection does.
  pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --python-version 3.12 --dest "$work" --requirement "$pins"
  python3 - "$work"/*.whl "ansible_collections/$collection/" "$work/tree" <<'PY'
import sys, zipfile

wheel, prefix, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(target, [name for name in archive.namelist() if name.startswith(prefix)])
PY
  [[ $(version_of "$work/tree/ansible_collections/$collection") == "$version" ]] \
    || { echo "error: $pins: the wheel does not contain kubernetes.core $version. Update both versions together." >&2; exit 1; }
  tar -C "$work/tree" -cf "$work/kept.tar" ansible_collections
  mv "$work/kept.tar" "$kept"
fi

rm -rf "$installed"
mkdir -p "$dest"
tar -C "$dest" -xf "$kept"
