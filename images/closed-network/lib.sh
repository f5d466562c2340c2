# Shared by build.sh and the recipes: the cache, Debian root file systems, Go binaries, and images.
# All files in the cache are written under a temporary name and renamed when complete, so a run can be killed at any time.
# The first failed command ends the run. Output is therefore read into a variable first, because bash ignores failures of
# "$(...)" in the arguments of another command, and of <(...).
# shellcheck shell=bash
set -euo pipefail
shopt -s inherit_errexit

CLOSED_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
KEY_LABEL=slipway.inference/inputs
# shellcheck source=/dev/null
source "$CLOSED_DIR/../versions.env"
# shellcheck source=images/closed-network/steps.sh
source "$CLOSED_DIR/steps.sh"

# Prints a short hash of files, folders and words: equal inputs have equal keys.
key_of() { # PATH_OR_WORD...
  local input
  for input in "$@"; do
    if [[ -d $input ]]; then
      (cd "$input" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
    elif [[ -f $input ]]; then
      sha256sum < "$input"
    else
      printf '%s\n' "$input"
    fi
  done | sha256sum | cut -c1-16
}

# ---- Debian -------------------------------------------------------------------------------------------------------

# Prints the Debian mirror in this host's apt configuration.
debian_mirror() {
  if [[ -n ${SLIPWAY_DEBIAN_MIRROR:-} ]]; then
    say "$SLIPWAY_DEBIAN_MIRROR"
    return
  fi
  local mirrors
  mirrors=$(apt_mirrors)
  if [[ -z $mirrors ]]; then
    apt-get update -q > /dev/null
    mirrors=$(apt_mirrors)
  fi
  [[ -n $mirrors ]] || die "apt on this host has no Debian source. Set SLIPWAY_DEBIAN_MIRROR to the URL of a Debian mirror."
  say "${mirrors%%$'\n'*}"
}

apt_mirrors() { # prints the URL of each Debian source of which apt has lists
  apt-get indextargets --format "\$(LABEL)|\$(REPO_URI)" 'Created-By: Packages' | sed -n 's/^Debian|//p'
}

# The keys of Debian's archive. Without them, debootstrap would only print a warning, and accept packages from an attacker on
# the network path.
DEBIAN_KEYRING=${SLIPWAY_DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

need_debootstrap() {
  local missing=()
  [[ $(id -u) == 0 ]] || die "building images from Debian packages needs root"
  command -v debootstrap > /dev/null || missing+=(debootstrap)
  command -v gpgv > /dev/null || missing+=(gpgv)
  [[ -e $DEBIAN_KEYRING ]] || missing+=(debian-archive-keyring)
  if ((${#missing[@]})); then
    command -v apt-get > /dev/null || die "building images from Debian packages needs ${missing[*]}. Install them."
    step "install ${missing[*]}" install_packages "${missing[@]}"
  fi
  [[ -e $DEBIAN_KEYRING ]] || die "Debian's archive keys are missing at $DEBIAN_KEYRING. Install the package" \
    "debian-archive-keyring, or set SLIPWAY_DEBIAN_KEYRING to the path of the keys."
}

# A fresh machine has no package lists, and old lists name files that mirrors no longer have.
install_packages() { # PACKAGE...
  apt-get update -q || say "Some package lists could not be downloaded. Using the existing ones."
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# Runs a command in a root file system, with /proc and basic devices. Package scripts start no daemons. Without /dev/null,
# apt's signature check would exit before it has checked anything.
in_root() { # DIR COMMAND...
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  unshare --mount --fork sh -euc '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for device in null zero full random urandom; do
      : > "$root/dev/$device"
      mount --bind "/dev/$device" "$root/dev/$device"
    done
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive "$@"' sh "$@"
}

# Creates the minimal root of a suite, a tar archive from which other roots start. debootstrap runs in its own mount
# namespace, so nothing stays mounted if it is killed.
debian_base() { # SUITE; prints the archive
  local suite=$1 archive dir mirror
  archive=$CACHE/roots/$suite-$(key_of "$CLOSED_DIR/lib.sh").tar
  if [[ ! -e $archive ]]; then
    need_debootstrap >&2
    dir=$CACHE/tmp/base-$suite
    mirror=$(debian_mirror)
    step "bootstrap Debian $suite" \
      unshare --mount debootstrap --force-check-gpg --keyring="$DEBIAN_KEYRING" --variant=minbase --include=ca-certificates \
      "$suite" "$dir" "$mirror" >&2
    tar -C "$dir" --exclude './dev/*' --exclude './proc/*' --exclude './var/cache/apt/archives/*.deb' -c . > "$dir.tar"
    rm -rf "$dir" "$CACHE/roots/$suite"-*.tar
    mv "$dir.tar" "$archive"
  fi
  say "$archive"
}

# The maximum age of signed package lists, in days. Those of sid and experimental are valid for a week, which is too short for
# mirrors in closed networks. Without a limit, an attacker on the network path could serve an old release with known flaws.
DEBIAN_MAX_AGE=${SLIPWAY_DEBIAN_MAX_AGE:-90}

# Creates a root of SUITE with packages. A package NAME/EXTRA comes from the suite EXTRA. The build fails if a list is not
# signed or too old; otherwise, apt would continue with earlier lists.
debian_root() { # DIR SUITE PACKAGE...
  local dir=$1 suite=$2 archive extra mirror
  shift 2
  archive=$(debian_base "$suite")
  mirror=$(debian_mirror)
  mkdir -p "$dir"
  tar -C "$dir" -xf "$archive"
  cp /etc/resolv.conf "$dir/etc/resolv.conf"
  printf '#!/bin/sh\nexit 101\n' > "$dir/usr/sbin/policy-rc.d"
  chmod 755 "$dir/usr/sbin/policy-rc.d"
  apt-config dump | grep -E '^Acquire::https?::Proxy' > "$dir/etc/apt/apt.conf.d/90host-proxy" || true
  for extra in $(printf '%s\n' "$@" | sed -n 's#^[^/]*/##p' | sort -u); do
    say "deb $mirror $extra main" > "$dir/etc/apt/sources.list.d/$extra.list"
  done
  [[ $DEBIAN_MAX_AGE =~ ^[0-9]{1,4}$ ]] || die "SLIPWAY_DEBIAN_MAX_AGE: '$DEBIAN_MAX_AGE' is not a number of days."
  step "download the package lists of $suite" in_root "$dir" apt-get -q -o APT::Update::Error-Mode=any \
    -o Acquire::Min-ValidTime=$((10#$DEBIAN_MAX_AGE * 86400)) update
  step "install $1${2:+ and $(($# - 1)) more}" in_root "$dir" apt-get -q -y --no-install-recommends install "$@"
  rm -rf "$dir"/var/lib/apt/lists/* "$dir"/var/cache/apt/* "$dir"/var/log/{apt,dpkg.log,bootstrap.log} \
    "$dir"/usr/share/{doc,man,locale,info} "$dir/usr/sbin/policy-rc.d" "$dir/etc/apt/apt.conf.d/90host-proxy" \
    "$dir/etc/resolv.conf"
}

# ---- Go -----------------------------------------------------------------------------------------------------------

# Compiles static binaries of the module that go/MODULE locks into one folder, unless the cache has them. One build of several
# programs compiles shared packages only once, and links a program while it compiles the next one. The linker drops debug
# information (-s -w), so the compiler does not write it.
go_binaries() { # NAME MODULE LDFLAGS PACKAGE...; prints the folder
  local name=$1 module=$CLOSED_DIR/go/$2 flags="-s -w $3" dir platform
  shift 3
  command -v go > /dev/null || die "compiling $name needs Go $(sed -n 's/^go //p' "$module/go.mod") or newer on PATH"
  platform=$(go env GOOS GOARCH GOVERSION)
  dir=$CACHE/bin/$name-$(key_of "$module" "$flags" "$platform" "$@")
  if [[ ! -d $dir ]]; then
    mkdir -p "$CACHE/tmp/$name"
    step "download the Go modules of $name" go_packages "$module" "$CACHE/tmp/$name.packages" "$@" >&2
    STEP_TOTAL=$(wc -l < "$CACHE/tmp/$name.packages") step "compile $name" env CGO_ENABLED=0 \
      go build -C "$module" -v -mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "$flags" -o "$CACHE/tmp/$name/" "$@" >&2
    rm -rf "$CACHE/bin/$name"-*
    mv "$CACHE/tmp/$name" "$dir"
  fi
  say "$dir"
}

go_packages() { # MODULE LIST PACKAGE...; writes the names of all packages that these contain
  local module=$1 list=$2
  shift 2
  CGO_ENABLED=0 go list -C "$module" -mod=readonly -deps "$@" > "$list"
}

# Go prints a module's folder only after a download.
module_files() { # MODULE PATH; prints the folder of the files of a module that go/MODULE locks
  local module=$CLOSED_DIR/go/$1
  go mod download -C "$module" "$2" >&2
  go list -C "$module" -mod=readonly -m -f '{{.Dir}}' "$2"
}

# ---- Images -------------------------------------------------------------------------------------------------------

# Creates an image from a root file system. Each CHANGE is a Dockerfile instruction. Docker accepts a truncated stream, so the
# image only gets its name after tar has succeeded.
import_root() { # DIR IMAGE KEY CHANGE...
  local dir=$1 image=$2 changes=(--change "LABEL $KEY_LABEL=$3") change id
  shift 3
  for change in "$@"; do changes+=(--change "$change"); done
  if ! id=$(tar -C "$dir" --exclude './dev/*' --exclude './proc/*' --numeric-owner -c . | docker import "${changes[@]}" -); then
    [[ -z $id ]] || docker image rm "$id" > /dev/null
    die "$image could not be created from its files; see the error above."
  fi
  docker tag "$id" "$image"
}

image_inputs() { # IMAGE; prints the key that it was built with, "foreign" if this script did not build it, or nothing
  local key
  key=$(docker image inspect --format "{{with .Config.Labels}}{{index . \"$KEY_LABEL\"}}{{end}}" "$1" 2> /dev/null) || return 0
  say "${key:-foreign}"
}

image_id() { docker image inspect --format '{{.Id}}' "$1" 2> /dev/null || true; } # IMAGE

# Removes an image whose name a newer one has. An image with another name or a container stays.
drop_image() { # ID
  [[ $(docker image inspect --format '{{len .RepoTags}}' "$1" 2> /dev/null) == 0 ]] || return 0
  docker image rm "$1" > /dev/null 2>&1 || true
}

save_image() { # IMAGE ARCHIVE
  mkdir -p "$(dirname "$2")"
  docker save --output "$CACHE/tmp/save.tar" "$1"
  rm -f "$(dirname "$2")"/*
  mv "$CACHE/tmp/save.tar" "$2"
}
