#!/usr/bin/env bash
# Runs Molecule scenarios on the cluster that K8S_AUTH_KUBECONFIG names, which has the images already.
# They share it, and what is installed on it: those that want an empty one come first and last, so that little is
# installed twice. Each can be run by itself as well, from whatever it finds.
#
# usage: molecule.sh [SCENARIO...]    without a name, all of them
#        molecule.sh --list [machines|tested]   their names, in this order: of all, of those that may run beside the
#                                               others, or of these as far as `make test` runs them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

first=(check_mode site)
last=(uninstall upgrade)
# They make machines of their own that are no nodes of the cluster.
machines=(gpu_cluster gpu_node_rhel gpu_node_ubuntu)
# CI has not the time for these: tests of the cluster and of the documentation, and the others, show most of what they do.
spare=(bulk_models device_plugin gpu_node_debian krypton kubeai llmkube openshift runtime_class)

but() { # NAME...: what comes in, without these
  grep -vxF "$(printf '%s\n' "$@")"
}

names() { # [machines|tested]
  local between
  between=$(printf '%s\n' extensions/molecule/*/molecule.yml | cut -d / -f 3 | but "${first[@]}" "${last[@]}")
  case ${1:-} in
    machines) printf '%s\n' "${machines[@]}" ;;
    tested) names | but "${machines[@]}" "${spare[@]}" ;;
    *) printf '%s\n' "${first[@]}" "$between" "${last[@]}" ;;
  esac
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
