#!/usr/bin/env bash
# Runs `make demo` twice, as on a new machine, and prints the duration of each step. The checkout, the home directory, the
# caches of Slipway, Go, pip and Ansible, apt's package lists, and Docker's images are new and temporary. For this, it starts
# a second Docker daemon.
#
# Needs root, port 8080 on 127.0.0.1, 15 GB in $TMPDIR (default /var/tmp), and an otherwise idle machine.
# usage: scripts/cold.sh        called by `make cold`; ignores uncommitted changes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $(id -u) == 0 ]] || { echo "error: a second Docker daemon needs root. Run this as root." >&2; exit 1; }
! (exec 3<> /dev/tcp/127.0.0.1/8080) 2> /dev/null || { echo "error: port 8080 on 127.0.0.1 is in use. If the demo uses it, run make clean." >&2; exit 1; }
[[ -z $(git status --porcelain) ]] || echo "Uncommitted changes are ignored. This runs commit $(git rev-parse --short HEAD)."
scripts/docker.sh

folder=$(mktemp -d "${TMPDIR:-/var/tmp}/slipway-cold.XXXXXX")
python=$(python3 -c 'import sys; print(sys.executable)')
config=${XDG_CONFIG_HOME:-$HOME/.config} # has the addresses of package indexes

bridge=slipway-cold
second=(docker --host "unix://$folder/docker.sock")

clean_up() {
  trap - EXIT INT TERM
  "${second[@]}" ps --all --quiet | xargs --no-run-if-empty "${second[@]}" rm --force --volumes > /dev/null 2>&1 || true
  [[ ! -e $folder/docker.pid ]] || kill "$(< "$folder/docker.pid")"
  while pgrep --full "$folder/docker" > /dev/null; do sleep 0.3; done
  env --unset=DOCKER_HOST docker network rm "$bridge" > /dev/null
  rm -rf --one-file-system "$folder"
}

# The second daemon's default network. Otherwise, it would delete the first daemon's bridge.
docker network rm "$bridge" > /dev/null 2>&1 || true
docker network create --opt "com.docker.network.bridge.name=$bridge" "$bridge" > /dev/null
mkdir -p "$folder"/{home,go,apt/lists/partial,apt/archives/partial}
trap clean_up EXIT
trap 'exit 130' INT TERM
export DOCKER_HOST=unix://$folder/docker.sock
export ANSIBLE_STDOUT_CALLBACK=default # each play is a step
setsid dockerd --host "$DOCKER_HOST" --data-root "$folder/docker" --exec-root "$folder/docker-run" \
  --pidfile "$folder/docker.pid" --bridge "$bridge" --default-address-pool base=172.30.0.0/16,size=24 > "$folder/docker.log" 2>&1 &
timeout 60 sh -c 'until docker info > /dev/null 2>&1; do sleep 0.3; done' \
  || { tail -n 20 "$folder/docker.log" >&2; echo "error: the second Docker daemon did not start; see its log above" >&2; exit 1; }
git clone --quiet . "$folder/checkout"
cat > "$folder/apt.conf" << EOF
Dir::State::lists "$folder/apt/lists";
Dir::Cache "$folder/apt";
EOF

demo() {
  # shellcheck disable=SC2016  # make expands it
  env --unset=KUBECONFIG --unset=K8S_AUTH_KUBECONFIG --unset=XDG_CACHE_HOME --unset=GOBIN --unset=MAKEFLAGS --unset=MAKELEVEL \
    HOME="$folder/home" XDG_CONFIG_HOME="$config" SLIPWAY_CACHE="$folder/cache" ANSIBLE_HOME="$folder/home/.ansible" \
    GOPATH="$folder/go" GOMODCACHE="$folder/go/modules" GOCACHE="$folder/go/build" PIP_CACHE_DIR="$folder/pip" \
    APT_CONFIG="$folder/apt.conf" make --no-print-directory -C "$folder/checkout" PYTHON="$python" demo 2>&1 \
    | "$python" scripts/step_times.py
}

echo "First run, without caches, in $folder:"
demo
printf '\nSecond run, with the caches of the first:\n'
demo > "$folder/again.log" || { tail -n 40 "$folder/again.log"; exit 1; }
sed -n '/^PLAY RECAP/,$p' "$folder/again.log"
! grep -qE '^localhost .*changed=[1-9]' "$folder/again.log" || { echo "error: the second run reported changes" >&2; exit 1; }
