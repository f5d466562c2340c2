#!/usr/bin/env bash
# Runs the tests: those that need no cluster, then those on a kind cluster that is made for them and removed afterwards.
# One part that fails fails the whole, but the others still run.
#
# usage: scripts/test.sh [--all] [--keep] [PATH...]
#   --all     all scenarios of Molecule too, and then `make lint`, `make matrix`, `make cold` and `make engines`
#   --keep    leaves the cluster for the next call, which then takes seconds to start
#   PATH      runs only these tests (files, folders or pytest's node ids; molecule or a scenario in it)
#
# `make test` calls it with the virtual environment on PATH. The gateway gets a free port of 127.0.0.1; SLIPWAY_TEST_GATEWAY_PORT names one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

name=slipway-test
output=$PWD/tests/output
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
needs_cluster=(tests/cluster tests/conformance tests/docs tests/faults molecule)
# Real engines have a cluster of their own: scripts/engines.sh.
mapfile -t needs_none < <(find tests -mindepth 1 -maxdepth 1 -type d ! -name __pycache__ ! -name output ! -name engines | sort \
  | grep -vxF "$(printf '%s\n' "${needs_cluster[@]}")")

keep=false
all=false
paths=()
for argument in "$@"; do
  case $argument in
    --all) all=true ;;
    --keep) keep=true ;;
    -*) sed -n 's/^# \{0,1\}//; 5,8p' "$0" >&2; exit 2 ;;
    *) paths+=("$argument") ;;
  esac
done

# ---- steps: each says what it is, how long it took and how it ended ---------------------------------------------------

failed=()
times=()
step() { # DESCRIPTION COMMAND...; the status of the command
  local description=$1 started=$SECONDS status=0
  shift
  printf '\n=== %s\n' "$description"
  "$@" || status=$?
  times+=("$(printf '%6d s  %s' $((SECONDS - started)) "$description")")
  if ((status == 0)); then
    printf '=== %s: passed, %d s\n' "$description" $((SECONDS - started))
  else
    printf '=== %s: FAILED (exit status %d), %d s\n' "$description" "$status" $((SECONDS - started))
    failed+=("$description")
  fi
  return "$status"
}

# No part may hang for ever.
bounded=(timeout --foreground --kill-after 30 45m)

# A few tests that failed are tried once more, which tells those that are unsteady from those that are broken. The run
# fails for both, unless the list has a reason for each of them.
unsteady=()
tests() { # DESCRIPTION ARGUMENT OF PYTEST...
  local description=$1 status=0 tried
  shift
  step "$description" "${bounded[@]}" pytest --quiet --cache-clear "$@" || status=$?
  ((status == 1)) || return 0
  mapfile -t tried < <(last_failed)
  ((${#tried[@]} <= 3)) || return 0
  if step "$description, once more" "${bounded[@]}" pytest --quiet "$@" --last-failed --last-failed-no-failures none; then
    unsteady+=("${tried[@]}")
    listed "${tried[@]}" || return 0
  fi
  unset 'failed[-1]'
}

last_failed() { # their names, without the group that pytest-xdist adds to some
  python -c 'import json, re, sys; print(*(re.sub(r"@\w+$", "", name) for name in json.load(sys.stdin)), sep="\n")' \
    < .pytest_cache/v/cache/lastfailed
}

listed() { # TEST...: whether tests/unsteady.txt names all of them
  local known test
  known=$(sed '/^#/d; s/ # .*//' tests/unsteady.txt)
  for test; do grep -qxF -- "$test" <<< "$known" || return 1; done
}

# ---- parts that need no cluster: they run beside the others, which wait for pods most of the time ----------------------

declare -A parts=(
  [units]="Unit tests"
  [oldest]="Unit tests of the modules, with the oldest ansible-core"
  [newest]="Unit tests of the modules, with the newest ansible-core, and what they cover"
  [plays]="Unit tests that run plays"
)
apart=(units oldest newest plays gpu_node_ubuntu)

part() { # NAME, also of a Molecule scenario with machines of its own; gives way to what runs beside it
  local without=(env -u SLIPWAY_TEST_KUBECONFIG -u KUBECONFIG -u K8S_AUTH_KUBECONFIG) command
  case $1 in
    units) command=("${without[@]}" pytest --quiet -p no:cacheprovider -n 2 --dist loadfile -m 'not plays' --ignore tests/unit/plugins
      "${needs_none[@]}") ;; # the modules' have parts of their own
    plays) command=("${without[@]}" pytest --quiet -p no:cacheprovider -m plays "${needs_none[@]}") ;;
    oldest) command=("${without[@]}" scripts/ansible-test.sh units oldest) ;;
    newest) command=("${without[@]}" scripts/ansible-test.sh coverage newest) ;;
    *) command=(scripts/molecule.sh "$1") ;;
  esac
  "${bounded[@]}" nice -n 10 "${command[@]}"
}

