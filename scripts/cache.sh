#!/usr/bin/env bash
# Waits until no other build uses the cache, and prints what uses it and since when.
#
# usage: scripts/cache.sh
set -euo pipefail
# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../images/closed-network/lib.sh"

open_cache
