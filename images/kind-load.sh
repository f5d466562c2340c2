#!/usr/bin/env bash
# Loads local Docker images onto the nodes of a kind cluster, unless a node already has the same image.
# Each loaded image has Docker's image ID as a label in the node's containerd.
# Usage: kind-load.sh CLUSTER IMAGE...    prints a line for each image and node: present or loaded
set -euo pipefail

cluster=${1:?usage: kind-load.sh CLUSTER IMAGE...}
shift
label=slipway.inference/docker-id

# Prints containerd's name of an image: with the registry and, for Docker Hub's official images, library/.
full_name() { # IMAGE
  local first=${1%%/*}
  if [[ $1 != */* ]]; then
    echo "docker.io/library/$1"
  elif [[ $first == *.* || $first == *:* || $first == localhost ]]; then
    echo "$1"
  else
    echo "docker.io/$1"
  fi
}

load_into() { # NODE IMAGE...
  local node=$1 image id known missing=()
  shift
  known=$(docker exec "$node" ctr --namespace k8s.io images ls)
  for image in "$@"; do
    id=$(docker image inspect --format '{{.Id}}' "$image")
    if grep -F "$(full_name "$image") " <<< "$known" | grep -qF "$label=$id"; then
      echo "$node: $image: present"
    else
      missing+=("$image")
    fi
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  docker save "${missing[@]}" | docker exec --interactive "$node" ctr --namespace k8s.io images import --no-unpack - > /dev/null
  for image in "${missing[@]}"; do
    id=$(docker image inspect --format '{{.Id}}' "$image")
    docker exec "$node" ctr --namespace k8s.io images label "$(full_name "$image")" "$label=$id" > /dev/null
    echo "$node: $image: loaded"
  done
}

mapfile -t nodes < <(docker ps --filter "label=io.x-k8s.kind.cluster=$cluster" --format '{{.Names}}' | sort)
[[ ${#nodes[@]} -gt 0 ]] || { echo "error: the kind cluster '$cluster' is not running." >&2; exit 1; }
for node in "${nodes[@]}"; do
  load_into "$node" "$@"
done
