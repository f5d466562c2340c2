#!/usr/bin/env bash
# Runs ansible-test with each ansible-core in requirements/matrix.txt, in separate virtual environments. ansible-test requires
# the collection in ansible_collections/slipway/inference, so it runs on a copy of the checkout there.
#
# usage: ansible-test.sh sanity|units|coverage|prepare [all|oldest|newest|between|VERSION] [ARGUMENT...]
#   sanity, units   runs this command of ansible-test with the ARGUMENTs
#   coverage        runs units, and fails if they cover less than 90 % of the plugins
#   prepare         downloads the dependencies of the others, so that they run without a network
#   all ...         selects the ansible-core: all (default), oldest, newest, between (all others), or one, such as 2.19
#
# If no installed Python can run an ansible-core, the script reports this and skips it.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/pythons.sh
source "$checkout/scripts/pythons.sh"
# shellcheck source=images/closed-network/steps.sh
source "$checkout/images/closed-network/steps.sh"
work=$checkout/.cache/ansible-test
kept=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/ansible-core
least_coverage=90

usage() {
  sed -n 's/^# \{0,1\}//; 5,11p' "$0" >&2
  exit 2
}

# ---- the matrix -------------------------------------------------------------------------------------------------------

rows() { # WHICH; the lines of the matrix: ansible-core, kubernetes, Pythons
  local all
  all=$(grep -v '^#' "$checkout/requirements/matrix.txt")
  case $1 in
    all) echo "$all" ;;
    oldest) head -n 1 <<< "$all" ;;
    newest) tail -n 1 <<< "$all" ;;
    between) sed '1d; $d' <<< "$all" ;;
    *) grep "^${1//./\\.}\." <<< "$all" ;;
  esac
}

# ---- one environment per ansible-core ---------------------------------------------------------------------------------

provide_environment() { # FOLDER PYTHON CORE
  local pins=$checkout/requirements/matrix/$3.txt wanted
  [[ -e $pins ]] || { echo "error: ansible-core $3 has no pinned requirements. Run make requirements." >&2; exit 1; }
  wanted=$(sha256sum < "$pins")
  [[ $(cat "$1/.ready" 2> /dev/null) != "$wanted" ]] || return 0
  echo "Installing ansible-core $3 for $(basename "$2")"
  rm -rf "$1"
  "$2" -m venv "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$pins"
  echo "$wanted" > "$1/.ready"
}

# ansible-test creates its own environments, and downloads get-pip from a fixed host, which a closed network does not reach.
# scripts/get_pip.py replaces it, and the wheel comes from pip's index.
provide_pip() { # CORE
  local cache=$HOME/.ansible/test/cache pins=$checkout/requirements/matrix/$1.txt version
  version=$(sed -n 's/^pip==\([0-9.]*\).*/\1/p' "$pins")
  [[ ! -e $cache/get_pip_${version//./_}.py ]] || return 0
  sed -n '/^pip==/,/[^\\]$/p' "$pins" > "$work/pip.txt"
  pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$cache" --requirement "$work/pip.txt"
  cp "$checkout/scripts/get_pip.py" "$cache/get_pip_${version//./_}.py"
}

# ---- the checkout as a collection --------------------------------------------------------------------------------------

# Copies the tracked files and the untracked ones that git does not ignore, with uncommitted changes.
copy_checkout() { # COPY
  rm -rf "$1"
  mkdir -p "$1"
  cd "$checkout"
  comm -z -23 <(git ls-files -coz --exclude-standard | sort -zu) <(git ls-files -dz | sort -zu) \
    | tar --null --files-from - -cf - | tar -C "$1" -xf -
  cd "$1"
  git init --quiet  # ansible-test lists the files with git, and must not use the checkout's repository
}

# ---- runs --------------------------------------------------------------------------------------------------------------

run() { # PYTHON ARGUMENT...; in the copy, with the environment on PATH
  local python=$1
  shift
  case $command in
    sanity) ansible-test sanity --local --python "$python" "$@" ;;
    units) ansible-test units --local --python "$python" "$@" tests/unit/plugins/ ;;
    coverage)
      ansible-test units --local --python "$python" --coverage "$@" tests/unit/plugins/
      ansible-test coverage combine > /dev/null
      coverage report --data-file tests/output/coverage/coverage --include 'plugins/*' --precision 1 \
        --show-missing --skip-covered --fail-under "$least_coverage"
      ;;
    prepare) ansible-test sanity --local --python "$python" --prime-venvs "$@" ;;
  esac
}

run_with() { # CORE KUBERNETES PYTHON PATH_OF_PYTHON ARGUMENT...
  local environment=$kept/$1-$3-kubernetes-$2 copy=$work/ansible_collections/slipway/inference
  provide_environment "$environment" "$4" "$1"
  (
    PATH=$environment/bin:$PATH
    unset ANSIBLE_CONFIG ANSIBLE_COLLECTIONS_PATH # `make` sets them for its own environment
    provide_pip "$1"
    copy_checkout "$copy"
    run "$3" "${@:5}"
  )
}

command=${1:-}
[[ $command =~ ^(sanity|units|coverage|prepare)$ ]] || usage
which=all
if [[ ${2:-} =~ ^(all|oldest|newest|between|[0-9]+\.[0-9]+)$ ]]; then
  which=$2
  shift
fi
shift

# One at a time: the copy is shared.
mkdir -p "$work" "$kept"
hold_lock "$work/lock" "ansible-test run is using this checkout"

matrix=$(rows "$which") || usage
failed=()
while read -r core kubernetes pythons; do
  found=
  for version in $pythons; do
    path=$(find_python "$version") && found=$version && break
  done
  if [[ -z $found ]]; then
    echo "ansible-core $core: SKIPPED, because no supported Python is installed (${pythons// /, })"
    continue
  fi
  printf '=== ansible-core %s, Python %s, kubernetes %s: %s\n' "$core" "$found" "$kubernetes" "$command"
  started=$SECONDS
  set +e # after ||, bash would ignore set -e
  (set -e; run_with "$core" "$kubernetes" "$found" "$path" "$@") < /dev/null
  status=$?
  set -e
  if ((status == 0)); then outcome=passed; else outcome="FAILED (exit status $status)" failed+=("$core"); fi
  printf '=== ansible-core %s: %s, %d s\n' "$core" "$outcome" $((SECONDS - started))
done <<< "$matrix"

if ((${#failed[@]})); then
  echo "error: $command failed with ansible-core ${failed[*]}" >&2
  exit 1
fi
