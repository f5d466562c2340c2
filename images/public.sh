#!/usr/bin/env bash
# Provides public images: pulls missing ones, or builds them in a closed network. Images in digests.txt are pulled by digest.
# The roles call this script; called directly, it shows the progress of long builds.
# Usage: public.sh NETWORK IMAGE...    NETWORK is open, closed or auto; prints a line with the result for each image
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
network=${1:?usage: public.sh open|closed|auto IMAGE...}
shift
# shellcheck source=images/closed-network/steps.sh
source "$folder/closed-network/steps.sh"
need docker
why='The network is configured as closed'
if [[ $network == auto ]]; then
  network=$("$folder/network.sh")
  why='docker.io is not reachable'
fi
[[ $network != closed ]] || exec "$folder/closed-network/build.sh" --because "$why" "$@"

# A slow or unresponsive registry must not block a run indefinitely.
patience=${SLIPWAY_PULL_SECONDS:-1800}
[[ $patience =~ ^[1-9][0-9]{0,5}$ ]] || die "SLIPWAY_PULL_SECONDS=$patience is not a number of seconds."

pull() { # IMAGE
  local digest whole=$1
  digest=$(awk -v image="$1" '$1 == image {print $2}' "$folder/digests.txt")
  if [[ -n $digest ]]; then whole=${1%:*}@$digest; fi
  timeout --foreground "$patience" docker pull --quiet "$whole" > /dev/null || failed_pull "$1" $?
  if [[ -n $digest ]]; then docker tag "$whole" "$1"; fi
}

failed_pull() { # IMAGE STATUS; timeout exits with 124
  [[ $2 == 124 ]] || die "$1 could not be pulled; see the error above."
  die "$1 was not pulled within $patience s: its registry responds too slowly. Set SLIPWAY_PULL_SECONDS to wait longer."
}

for image in "$@"; do
  if docker image inspect --format '{{.Id}}' "$image" > /dev/null 2>&1; then
    echo "$image: present"
  else
    started=$SECONDS
    echo "$image: pulling"
    interruptible : pull "$image"
    echo "$image: pulled in $((SECONDS - started)) s"
  fi
done
