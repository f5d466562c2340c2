#!/usr/bin/env bash
# Brings local Docker images into the nodes of a kind cluster, only those that a node lacks or has in another version.
# What a node has is read from the node: every image loaded carries Docker's image id as a label in its containerd.
# Usage: kind-load.sh CLUSTER IMAGE...    prints a line for every image and node: present or loaded
set -euo pipefail

cluster=${1:?usage: kind-load.sh CLUSTER IMAGE...}
shift
label=slipway.inference/docker-id

# The name under which containerd keeps an image: with registry and, for Docker's own, with library/.
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
[[ ${#nodes[@]} -gt 0 ]] || { echo "error: no kind cluster named $cluster is running" >&2; exit 1; }
for node in "${nodes[@]}"; do
  load_into "$node" "$@"
done
