#!/usr/bin/env bash
# Runs Molecule scenarios on the cluster in K8S_AUTH_KUBECONFIG, which must already have the images. A scenario does not
# depend on the state that earlier ones leave. default and gpu_cluster create their own clusters.
#
# usage: molecule.sh SCENARIO...                   runs all steps of each scenario
#        molecule.sh --only 'STEP...' SCENARIO     runs these steps, such as 'prepare converge'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Without this, Molecule warns on each run that scenarios can also be in extensions/.
export MOLECULE_GLOB='molecule/*/molecule.yml'

steps='test'
if [[ ${1:-} == --only && $# == 3 ]]; then
  steps=$2
  shift 2
fi
if (($# == 0)) || [[ $1 == -* ]]; then
  sed -n 's/^# \{0,1\}//; 5,6p' "$0" >&2
  exit 64
fi
for scenario; do
  [[ -e molecule/$scenario/molecule.yml ]] || { echo "error: the scenario '$scenario' does not exist in molecule/." >&2; exit 1; }
  case $scenario in
    default | gpu_*) # these create their own machines
      trap 'molecule cleanup --scenario-name "$scenario"; molecule destroy --scenario-name "$scenario"; exit 143' INT TERM
      ;;
    *)
      [[ -e ${K8S_AUTH_KUBECONFIG:-} ]] || { echo "error: K8S_AUTH_KUBECONFIG must name the test cluster's kubeconfig" >&2; exit 1; }
      ;;
  esac
  for step in $steps; do
    # Molecule does not prepare a scenario again without this.
    [[ $step != test && $step != prepare ]] || molecule reset --scenario-name "$scenario"
    molecule "$step" --scenario-name "$scenario"
  done
done
