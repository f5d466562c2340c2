#!/usr/bin/env bash
# Runs ansible-test on a copy of the checkout that lies where it wants a collection: in ansible_collections/slipway/inference.
# Usage: ansible-test.sh sanity|units [ARGUMENT...]
set -euo pipefail

command=${1:?usage: ansible-test.sh sanity|units [ARGUMENT...]}
shift

checkout=$(cd "$(dirname "$0")/.." && pwd)
copy=$checkout/.cache/ansible-test/ansible_collections/slipway/inference
PATH=$checkout/.venv/bin:$PATH

# ansible-test makes environments of its own. The script that puts pip into them it takes from a fixed host, which a
# closed network does not reach; one that stands in, and the wheel, come from where pip takes everything else.
provide_pip() {
  local cache=$HOME/.ansible/test/cache version
  version=$(python3 - << 'PY'
import re
from importlib.util import find_spec
from pathlib import Path

package = Path(find_spec("ansible_test").submodule_search_locations[0])
text = (package / "_internal" / "python_requirements.py").read_text(encoding="utf-8")
print(re.search(r"\bpip='([0-9.]+)'", text).group(1))
PY
  )
  [[ ! -e $cache/get_pip_${version//./_}.py ]] || return 0
  pip download --quiet --disable-pip-version-check --no-deps --dest "$cache" "pip==$version"
  cp "$checkout/scripts/get_pip.py" "$cache/get_pip_${version//./_}.py"
}

# What git has or would add, as it is now.
copy_checkout() {
  rm -rf "$copy"
  mkdir -p "$copy"
  cd "$checkout"
  comm -z -23 <(git ls-files -coz --exclude-standard | sort -zu) <(git ls-files -dz | sort -zu) \
    | tar --null --files-from - -cf - | tar -C "$copy" -xf -
  cd "$copy"
  git init --quiet  # ansible-test asks git for the files, and must not find the checkout's.
}

# One at a time: the copy is shared.
mkdir -p "$checkout/.cache/ansible-test"
exec 9> "$checkout/.cache/ansible-test/lock"
flock 9

provide_pip
copy_checkout
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $command in
  sanity) exec ansible-test sanity --local --python "$python" "$@" ;;
  units) exec ansible-test units --local --python "$python" "$@" tests/unit/plugins/ ;;
  *) echo "error: $command is neither sanity nor units" >&2; exit 2 ;;
esac
