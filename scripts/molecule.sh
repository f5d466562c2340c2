#!/usr/bin/env bash
# Runs Molecule scenarios on the cluster that K8S_AUTH_KUBECONFIG names, which has the images already.
# They share it, and what is installed on it: those that want an empty one come first and last, so that little is
# installed twice. Each can be run by itself as well, from whatever it finds. default and gpu_cluster make clusters of
# their own.
#
# usage: molecule.sh [SCENARIO...]    without a name, all of them
#        molecule.sh --list [tested]   their names, in this order: of all, or of those that `make test` runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Named, or Molecule warns each time that a collection's scenarios may lie in extensions too.
export MOLECULE_GLOB='molecule/*/molecule.yml'

first=(check_mode crds controller controller_namespaces gateway)
last=(site upgrade)
# CI has not the time for the others: tests of the cluster, of plays and of the documentation show most of what they do.
tested=(site)

but() { # NAME...: what comes in, without these
  grep -vxF "$(printf '%s\n' "$@")"
}

names() { # [tested]
  if [[ ${1:-} == tested ]]; then
    printf '%s\n' "${tested[@]}"
    return
  fi
  printf '%s\n' "${first[@]}"
  printf '%s\n' molecule/*/molecule.yml | cut -d / -f 2 | but "${first[@]}" "${last[@]}"
  printf '%s\n' "${last[@]}"
}

if [[ ${1:-} == --list ]]; then
  names "${2:-}"
  exit
fi
if (($# == 0)); then
  mapfile -t all < <(names)
  set -- "${all[@]}"
fi
for scenario in "$@"; do
  # Without this a scenario that was run before would not be prepared again.
  molecule reset --scenario-name "$scenario"
  molecule test --scenario-name "$scenario"
done
