#!/usr/bin/env bash
# Runs the benchmarks one after the other; each prints its table and writes its numbers below build/bench.
# usage: scripts/bench.sh [--quick]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

failed=()
export PYTHONPATH=$PWD/src
for part in gateway/run gateway/hashing gateway/replay gateway/churn gateway/canary controller/run loader/run registry/run ansible/run; do
  started=$SECONDS
  printf '\n=== Benchmark %s\n' "$part"
  if python "benchmarks/$part.py" "$@"; then
    printf '=== Benchmark %s: done in %d s\n' "$part" $((SECONDS - started))
  else
    printf '=== Benchmark %s: a goal was missed, or it did not run through, after %d s\n' "$part" $((SECONDS - started))
    failed+=("$part")
  fi
done

if ((${#failed[@]})); then
  printf '\nLook again at: %s\n' "${failed[*]}"
  exit 1
fi
printf '\nAll benchmarks ran and met their goals.\n'
