#!/usr/bin/env bash
# Installs Chromium for the tests of the gateway's page, if it is missing. This needs root and apt; without them, the script
# prints how to install it.
#
# usage: scripts/chromium.sh
set -euo pipefail

[[ $# == 0 ]] || { sed -n 's/^# \{0,1\}//; 5p' "$0" >&2; exit 64; }
for program in "${SLIPWAY_CHROMIUM:-}" chromium-headless-shell chromium; do
  [[ -z $program ]] || ! command -v "$program" > /dev/null || exit 0
done

# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../images/closed-network/lib.sh"

# The headless shell is half of the whole browser's size; releases that lack it have the browser.
install_chromium() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -y -q --no-install-recommends -o Acquire::Retries=5 chromium-headless-shell fonts-dejavu-core ||
    apt-get install -y -q --no-install-recommends -o Acquire::Retries=5 chromium fonts-dejavu-core
}

if [[ $(id -u) != 0 ]] || ! command -v apt-get > /dev/null; then
  die "Chromium is missing. Install it, set SLIPWAY_CHROMIUM to its path, or run scripts/chromium.sh as root on a machine with apt."
fi
mkdir -p "$CACHE/tmp"
step "install Chromium" install_chromium
