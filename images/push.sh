#!/usr/bin/env bash
# Pushes a local image to a registry under another name, unless that name already stands for the same image there.
# Usage: push.sh IMAGE REMOTE    prints, as the last word: present or pushed
set -euo pipefail

image=${1:?usage: push.sh IMAGE REMOTE}
remote=${2:?usage: push.sh IMAGE REMOTE}
repository=${remote%:*}

# Docker remembers under which digest it pushed an image to a repository; the registry says what the name stands for now.
pushed_as() {
  docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$image" | sed -n "s#^$repository@##p"
}

digest=$(pushed_as)
if [[ -n $digest ]] && docker manifest inspect --insecure --verbose "$remote" 2> /dev/null | grep -qF "\"digest\": \"$digest\""; then
  echo "$remote: present"
  exit
fi
docker tag "$image" "$remote"
docker push --quiet "$remote" > /dev/null
echo "$remote: pushed"
