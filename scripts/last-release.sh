#!/usr/bin/env bash
# Lays out the collection as it was last released, from the history: for tests that upgrade from it.
# The release is the newest commit that set another version in galaxy.yml than the one there is now.
#
# usage: last-release.sh [FOLDER]    prints the version; fills FOLDER/ansible_collections/slipway/inference
# It ends with status 3 where the history does not reach back so far, as in a shallow clone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version_at() { # COMMIT
  git show "$1:galaxy.yml" | sed -n 's/^version: *//p'
}

commit=
for one in $(git log --format=%H -G'^version:' -- galaxy.yml 2> /dev/null); do
  [[ $(version_at "$one") == "$(version_at HEAD)" ]] || { commit=$one; break; }
done
if [[ -z $commit || $(git rev-parse --is-shallow-repository) == true ]]; then
  echo "The history does not reach back to the last release: git fetch --unshallow" >&2
  exit 3
fi
if [[ -n ${1:-} ]]; then
  target=$1/ansible_collections/slipway/inference
  rm -rf "$target"
  mkdir -p "$target"
  git archive "$commit" | tar --extract --directory "$target"
fi
version_at "$commit"
