# Programs in Python, made of the wheels that python/NAME.txt pins with their hashes, on Debian's Python. For recipes to
# source, and one of their inputs.
# shellcheck shell=bash

# Whatever Python this host has: the wheels are for the image's.
MACHINE=$(uname -m)
FOR_IMAGE=(--only-binary=:all: --implementation cp --python-version 3.11)
for tag in 1 2010 2014 $(seq -f _2_%.0f 5 36); do FOR_IMAGE+=(--platform "manylinux${tag}_$MACHINE"); done

wheels() { # NAME; prints the folder of its wheels
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

# The wheels are unpacked by this host's pip: what they would run, they run nowhere.
python_root() { # DIR NAME PACKAGE...; makes a root with the program in /opt/NAME, and what it needs of Debian
  local root=$1 name=$2 found
  shift 2
  found=$(wheels "$name")
  debian_root "$root" bookworm python3 "$@"
  mkdir -p "$root/opt/$name" "$root/usr/local/bin"
  step "unpack the wheels of $name" python3 -m pip install --quiet --no-deps --no-index --no-compile \
    --disable-pip-version-check --root-user-action=ignore "${FOR_IMAGE[@]}" --target "$root/opt/$name" "$found"/*.whl
  # Scripts of wheels name this host's Python.
  rm -rf "$root/opt/$name/bin"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python"
}

# Writes the script of a program that pip would write for the image's Python. Child processes of multiprocessing import it
# again, and must not start the program once more.
python_program() { # ROOT NAME MODULE FUNCTION
  local file=$1/usr/local/bin/$2
  printf '%s\n' '#!/usr/bin/python3' 'import sys' "from $3 import $4" '' 'if __name__ == "__main__":' \
    "    sys.argv[0] = \"$2\"" "    sys.exit($4())" > "$file"
  chmod 755 "$file"
}
