#!/usr/bin/env bash
# Fails if another program uses the demo's port on 127.0.0.1, before anything is built.
#
# usage: scripts/port.sh [VARS]    VARS is the demo's file of variables, which may set local_cluster_gateway_port
set -euo pipefail

port=8080
if [[ -n ${1:-} ]]; then
  [[ -r $1 ]] || { echo "error: VARS: the file '$1' does not exist or is not readable." >&2; exit 1; }
  setting=$(sed -n 's/^local_cluster_gateway_port: *["'\'']\{0,1\}\([0-9]\{1,5\}\).*/\1/p' "$1")
  port=${setting:-$port}
fi
(exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || exit 0
ours=$(docker ps --filter label=io.x-k8s.kind.cluster --format '{{.Ports}}' 2> /dev/null || true)
[[ $ours != *"127.0.0.1:$port->"* ]] || exit 0
echo "error: port $port on 127.0.0.1 is in use, but the demo's gateway needs it." >&2
echo "Stop that program, or write local_cluster_gateway_port: 8090 to a file, and run make demo VARS=FILE." >&2
exit 1
