#!/usr/bin/env bash
# Makes sure that Docker has public images: pulls what is missing, or builds it where the network is closed.
# What digests.txt lists is pulled by its digest. The roles use it; run by itself it shows the progress of a long build.
# Usage: public.sh NETWORK IMAGE...    NETWORK is open, closed or auto; a line for every image ends in what was done
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
network=${1:?usage: public.sh open|closed|auto IMAGE...}
shift
[[ $network != auto ]] || network=$("$folder/network.sh")
[[ $network != closed ]] || exec "$folder/closed-network/build.sh" "$@"

pull() { # IMAGE
  local digest whole=$1
  digest=$(awk -v image="$1" '$1 == image {print $2}' "$folder/digests.txt")
  if [[ -n $digest ]]; then whole=${1%:*}@$digest; fi
  docker pull --quiet "$whole" > /dev/null
  if [[ -n $digest ]]; then docker tag "$whole" "$1"; fi
}

for image in "$@"; do
  if docker image inspect --format '{{.Id}}' "$image" > /dev/null 2>&1; then
    echo "$image: present"
  else
    started=$SECONDS
    echo "$image: pulling"
    pull "$image"
    echo "$image: pulled in $((SECONDS - started)) s"
  fi
done
