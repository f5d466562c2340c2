#!/usr/bin/env bash
# Makes sure that Docker has public images: pulls what is missing, or builds it where the network is closed.
# The roles use it; run by itself it shows the progress of a long build.
# Usage: public.sh NETWORK IMAGE...    NETWORK is open, closed or auto; a line for every image ends in what was done
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
network=${1:?usage: public.sh open|closed|auto IMAGE...}
shift
[[ $network != auto ]] || network=$("$folder/network.sh")
[[ $network != closed ]] || exec "$folder/closed-network/build.sh" "$@"

for image in "$@"; do
  if docker image inspect --format '{{.Id}}' "$image" > /dev/null 2>&1; then
    echo "$image: present"
  else
    started=$SECONDS
    echo "$image: pulling"
    docker pull --quiet "$image" > /dev/null
    echo "$image: pulled in $((SECONDS - started)) s"
  fi
done
