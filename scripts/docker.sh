#!/usr/bin/env bash
# Makes sure that Docker answers: silent where it does, else it is started, and installed first where root and apt are
# there. Anywhere else it says what a person has to do.
set -euo pipefail

docker info > /dev/null 2>&1 && exit 0

# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../images/closed-network/lib.sh"

oldest=23 # older ones cannot start privileged containers where the host lacks CAP_SYS_RESOURCE
log=/var/log/dockerd.log

candidate() { # PACKAGE; prints the version that apt would install
  apt-cache policy "$1" | sed -n 's/^  Candidate: //p' | grep -vxF '(none)' || true
}

# Debian bookworm's own Docker is too old: the next release is made known to apt, but only for what is asked from it.
add_trixie() {
  local mirror
  mirror=$(debian_mirror)
  printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' "$mirror" \
    /usr/share/keyrings/debian-archive-keyring.gpg > /etc/apt/sources.list.d/slipway-docker.sources
  printf 'Package: *\nPin: release n=trixie\nPin-Priority: 50\n' > /etc/apt/preferences.d/slipway-docker
  apt-get update -q
}

install_docker() {
  local release=() packages=(docker.io) name version
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  version=$(candidate docker.io)
  if [[ -z $version ]] || dpkg --compare-versions "$version" lt "$oldest"; then
    [[ -e /etc/debian_version ]] || die "apt offers no Docker $oldest or newer"
    add_trixie
    release=(-t trixie)
  fi
  for name in docker-cli docker-buildx; do
    [[ -z $(candidate "$name") ]] || packages+=("$name")
  done
  apt-get install -y -q --no-install-recommends "${release[@]}" "${packages[@]}"
}

start_docker() {
  if [[ -d /run/systemd/system ]]; then
    systemctl start docker
  else
    setsid --fork dockerd > "$log" 2>&1 < /dev/null
  fi
}

wait_for_docker() {
  local deadline=$((SECONDS + 60))
  until docker info > /dev/null 2>&1; do
    ((SECONDS < deadline)) || return 1
    sleep 0.3
  done
}

[[ -z ${DOCKER_HOST:-} ]] || die "no Docker answers at DOCKER_HOST=$DOCKER_HOST: start it there, or unset DOCKER_HOST"
if [[ $(id -u) != 0 ]]; then
  die "Docker $oldest or newer must be installed and running, and this user may use it (group docker)." \
    "Run scripts/docker.sh as root to install and start it."
fi
mkdir -p "$CACHE/tmp"
if ! command -v dockerd > /dev/null; then
  command -v apt-get > /dev/null || die "install Docker $oldest or newer and start it; there is no apt here to do it with"
  step "install Docker" install_docker
fi
step "start Docker" start_docker
if ! wait_for_docker; then
  if [[ -e $log ]]; then tail -n 20 "$log" >&2; fi
  die "Docker was started but does not answer after 60 s"
fi
