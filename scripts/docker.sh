#!/usr/bin/env bash
# Starts Docker if it does not answer, and installs it first if it is missing. This needs root, and apt for the installation;
# without them, the script prints what to do.
#
# usage: scripts/docker.sh            starts Docker, and installs it if it is missing
#        scripts/docker.sh --remove   stops and removes the Docker that this script installed, with its apt source.
#                                     Images stay in /var/lib/docker.
set -euo pipefail

case ${1:-} in
  '') timeout 60 docker info > /dev/null 2>&1 && exit 0 ;;
  --remove) ;;
  *) sed -n 's/^# \{0,1\}//; 5,7p' "$0" >&2; exit 64 ;;
esac

# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../images/closed-network/lib.sh"

etc=${SLIPWAY_ETC:-/etc} # tests use another directory
installed=$etc/slipway-docker.packages # lists the packages that this script installed
oldest=23 # older versions cannot start privileged containers on hosts without CAP_SYS_RESOURCE
daemon_log=${SLIPWAY_DOCKERD_LOG:-/var/log/dockerd.log}
apt_files=("$etc/apt/sources.list.d/slipway-docker.sources" "$etc/apt/preferences.d/slipway-docker")

candidate() { # PACKAGE; prints the version that apt would install
  apt-cache policy "$1" | sed -n 's/^  Candidate: //p' | grep -vxF '(none)' || true
}

# Docker in Debian bookworm is too old. This adds the next release to apt, with a low priority for all packages.
add_trixie() {
  local mirror
  mirror=$(debian_mirror)
  printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' "$mirror" \
    /usr/share/keyrings/debian-archive-keyring.gpg > "${apt_files[0]}"
  printf 'Package: *\nPin: release n=trixie\nPin-Priority: 50\n' > "${apt_files[1]}"
  apt-get update -q
}

install_docker() {
  local release=() packages=(docker.io) name version
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  version=$(candidate docker.io)
  if [[ -z $version ]] || dpkg --compare-versions "$version" lt "$oldest"; then
    [[ -e /etc/debian_version ]] || die "apt offers no Docker $oldest or newer. Install it from Docker's own repository."
    add_trixie
    release=(-t trixie)
  fi
  for name in docker-cli docker-buildx; do
    [[ -z $(candidate "$name") ]] || packages+=("$name")
  done
  apt-get install -y -q --no-install-recommends "${release[@]}" "${packages[@]}"
  printf '%s\n' "${packages[@]}" > "$installed"
}

remove_docker() {
  local packages
  mapfile -t packages < "$installed"
  if [[ -d /run/systemd/system ]]; then systemctl stop docker docker.socket; else pkill --exact dockerd || true; fi
  DEBIAN_FRONTEND=noninteractive apt-get remove -y -q --auto-remove "${packages[@]}"
  rm -f "${apt_files[@]}" "$installed"
}

start_docker() {
  if [[ -d /run/systemd/system ]]; then
    systemctl start docker
  else
    setsid --fork dockerd > "$daemon_log" 2>&1 < /dev/null
  fi
}

wait_for_docker() {
  local started=$SECONDS
  until timeout 10 docker info > /dev/null 2>&1; do
    ((SECONDS < started + 60)) || return 1
    # If the daemon has exited, more time does not help.
    ((SECONDS < started + 2)) || [[ -d /run/systemd/system ]] || pgrep --exact dockerd > /dev/null || return 1
    sleep 0.3
  done
}

if [[ ${1:-} == --remove ]]; then
  [[ -e $installed ]] || die "scripts/docker.sh has not installed Docker on this machine, so it removes nothing."
  mkdir -p "$CACHE/tmp"
  step "remove Docker" remove_docker
  exit
fi
[[ -z ${DOCKER_HOST:-} ]] || die "DOCKER_HOST: no Docker answers at '$DOCKER_HOST'. Start it there, or unset DOCKER_HOST."
if [[ $(id -u) != 0 ]]; then
  die "Docker does not answer. Install Docker $oldest or newer, start it, and add this user to the group docker." \
    "Or run scripts/docker.sh as root, which installs and starts it."
fi
mkdir -p "$CACHE/tmp"
if ! command -v dockerd > /dev/null; then
  command -v apt-get > /dev/null || die "Docker is missing, and apt is not available on this machine. Install Docker $oldest or newer, and start it."
  step "install Docker" install_docker
fi
step "start Docker" start_docker
if ! wait_for_docker; then
  if [[ -e $daemon_log ]]; then tail -n 20 "$daemon_log" >&2; fi
  die "Docker was started, but does not answer. Check the daemon's log."
fi
