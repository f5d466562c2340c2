#!/usr/bin/env bash
# Pushes a local image to a registry under another name, unless the registry already has the same image under this name.
# Usage: push.sh IMAGE REMOTE    prints the result as the last word: present or pushed
set -euo pipefail

image=${1:?usage: push.sh IMAGE REMOTE}
remote=${2:?usage: push.sh IMAGE REMOTE}
repository=${remote%:*}

# Docker stores the digest with which it pushed an image to a repository; the registry returns the current one of the name.
pushed_as() {
  docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$image" | sed -n "s#^$repository@##p"
}

# Only registries on this machine and Docker's insecure-registries may use plain HTTP or unknown certificates. All others get
# credentials only over verified TLS.
may_be_insecure() { # HOST[:PORT]
  local insecure='{{range .RegistryConfig.IndexConfigs}}{{if not .Secure}}{{println .Name}}{{end}}{{end}}' named
  [[ ! $1 =~ ^(localhost|127(\.[0-9]+){3}|\[::1\])(:[0-9]+)?$ ]] || return 0
  named=$(docker info --format "$insecure") && grep -qxF "$1" <<< "$named"
}

digest=$(pushed_as)
if [[ -n $digest ]]; then
  tls=()
  if may_be_insecure "${remote%%/*}"; then tls=(--insecure); fi
  found=$(docker manifest inspect "${tls[@]}" --verbose "$remote" 2> /dev/null) || found=
  if grep -qF "\"digest\": \"$digest\"" <<< "$found"; then
    echo "$remote: present"
    exit
  fi
fi
docker tag "$image" "$remote"
docker push --quiet "$remote" > /dev/null
echo "$remote: pushed"
