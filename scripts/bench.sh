#!/usr/bin/env bash
# Runs all benchmarks, one after another. Each prints a table, and writes its results to build/bench.
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
    printf '=== Benchmark %s: missed a goal or failed, after %d s\n' "$part" $((SECONDS - started))
    failed+=("$part")
  fi
done

if ((${#failed[@]})); then
  printf '\nThese benchmarks missed a goal or failed: %s\n' "${failed[*]}"
  exit 1
fi
printf '\nAll benchmarks met their goals.\n'
