#!/usr/bin/env bash
# Prints "open" if Docker can pull from the public registry, and otherwise "closed", within a few seconds.
# Only this script decides this; the roles keep the result for the rest of a play.
set -euo pipefail

probe=hello-world:latest # a few kilobytes, from the registry of most public images
had=$(docker image inspect --format '{{.Id}}' "$probe" 2> /dev/null || true)
if timeout 15 docker pull --quiet "$probe" > /dev/null 2>&1; then
  [[ -n $had ]] || docker image rm "$probe" > /dev/null 2>&1 || true
  echo open
else
  echo closed
fi
