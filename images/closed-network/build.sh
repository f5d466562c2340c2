#!/usr/bin/env bash
# Makes images under their public names where no image registry can be reached: of Debian packages and Go modules.
# An image that is there is left alone; one that was built before comes back from the cache; else its recipe runs.
#
#   build.sh IMAGE...     for every image one last word: present, loaded or built
#   build.sh --list       the images that have a recipe
#
# Needs Docker, root, debootstrap (installed when apt is there) and, for the node image, Go.
set -euo pipefail
# shellcheck source=images/closed-network/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

recipe_of() { # IMAGE; prints the file
  local known
  known=$(recipes)
  awk -v image="$1" '$1 == image {print $2; found = 1} END {exit !found}' <<< "$known" \
    || die "no recipe makes $1; there are: $(cut -d ' ' -f 1 <<< "$known" | paste -sd ' ')"
}

recipes() { # prints IMAGE FILE for each
  local recipe
  for recipe in "$CLOSED_DIR"/recipes/*.sh; do
    # shellcheck source=/dev/null
    (source "$recipe"; say "$image $recipe")
  done
}

# A recipe says which image it makes and what goes into it beside itself, and makes it.
inputs() { :; }

make_image() { # IMAGE
  local image=$1 recipe key archive started=$SECONDS dir have text files old
  recipe=$(recipe_of "$image")
  # shellcheck source=/dev/null
  source "$recipe"
  text=$(inputs)
  mapfile -t files <<< "$text"
  key=$(key_of "$CLOSED_DIR/lib.sh" "$recipe" "$image" "${files[@]}")
  archive=$CACHE/images/$(basename "$recipe" .sh)/$key.tar
  have=$(image_inputs "$image")
  if [[ $have == "$key" ]]; then
    [[ -e $archive ]] || save_image "$image" "$archive" # the run that built it was killed before this
    say "$image: present"
  elif [[ $have == foreign ]]; then
    say "$image: present, of another origin, left alone"
  elif [[ -e $archive ]]; then
    docker load --quiet --input "$archive" > /dev/null
    say "$image: loaded from the cache in $((SECONDS - started)) s"
  else
    say "$image: building"
    dir=$(mktemp -d "$CACHE/tmp/image.XXXXXX")
    old=$(image_id "$image")
    build "$dir" "$key"
    drop_image "$old"
    save_image "$image" "$archive"
    rm -rf --one-file-system "$dir"
    say "$image: built in $((SECONDS - started)) s"
  fi
}

case ${1:-} in
  '' | -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
  --list) recipes | cut -d ' ' -f 1; exit ;;
esac
docker info > /dev/null 2>&1 || die "Docker does not answer; scripts/docker.sh installs and starts it"
open_cache
for name in "$@"; do
  (make_image "$name")
done
