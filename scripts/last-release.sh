#!/usr/bin/env bash
# Extracts the last release of the collection from the git history, for tests that upgrade from it.
# The release is the latest commit that set a version in galaxy.yml other than the current one.
#
# usage: last-release.sh [FOLDER]    prints the version; fills FOLDER/ansible_collections/slipway/inference
# Exits with status 3 if the history does not contain the release, for example in a shallow clone.
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
  echo "error: the history does not contain the last release. Run git fetch --unshallow." >&2
  exit 3
fi
if [[ -n ${1:-} ]]; then
  target=$1/ansible_collections/slipway/inference
  rm -rf "$target"
  mkdir -p "$target"
  git archive "$commit" | tar --extract --directory "$target"
fi
version_at "$commit"
