#!/usr/bin/env bash
# Runs the benchmarks one after the other; each prints its table and writes its numbers below build/bench, with --quick
# below build/bench/quick. Ends with a list of all goals, and of what is missing with the reason.
# Some parts make a kind cluster and remove it. ansible/run uses the one in K8S_AUTH_KUBECONFIG if it is set.
#
# usage: scripts/bench.sh [--quick] [PART...]     such as gateway/run; without one, all of them
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

parts=(gateway/run gateway/hashing gateway/replay gateway/churn gateway/canary controller/run controller/scale
  controller/autoscaler loader/run registry/run ansible/run ansible/tasks ansible/hosts demo/run)
options=()
folder=build/bench
if [[ ${1:-} == --quick ]]; then
  options=(--quick)
  folder=build/bench/quick
  shift
fi
(($# == 0)) || parts=("$@")
for part in "${parts[@]}"; do
  [[ -e benchmarks/$part.py ]] || { echo "error: there is no benchmarks/$part.py" >&2; exit 64; }
done

names=()
export PYTHONPATH=$PWD/src
for part in "${parts[@]}"; do
  started=$SECONDS
  name=${part%/run}
  name=${name//\//-}
  names+=("$name")
  printf '\n=== Benchmark %s\n' "$part"
  rm -f "$folder/$name.json"
  python "benchmarks/$part.py" ${options[@]+"${options[@]}"}
  printf '=== Benchmark %s: exit status %d after %d s\n' "$part" $? $((SECONDS - started))
done

printf '\n=== All goals\n'
python benchmarks/summary.py ${options[@]+"${options[@]}"} "${names[@]}"
status=$?
((${#options[@]})) || printf '\nThe page takes these results by: python benchmarks/page.py --take %s\n' "${names[*]}"
exit $status
