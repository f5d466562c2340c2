#!/usr/bin/env bash
# Lays out the collection as it was last released, from the history: for tests that upgrade from it.
# The release is the newest commit before this one that set the version in galaxy.yml.
#
# usage: last-release.sh [FOLDER]    prints the version; fills FOLDER/ansible_collections/slipway/inference
# It ends with status 3 where the history does not reach back so far, as in a shallow clone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

commit=$(git log --format=%H -G'^version:' -- galaxy.yml 2> /dev/null | grep -vxF "$(git rev-parse HEAD)" | head -n 1) || true
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
git show "$commit:galaxy.yml" | sed -n 's/^version: *//p'
