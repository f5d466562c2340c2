#!/usr/bin/env bash
# Pins the requirements of each ansible-core in requirements/matrix.txt, with hashes, in requirements/matrix/VERSION.txt:
# ansible-core, kubernetes, the tools in matrix.in, and the versions of coverage and pip that its ansible-test accepts. It uses
# the oldest Python of the row, whose requirements include those of newer ones.
# usage: matrix-requirements.sh [--upgrade]    called by `make requirements`; needs the Pythons in the rows
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/pythons.sh
source "$checkout/scripts/pythons.sh"
folder=$checkout/requirements/matrix
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wanted_by_ansible_test() { # WHEEL_OF_ANSIBLE_CORE; prints the requirements coverage and pip
  python3 - "$1" << 'PY'
import re, sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    coverage = wheel.read("ansible_test/_data/requirements/ansible-test.txt").decode()
    code = wheel.read("ansible_test/_internal/python_requirements.py").decode()
print("coverage==" + re.search(r"^coverage *== *([0-9.]+)", coverage, re.MULTILINE).group(1))
print("pip==" + re.search(r"\bpip='([0-9.]+)'", code).group(1))
PY
}

resolve() { # CORE KUBERNETES PYTHON
  local row=$work/$1 python pip_tools
  python=$(find_python "$3") || { echo "error: Python $3, which ansible-core $1 needs, is missing. Install it." >&2; exit 1; }
  pip_tools=$(grep -oE '^pip-tools==[^ ]+' "$checkout/requirements/dev.txt")
  "$python" -m venv "$row"
  "$row/bin/pip" install --quiet --disable-pip-version-check "$pip_tools"
  "$row/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$row/wheel" "ansible-core==$1"
  {
    cat "$checkout/requirements/matrix.in"
    printf 'ansible-core==%s\nkubernetes==%s\n' "$1" "$2"
    wanted_by_ansible_test "$row"/wheel/*.whl
  } > "$row/matrix.in"
  (cd "$row" && bin/pip-compile --quiet "${options[@]}" --generate-hashes --no-emit-index-url --no-emit-find-links \
    --strip-extras --allow-unsafe --no-header --no-annotate --output-file "$folder/$1.txt" matrix.in)
}

options=("$@")
mkdir -p "$folder"
while read -r core kubernetes pythons; do
  resolve "$core" "$kubernetes" "$(tr ' ' '\n' <<< "$pythons" | sort -V | head -n 1)"
done < <(grep -v '^#' "$checkout/requirements/matrix.txt")