lane=
begin() { # NAME...: one after the other, in a process group that can be ended as a whole
  local name started
  for name; do rm -f "$output/$name".{log,status}; done
  set -m
  for name; do
    started=$SECONDS
    part "$name" > "$output/$name.log" 2>&1
    echo $? $((SECONDS - started)) > "$output/$name.status"
  done < /dev/null &
  lane=$!
  set +m
}

ended() { # NAME: what it printed, and how it ended
  local status=
  cat "$output/$1.log"
  [[ ! -e $output/$1.status ]] || read -r status _ < "$output/$1.status"
  return "${status:-1}"
}

join() { # NAME...: waits for them, and tells how they ended
  local name description seconds
  wait "$lane"
  lane=
  for name; do
    description=${parts[$name]:-Molecule scenario $name}
    [[ ! -e $output/$name.status ]] || read -r _ seconds < "$output/$name.status"
    step "$description (ran beside the cluster's, ${seconds:-?} s)" ended "$name"
  done
}

# ---- the cluster ------------------------------------------------------------------------------------------------------

kind_variables=(-e "local_cluster_name=$name" -e "local_cluster_kubeconfig=$output/kubeconfig")

gateway_port() { # prints the port of a cluster that was kept, else a free one
  local kept
  kept=$(docker port $name-control-plane 30080/tcp 2> /dev/null) && echo "${kept##*:}" && return
  python -c 'from tests.ports import quiet_port; print(quiet_port())'
}

remove_cluster() {
  ansible-playbook playbooks/local.yml "${kind_variables[@]}" -e local_cluster_state=absent
}

make_cluster() {
  # A disk that is busy with images being built would hold up etcd for a minute, and with it every lease and watch.
  ansible-playbook playbooks/local.yml "${kind_variables[@]}" -e "local_cluster_gateway_port=$SLIPWAY_TEST_GATEWAY_PORT" \
    -e local_cluster_etcd_in_memory=true -e @tests/cluster/kind.yml &&
    find_kubectl &&
    ansible-playbook playbooks/site.yml --tags crds -e @tests/cluster/site.yml
}

roll_out() {
  python scripts/tiny_gguf.py "$output/tiny.gguf" &&
    ansible-playbook tests/cluster/up.yml -e @tests/cluster/site.yml \
      "${kind_variables[@]}" -e "local_cluster_gateway_port=$SLIPWAY_TEST_GATEWAY_PORT"
}

find_kubectl() {
  command -v kubectl > /dev/null && return
  images/tools.sh kubectl "$(docker inspect --format '{{.Config.Image}}' $name-control-plane)" > /dev/null
}

# What a person would look at first.
diagnose() {
  command -v kubectl > /dev/null && [[ -e $output/kubeconfig ]] || return 0
  local kubectl=(timeout 20 kubectl --kubeconfig "$output/kubeconfig") part
  printf '\n=== Diagnosis: pods that are not running, the last warnings, the last words of our pods\n'
  "${kubectl[@]}" get pods --all-namespaces --field-selector 'status.phase!=Running,status.phase!=Succeeded'
  "${kubectl[@]}" get pods --namespace slipway-system
  "${kubectl[@]}" get events --all-namespaces --field-selector type=Warning --sort-by .lastTimestamp | tail -n 15
  for part in controller gateway; do
    printf -- '--- %s\n' "$part"
    "${kubectl[@]}" logs --namespace slipway-system --selector "app.kubernetes.io/component=$part" \
      --all-containers --prefix --tail 15 --max-log-requests 10
  done
}

cluster_made=false
clean_up() {
  local scenario
  trap - EXIT INT TERM
  if [[ -n $lane ]]; then
    kill -- "-$lane"
    wait "$lane" 2> /dev/null
    for scenario in "${apart[@]}"; do
      [[ -v parts[$scenario] ]] || molecule cleanup --scenario-name "$scenario" > /dev/null 2>&1
    done
  fi
  if $cluster_made && ! $keep; then
    step "Remove the test cluster" remove_cluster > "$output/remove.log" 2>&1 || tail -n 20 "$output/remove.log"
  fi
}
trap clean_up EXIT
trap 'echo "interrupted: the test cluster is removed"; clean_up; exit 130' INT TERM

