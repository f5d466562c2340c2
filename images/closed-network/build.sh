#!/usr/bin/env bash
# Builds images from Debian packages, Go modules and Python wheels, under their public names, for networks without an image
# registry. Existing images are kept, and images that were built before are loaded from the cache.
#
#   build.sh [--because WHY] IMAGE...     prints a last line for each image: present, loaded or built
#   build.sh --missing IMAGE...           prints those that it would build
#   build.sh --list                       prints the images that have a recipe
#
# Needs Docker, root, debootstrap (installed if apt is available), Go for compiled images, Python with pip for wheels, and cc
# and readelf for vLLM and Infinity.
set -euo pipefail
# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

recipe_of() { # IMAGE; prints the file
  local known
  known=$(recipes)
  awk -v image="$1" '$1 == image {print $2; found = 1} END {exit !found}' <<< "$known" \
    || die "the image '$1' has no recipe. Images with a recipe: $(cut -d ' ' -f 1 <<< "$known" | paste -sd ' ')"
}

recipes() { # prints IMAGE FILE for each
  local recipe
  for recipe in "$CLOSED_DIR"/recipes/*.sh; do
    # shellcheck source=/dev/null
    (source "$recipe"; say "$image $recipe")
  done
}

# A recipe sets image, prints its input files in addition to itself, and has a function build.
inputs() { :; }

# The archive name is a hash of all inputs of the image, so an existing archive is always current.
key_and_archive() { # RECIPE; sets image, key and archive
  local files text
  # shellcheck source=/dev/null
  source "$1"
  text=$(inputs)
  mapfile -t files <<< "$text"
  key=$(key_of "$CLOSED_DIR/lib.sh" "$1" "$image" "${files[@]}")
  archive=$CACHE/images/$(basename "$1" .sh)/$key.tar
}

is_there() { # RECIPE; prints yes if its image is in Docker or in the cache
  local image key archive have
  key_and_archive "$1"
  have=$(image_inputs "$image")
  if [[ $have == "$key" || $have == foreign || -e $archive ]]; then say yes; fi
}

missing() { # IMAGE...; prints the images that will be built
  local name recipe known
  for name in "$@"; do
    recipe=$(recipe_of "$name")
    known=$(is_there "$recipe")
    [[ -n $known ]] || say "$name"
  done
}

# Reports what will be built, why and how long it takes, and fails early if a prerequisite is missing.
plan() { # WHY IMAGE...; sets planned to the images that will be built
  local why=$1 name recipe known seconds=0 compiles=() links=()
  planned=()
  shift
  known=$(missing "$@")
  [[ -n $known ]] || return 0
  mapfile -t planned <<< "$known"
  for name in "${planned[@]}"; do
    recipe=$(recipe_of "$name")
    known=$(awk -v recipe="$(basename "$recipe" .sh)" '$1 == recipe {print $2}' "$CLOSED_DIR/seconds.txt")
    seconds=$((seconds + known))
    if grep -q go_binaries "$recipe"; then compiles+=("$name"); fi
    if grep -q without_cuda "$recipe"; then links+=("$name"); fi
  done
  known=images
  ((${#planned[@]} > 1)) || known=image
  say "$why: building ${#planned[@]} $known from source, about $(((seconds + 59) / 60)) min on 2 cores, once"
  [[ $(id -u) == 0 ]] || die "building images from Debian packages needs root"
  ((${#compiles[@]} == 0)) || command -v go > /dev/null \
    || die "compiling ${compiles[*]} needs Go 1.26.4 or newer on PATH. Install it and run this again."
  ((${#links[@]} == 0)) || { command -v cc && command -v readelf; } > /dev/null \
    || die "linking ${links[*]} needs cc and readelf on PATH. Install a C compiler (Debian's package gcc) and run this again."
  need_space "$((${#compiles[@]} || ${#links[@]} ? 10 : 3))"
}

make_image() { # IMAGE COUNT; COUNT is a prefix such as "[1/4] ", empty if nothing needs to be built
  local image=$1 count=$2 recipe key archive started=$SECONDS dir have old
  recipe=$(recipe_of "$image")
  key_and_archive "$recipe"
  have=$(image_inputs "$image")
  if [[ $have == "$key" ]]; then
    [[ -e $archive ]] || save_image "$image" "$archive" # the run that built it was killed before it saved the image
    say "$image: present"
  elif [[ $have == foreign ]]; then
    say "$image: present, not built by this script, so kept"
  elif [[ -e $archive ]]; then
    docker load --quiet --input "$archive" > /dev/null
    say "$image: loaded from the cache in $((SECONDS - started)) s"
  else
    say "$count$image: building"
    dir=$(mktemp -d "$CACHE/tmp/image.XXXXXX")
    old=$(image_id "$image")
    build "$dir" "$key"
    drop_image "$old"
    save_image "$image" "$archive"
    rm -rf --one-file-system "$dir"
    say "$image: built in $((SECONDS - started)) s"
  fi
}

why='Requested'
report=false
case ${1:-} in
  '' | -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
  --list) recipes | cut -d ' ' -f 1; exit ;;
  --missing) report=true; shift ;;
  --because) why=${2:?}; shift 2 ;;
esac
need docker tar
docker info > /dev/null 2>&1 || die "Docker does not answer. Run scripts/docker.sh to install and start it."
if $report; then
  missing "$@"
  exit
fi
open_cache
plan "$why" "$@"
number=0
for name in "$@"; do
  count=''
  if [[ " ${planned[*]} " == *" $name "* ]]; then count="[$((++number))/${#planned[@]}] "; fi
  interruptible drop_halves make_image "$name" "$count"
done
