#!/usr/bin/env bash
# Prints "open" where Docker can pull from the public registry and "closed" where it cannot, in a few seconds.
# This is the only place that decides it; the roles keep the answer for the rest of a play.
set -euo pipefail

probe=hello-world:latest # a few kilobytes, of the registry that most public images come from
had=$(docker image inspect --format '{{.Id}}' "$probe" 2> /dev/null || true)
if timeout 15 docker pull --quiet "$probe" > /dev/null 2>&1; then
  [[ -n $had ]] || docker image rm "$probe" > /dev/null 2>&1 || true
  echo open
else
  echo closed
fi
