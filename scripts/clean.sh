#!/usr/bin/env bash
# Deletes the kind clusters of the demo and of the tests, also those that other checkouts created. `make clean` calls it.
#
# usage: scripts/clean.sh    prints a line for each deleted cluster
set -euo pipefail
shopt -s inherit_errexit

[[ $# == 0 ]] || { sed -n 's/^# \{0,1\}//; 4p' "$0" >&2; exit 64; }
command -v docker > /dev/null || exit 0 # without Docker, there are no clusters
if ! timeout 60 docker info > /dev/null 2>&1; then
  echo "error: Docker does not answer, so the clusters were not deleted. Start Docker, or run make clean" \
    "as a user who may use it (group docker)." >&2
  exit 1
fi
for cluster in slipway slipway-test slipway-gpu slipway-engines slipway-streams; do
  containers=$(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$cluster")
  if [[ -n $containers ]]; then
    mapfile -t ids <<< "$containers"
    docker rm --force --volumes "${ids[@]}" > /dev/null
    echo "$cluster: deleted"
  fi
  # You may have replaced the file, or added other clusters to it.
  kubeconfig=$HOME/.kube/$cluster.config
  if [[ -f $kubeconfig ]] && grep -q "name: kind-$cluster\$" "$kubeconfig" && [[ $(grep -c '^ *server:' "$kubeconfig") == 1 ]]; then
    rm "$kubeconfig"
  fi
done
