#!/usr/bin/env bash
# Copies files to /var/lib/slipway-models on the nodes of a kind cluster, from where a hub can serve them (hub_volume).
# A file that a node has with the same size and modification time is left alone.
#
# usage: scripts/hub_files.sh CLUSTER REPOSITORY/FILE=SOURCE...    prints a line per file and node: present or copied
set -euo pipefail
shopt -s inherit_errexit

folder=/var/lib/slipway-models

die() { # MESSAGE
  echo "error: $1" >&2
  exit 1
}

facts() { stat --dereference --format '%s %Y' "$1"; } # FILE; prints size and modification time

# Writes to another file first, so that a hub never reads half a file.
copy() { # NODE SOURCE TARGET
  local modified
  modified=$(stat --dereference --format %Y "$2")
  # shellcheck disable=SC2016  # the node expands it
  docker exec --interactive "$1" sh -euc '
    mkdir -p "$(dirname "$1")"
    cat > "$3.part"
    touch --date "@$2" "$3.part"
    chmod a+r "$3.part"
    mv "$3.part" "$1"' sh "$3" "$modified" "$folder" < "$2"
}

(($# >= 2)) || die "usage: scripts/hub_files.sh CLUSTER REPOSITORY/FILE=SOURCE..."
cluster=$1
shift
for pair; do
  [[ $pair == */*=* && $pair != *..* ]] || die "'$pair' is not REPOSITORY/FILE=SOURCE."
  [[ -r ${pair#*=} ]] || die "${pair#*=} cannot be read."
done
mapfile -t nodes < <(docker ps --filter "label=io.x-k8s.kind.cluster=$cluster" --format '{{.Names}}' | sort)
((${#nodes[@]})) || die "the kind cluster $cluster is not running."
for node in "${nodes[@]}"; do
  for pair; do
    file=${pair%%=*} source=${pair#*=}
    wanted=$(facts "$source")
    has=$(docker exec "$node" stat --format '%s %Y' "$folder/$file" 2> /dev/null || true)
    if [[ $has == "$wanted" ]]; then
      echo "$node: $file: present"
    else
      copy "$node" "$source" "$folder/$file"
      echo "$node: $file: copied"
    fi
  done
done
