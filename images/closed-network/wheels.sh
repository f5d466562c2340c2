# Python programs from the wheels that python/NAME.txt pins with hashes, on Debian's Python. Recipes source this file and list
# it as an input.
# shellcheck shell=bash

# Selects wheels for the image's Python, not for this host's.
MACHINE=$(uname -m)
FOR_IMAGE=(--only-binary=:all: --implementation cp --python-version 3.11)
for tag in 1 2010 2014 $(seq -f _2_%.0f 5 36); do FOR_IMAGE+=(--platform "manylinux${tag}_$MACHINE"); done

wheels() { # NAME; downloads its wheels, and prints their folder
  local list=$CLOSED_DIR/python/$1.txt dir
  dir=$CACHE/wheels/$1-$MACHINE-$(key_of "$list")
  if [[ ! -d $dir ]]; then
    mkdir -p "$CACHE/wheels"
    step "download the wheels of $1" python3 -m pip download --quiet --no-deps --require-hashes \
      --disable-pip-version-check "${FOR_IMAGE[@]}" --dest "$CACHE/tmp/$1.wheels" --requirement "$list" >&2
    rm -rf "$CACHE/wheels/$1-$MACHINE"-*
    mv "$CACHE/tmp/$1.wheels" "$dir"
  fi
  say "$dir"
}

# This host's pip unpacks the wheels, and runs no code from them.
python_root() { # DIR NAME PACKAGE...; creates a root with the program in /opt/NAME and the Debian packages
  local root=$1 name=$2 found
  shift 2
  found=$(wheels "$name")
  debian_root "$root" bookworm python3 "$@"
  mkdir -p "$root/opt/$name" "$root/usr/local/bin"
  step "unpack the wheels of $name" python3 -m pip install --quiet --no-deps --no-index --no-compile \
    --disable-pip-version-check --root-user-action=ignore "${FOR_IMAGE[@]}" --target "$root/opt/$name" "$found"/*.whl
  # The wheels' scripts contain the path of this host's Python.
  rm -rf "$root/opt/$name/bin"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python"
}

# Writes a program's script, as pip would for the image's Python. Child processes of multiprocessing import it again, and must
# not start the program a second time.
python_program() { # ROOT NAME MODULE FUNCTION
  local file=$1/usr/local/bin/$2
  printf '%s\n' '#!/usr/bin/python3' 'import sys' "from $3 import $4" '' 'if __name__ == "__main__":' \
    "    sys.argv[0] = \"$2\"" "    sys.exit($4())" > "$file"
  chmod 755 "$file"
}
