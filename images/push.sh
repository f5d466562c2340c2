#!/usr/bin/env bash
# Pushes a local image to a registry under another name, unless that name already stands for the same image there.
# Usage: push.sh IMAGE REMOTE    prints, as the last word: present or pushed
set -euo pipefail

image=${1:?usage: push.sh IMAGE REMOTE}
remote=${2:?usage: push.sh IMAGE REMOTE}
repository=${remote%:*}

# Docker remembers under which digest it pushed an image to a repository; the registry says what the name stands for now.
pushed_as() {
  docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$image" | sed -n "s#^$repository@##p"
}

# Plain HTTP and unknown certificates are for registries of this machine, and those that Docker's daemon was told to
# take so (insecure-registries); any other one gets its credentials over verified TLS only.
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
