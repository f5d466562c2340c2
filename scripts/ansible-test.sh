#!/usr/bin/env bash
# Runs ansible-test with the releases of ansible-core that requirements/matrix.txt names, each in an environment of its own,
# on a copy of the checkout that lies where it wants a collection: in ansible_collections/slipway/inference.
#
# usage: ansible-test.sh sanity|units|coverage|prepare [all|oldest|newest|between|VERSION] [ARGUMENT...]
#   sanity, units   what ansible-test is to do; ARGUMENTs are its own
#   coverage        units, and how much of the plugins they run: less than 90 % fails
#   prepare         fetches what the others need, so that they run without a network afterwards
#   all ...         with which ansible-core: every (the default), the oldest, the newest, those between, or one, such as 2.19
#
# An ansible-core that no Python here can run is skipped, and a line says so.
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

# ---- an environment for each ansible-core ------------------------------------------------------------------------------

provide_environment() { # FOLDER PYTHON CORE
  local pins=$checkout/requirements/matrix/$3.txt wanted
  [[ -e $pins ]] || { echo "error: ansible-core $3 has no pinned requirements; make requirements resolves them" >&2; exit 1; }
  wanted=$(sha256sum < "$pins")
  [[ $(cat "$1/.ready" 2> /dev/null) != "$wanted" ]] || return 0
  echo "Installing ansible-core $3 for $(basename "$2")"
  rm -rf "$1"
  "$2" -m venv "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$pins"
  echo "$wanted" > "$1/.ready"
}

# ansible-test makes environments of its own. The script that puts pip into them it takes from a fixed host, which a
# closed network does not reach; one that stands in, and the wheel, come from where pip takes everything else.
provide_pip() { # CORE
  local cache=$HOME/.ansible/test/cache pins=$checkout/requirements/matrix/$1.txt version
  version=$(sed -n 's/^pip==\([0-9.]*\).*/\1/p' "$pins")
  [[ ! -e $cache/get_pip_${version//./_}.py ]] || return 0
  sed -n '/^pip==/,/[^\\]$/p' "$pins" > "$work/pip.txt"
  pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$cache" --requirement "$work/pip.txt"
  cp "$checkout/scripts/get_pip.py" "$cache/get_pip_${version//./_}.py"
}

# ---- the checkout as a collection --------------------------------------------------------------------------------------

# What git has or would add, as it is now.
copy_checkout() { # COPY
  rm -rf "$1"
  mkdir -p "$1"
  cd "$checkout"
  comm -z -23 <(git ls-files -coz --exclude-standard | sort -zu) <(git ls-files -dz | sort -zu) \
    | tar --null --files-from - -cf - | tar -C "$1" -xf -
  cd "$1"
  git init --quiet  # ansible-test asks git for the files, and must not find the checkout's.
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
    unset ANSIBLE_CONFIG ANSIBLE_COLLECTIONS_PATH # those are for the environment of `make`
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
    echo "ansible-core $core: SKIPPED, as there is none of the Pythons that it runs on (${pythons// /, })"
    continue
  fi
  printf '=== ansible-core %s, Python %s, kubernetes %s: %s\n' "$core" "$found" "$kubernetes" "$command"
  started=$SECONDS
  set +e # after || it would not end at its first error
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
