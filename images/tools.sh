#!/usr/bin/env bash
# Prints the path of a tool for the local cluster, and builds it first if the cache does not have it.
#
#   tools.sh kind                  compiled from its Go module, in a container if Go is missing and images can be pulled
#   tools.sh kubectl NODE_IMAGE    copied from the node image, so that it has the cluster's version
set -euo pipefail
# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/closed-network/lib.sh"

kind_in_container() { # prints the path
  local module=$CLOSED_DIR/go/kind dir
  dir=$CACHE/bin/kind-$(key_of "$module" "$GOLANG_IMAGE")
  if [[ ! -x $dir/kind ]]; then
    "$CLOSED_DIR/../public.sh" open "$GOLANG_IMAGE" >&2 \
      || die "compiling kind needs Go 1.25 or newer on PATH, or the image $GOLANG_IMAGE, which could not be pulled."
    mkdir -p "$CACHE/tmp/kind"
    step "compile kind in a container" docker run --rm --volume "$module:/module:ro" --volume "$CACHE/tmp/kind:/out" \
      --workdir /module --env CGO_ENABLED=0 "$GOLANG_IMAGE" go build -mod=readonly -trimpath -buildvcs=false \
      -ldflags '-s -w' -o /out/kind sigs.k8s.io/kind >&2
    mv "$CACHE/tmp/kind" "$dir"
  fi
  say "$dir/kind"
}

kubectl_of() { # NODE_IMAGE; prints the path
  local dir container id
  id=$(docker image inspect --format '{{.Id}}' "$1")
  dir=$CACHE/bin/kubectl-$(key_of "$id")
  if [[ ! -x $dir/kubectl ]]; then
    container=$(docker create "$1")
    mkdir -p "$CACHE/tmp/kubectl"
    docker cp --quiet "$container:/usr/bin/kubectl" "$CACHE/tmp/kubectl/kubectl"
    docker rm "$container" > /dev/null
    rm -rf "$dir"
    mv "$CACHE/tmp/kubectl" "$dir"
  fi
  say "$dir/kubectl"
}

tool=${1:?usage: tools.sh kind, or tools.sh kubectl NODE_IMAGE}
open_cache >&2
case $tool in
  kind)
    if command -v go > /dev/null; then
      path=$(go_binaries kind kind '' sigs.k8s.io/kind)/kind
    else
      path=$(kind_in_container)
    fi
    ;;
  kubectl) path=$(kubectl_of "${2:?usage: tools.sh kubectl NODE_IMAGE}") ;;
  *) die "the tool '$tool' does not exist. The tools are kind and kubectl." ;;
esac
ln -sfn "$path" "$CACHE/bin/$tool"
say "$path"
