#!/usr/bin/env bash
# Runs tests/streams: long answers of a small trained model while its pods are replaced, nodes drained and processes
# killed. Creates a kind cluster with two workers and removes it afterwards.
#
# usage: scripts/streams.sh [--keep] [ARGUMENT OF PYTEST...]
#   --keep    leaves the cluster for the next call
#
# SLIPWAY_STREAMS_VARS: arguments of ansible-playbook, such as '-e controller_drain_seconds=0'. The virtual environment
# must be on PATH, as `make` sets it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=slipway-streams
node=$name-control-plane
output=$PWD/tests/output
kubeconfig=$output/streams.kubeconfig
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
export PATH=$PATH:$cache/bin

keep=false
case ${1:-} in
  --keep) keep=true; shift ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac

remove_cluster() {
  local ids
  mapfile -t ids < <(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$name")
  ((${#ids[@]} == 0)) || docker rm --force --volumes "${ids[@]}" > /dev/null
  rm -f "$kubeconfig"
}

diagnose() {
  local kubectl=(timeout 20 kubectl --kubeconfig "$kubeconfig")
  "${kubectl[@]}" get pods --all-namespaces --output wide || return 0
  "${kubectl[@]}" get events --all-namespaces --field-selector type=Warning --sort-by .lastTimestamp | tail -n 30
}

finish() {
  local status=$?
  ((status == 0)) || diagnose
  $keep || remove_cluster
}
trap finish EXIT

mkdir -p "$output"
weights=$(scripts/real_model.sh)
export KUBECONFIG=$kubeconfig K8S_AUTH_KUBECONFIG=$kubeconfig
# shellcheck disable=SC2086 # several words
ansible-playbook tests/streams/up.yml -e @tests/streams/site.yml -e "local_cluster_name=$name" \
  -e "local_cluster_kubeconfig=$kubeconfig" -e "tests_weights=$weights" ${SLIPWAY_STREAMS_VARS:-}
# shellcheck source=/dev/null
source images/versions.env
command -v kubectl > /dev/null || images/tools.sh kubectl "$NODE_IMAGE" > /dev/null

port=$(docker port "$node" 30080/tcp)
SLIPWAY_TEST_KUBECONFIG=$kubeconfig SLIPWAY_TEST_GATEWAY_PORT=${port##*:} \
  pytest --quiet --durations 5 tests/streams "$@"