# ---- the tests --------------------------------------------------------------------------------------------------------

everything() {
  step "Find or install Chromium" scripts/chromium.sh
  begin "${apart[@]}"
  if step "Make a test cluster" make_cluster; then on_cluster; fi
  join "${apart[@]}"
}

further() { # what takes hours, and a machine without the cluster
  step "Style, types and the collection's rules" make lint
  step "Checks and unit tests with every ansible-core" make matrix
  step "Demo with every cache empty" make cold
  step "Real engines" make engines
}

on_cluster() {
  # They need the definitions, and nobody else who makes what is planned.
  tests "Tests in tests/faults" --durations 5 tests/faults
  if ! step "Roll out" roll_out; then
    echo "The tests of what is installed did not run."
    return
  fi
  # Most of these tests wait for pods; four at a time keep two cores busy.
  tests "Cluster tests" --durations 8 -n 4 --dist loadgroup -m 'not disruptive' \
    tests/cluster tests/conformance
  tests "Cluster tests that kill our pods" --durations 5 -m disruptive tests/cluster
  # Each page has a namespace of its own, and changes nothing of what is installed.
  tests "Tests in tests/docs" --durations 5 -n 2 --dist loadgroup tests/docs
  local which=tested chosen
  ! $all || which=
  mapfile -t chosen < <(scripts/molecule.sh --list "$which" | grep -vxF "$(printf '%s\n' "${apart[@]}")")
  scenarios "${chosen[@]}"
}

scenarios() { # NAME...
  local scenario
  for scenario; do
    if [[ $scenario == upgrade ]] && ! scripts/last-release.sh > /dev/null; then continue; fi
    step "Molecule scenario $scenario" "${bounded[@]}" scripts/molecule.sh "$scenario"
  done
}

named() { # the tests that were named, on the cluster
  if ! { step "Make a test cluster" make_cluster && step "Roll out" roll_out; }; then return; fi
  local path chosen=() others=()
  for path in "${paths[@]%/}"; do
    case ${path#./} in
      molecule) mapfile -t chosen < <(scripts/molecule.sh --list) ;;
      molecule/*) chosen+=("${path##*/}") ;;
      *) others+=("$path") ;;
    esac
  done
  ((${#others[@]} == 0)) || step "Tests in ${others[*]}" pytest "${others[@]}"
  scenarios "${chosen[@]}"
}

wants_cluster() { # whether one of the named tests needs the cluster
  local path folder
  ((${#paths[@]} == 0)) && return 0
  for path in "${paths[@]}"; do
    for folder in "${needs_cluster[@]}"; do
      [[ $folder == "$path"* || $path == "$folder"* || ./$folder == "$path"* || $path == "./$folder"* ]] && return 0
    done
  done
  return 1
}

export SLIPWAY_TEST_GATEWAY_PORT=${SLIPWAY_TEST_GATEWAY_PORT:-$(gateway_port)}
export PATH=$PATH:$cache/bin
mkdir -p "$output"

if ! wants_cluster; then
  unset SLIPWAY_TEST_KUBECONFIG
  step "Tests in ${paths[*]}" pytest "${paths[@]}"
else
  if ! $keep && [[ -n $(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$name") ]]; then
    step "Remove the test cluster of an earlier run" remove_cluster
  fi
  export SLIPWAY_TEST_KUBECONFIG=$output/kubeconfig KUBECONFIG=$output/kubeconfig K8S_AUTH_KUBECONFIG=$output/kubeconfig
  cluster_made=true
  if ((${#paths[@]})); then named; else everything; fi
  ((${#failed[@]} == 0)) || diagnose
fi
clean_up
if $all && ((${#paths[@]} == 0)); then further; fi

printf '\nTimes of the steps, also in tests/output/times.txt:\n'
printf '%s\n' "${times[@]}" | tee "$output/times.txt"
if ((${#unsteady[@]})); then
  printf '\nFailed, and passed when tried once more. Mend such a test, or name it in tests/unsteady.txt with a reason:\n'
  printf '  - %s\n' "${unsteady[@]}"
fi
if ((${#failed[@]})); then
  printf '\nFAILED after %d min %d s:\n' $((SECONDS / 60)) $((SECONDS % 60))
  printf '  - %s\n' "${failed[@]}"
  exit 1
fi
printf '\nAll tests passed in %d min %d s.\n' $((SECONDS / 60)) $((SECONDS % 60))
if $keep && wants_cluster; then echo "The cluster stays: export KUBECONFIG=$output/kubeconfig"; fi
