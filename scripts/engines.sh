#!/usr/bin/env bash
# Runs tests/engines: real engines behind the gateway, on a kind cluster of their own that is removed afterwards. Their
# images are of several GB each; making them takes half an hour the first time, and 40 GB of disk.
#
# usage: scripts/engines.sh [--keep] [ARGUMENT OF PYTEST...]
#   --keep    leaves the cluster for the next call
#
# `make engines` calls it with the virtual environment on PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=slipway-engines
output=$PWD/tests/output
kubeconfig=$output/engines.kubeconfig
need_gb=40

keep=false
case ${1:-} in
  --keep) keep=true; shift ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac

mkdir -p "$output"
free=$(df --output=avail --block-size=1G "$output" | tail -n 1)
if ((free < need_gb)); then
  echo "The images of the engines need $need_gb GB of disk, and $((free)) GB are free: make room first." >&2
  exit 1
fi

gateway_port() { # prints the port of a cluster that was kept, else a free one
  local kept
  kept=$(docker port $name-control-plane 30080/tcp 2> /dev/null) && echo "${kept##*:}" && return
  python -c 'from tests.ports import quiet_port; print(quiet_port())'
}

port=${SLIPWAY_TEST_GATEWAY_PORT:-$(gateway_port)}
variables=(-e "local_cluster_name=$name" -e "local_cluster_kubeconfig=$kubeconfig" -e "local_cluster_gateway_port=$port")

remove_cluster() {
  ansible-playbook playbooks/local.yml "${variables[@]}" -e local_cluster_state=absent > "$output/remove.log" 2>&1 \
    || tail -n 20 "$output/remove.log"
}
$keep || trap remove_cluster EXIT

python tests/engines/weights.py "$output/engines"
export KUBECONFIG=$kubeconfig K8S_AUTH_KUBECONFIG=$kubeconfig
ansible-playbook tests/engines/up.yml -e @tests/engines/site.yml "${variables[@]}"
SLIPWAY_TEST_KUBECONFIG=$kubeconfig SLIPWAY_TEST_GATEWAY_PORT=$port pytest --quiet --durations 5 tests/engines "$@"
