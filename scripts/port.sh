#!/usr/bin/env bash
# Makes sure, before anything is built, that the demo gets its port of 127.0.0.1: nobody has it but the demo's own cluster.
#
# usage: scripts/port.sh [VARS]    VARS is the demo's file of variables, which may set local_cluster_gateway_port
set -euo pipefail

port=8080
if [[ -n ${1:-} ]]; then
  [[ -r $1 ]] || { echo "error: there is no file $1 to read the demo's variables from" >&2; exit 1; }
  told=$(sed -n 's/^local_cluster_gateway_port: *["'\'']\{0,1\}\([0-9]\{1,5\}\).*/\1/p' "$1")
  port=${told:-$port}
fi
(exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || exit 0
ours=$(docker ps --filter label=io.x-k8s.kind.cluster --format '{{.Ports}}' 2> /dev/null || true)
[[ $ours != *"127.0.0.1:$port->"* ]] || exit 0
echo "error: something else listens on port $port of 127.0.0.1, which is to lead to the demo's gateway." >&2
echo "Stop it, or choose another port: write local_cluster_gateway_port: 8090 into a file, and run make demo VARS=FILE" >&2
exit 1
