# Build steps: locking, prerequisites, interruption, progress and timing.
# No image depends on this file, so it is not part of any key.
# shellcheck shell=bash

say() { printf '%s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

elapsed() { # SECONDS; prints "45 s" or "3 min 5 s"
  if (($1 < 60)); then say "$1 s"; else say "$(($1 / 60)) min $(($1 % 60)) s"; fi
}

# ---- One builder at a time ----------------------------------------------------------------------------------------

# Holds the lock FILE until this script and all its child processes have exited. Before it waits, it prints what holds
# the lock and since when.
hold_lock() { # FILE WHAT
  local holder=''
  exec 9>> "$1"
  if ! flock --nonblock 9; then
    read -r holder < "$1" || true
    say "another $2${holder:+ ($holder)}, waiting"
    flock 9
  fi
  say "since $(date +%H:%M), process $$: $0" > "$1"
}

# Creates and locks the cache, and removes files left by a killed build.
open_cache() {
  need flock
  mkdir -p "$CACHE"/{tmp,bin,roots,images} || die "the directory $CACHE is not writable. Set SLIPWAY_CACHE to another directory."
  hold_lock "$CACHE/lock" "build is using $CACHE"
  rm -rf --one-file-system "${CACHE:?}"/tmp/*
}

drop_halves() { # removes unfinished files at once, as they may take gigabytes; logs remain until the next build
  find "$CACHE/tmp" -mindepth 1 -maxdepth 1 ! -name 'log.*' -exec rm -rf --one-file-system {} +
}

need() { # PROGRAM...; fails if one is missing
  local program missing=()
  for program in "$@"; do
    command -v "$program" > /dev/null || missing+=("$program")
  done
  ((${#missing[@]} == 0)) || die "not found on PATH: ${missing[*]}. Install the missing programs and run this again."
}

need_space() { # GIGABYTES; checks the disk of the cache
  local free
  free=$(df --output=avail --block-size=1G "$CACHE" | tail -n 1)
  ((free >= $1)) || die "the disk of $CACHE has only $((free)) GB free; this build needs $1 GB." \
    "Free some space, or set SLIPWAY_CACHE to a directory on another disk."
}

# ---- Interruptions ------------------------------------------------------------------------------------------------

# Runs a command in a separate process group, so that a signal takes effect at once and ends all its descendants.
# Otherwise, bash would wait for the command first. CLEANUP runs if the command fails or is interrupted.
interruptible() { # CLEANUP COMMAND...
  local cleanup=$1 group='' status=0
  shift
  trap 'end_group "$group"; $cleanup; interrupted 130' INT
  trap 'end_group "$group"; $cleanup; interrupted 143' TERM HUP
  set -m
  (set +m; "$@") < /dev/null &
  group=$!
  set +m
  wait "$group" || status=$?
  trap - INT TERM HUP
  [[ $status != 0 ]] || return 0
  $cleanup
  exit "$status"
}

end_group() { # GROUP; sends SIGTERM, and SIGKILL after ten seconds
  local tries=0
  trap '' INT TERM HUP
  [[ -n $1 ]] || return 0
  kill -TERM -- "-$1" 2> /dev/null || true
  while kill -0 -- "-$1" 2> /dev/null; do
    ((tries++ < 100)) || kill -KILL -- "-$1" 2> /dev/null || true
    sleep 0.1
  done
}

interrupted() { # STATUS
  printf 'error: interrupted. Run it again to continue; finished steps are kept.\n' >&2
  exit "$1"
}

# ---- Steps --------------------------------------------------------------------------------------------------------

# Prints the progress that the log of a step shows, or nothing if it cannot be counted.
# A Go build prints each package that it compiles; STEP_TOTAL can be their number.
progress_of() { # LOG
  awk -v total="${STEP_TOTAL:-}" '
    /^I: (Retrieving|Unpacking|Configuring) / || /^(Unpacking|Setting up) / { packages++ }
    /^[0-9]+ upgraded, [0-9]+ newly installed/ { wanted = 2 * ($1 + $3) }
    /^go: downloading / { modules++ }
    /^[a-z0-9][^ :]*$/ { compiled++ }
    END {
      if (compiled) print compiled (total ? " of " total : "") " packages"
      else if (modules) print modules " modules"
      else if (packages) print (wanted ? int(100 * packages / wanted) "%" : packages " packages")
    }' "$1" 2> /dev/null
}

# Prints the progress of a step until it is killed: on a terminal one changing line, otherwise a line every half minute.
show_progress() { # DESCRIPTION LOG STARTED
  local progress pause=30 before='  ' after='\n' sleeper
  if [[ -t 1 ]]; then pause=1 before='\r\033[K  ' after=''; fi
  # A remaining sleep would keep the output open for its readers.
  trap 'kill "${sleeper:-}" 2> /dev/null; exit' TERM
  while kill -0 "$$" 2> /dev/null; do
    sleep "$pause" &
    sleeper=$!
    wait "$sleeper"
    progress=$(progress_of "$2")
    # shellcheck disable=SC2059  # both ends are escape sequences
    printf "$before%s: %s%s ...$after" "$1" "$(elapsed $((SECONDS - $3)))" "${progress:+, $progress}"
  done
}

# Runs a command, and prints its description, progress and duration. Its output is only printed if it fails.
# A function ends at its first failed command. Bash does not support this in conditions (if, ||, &&), so a step fails there.
step() { # DESCRIPTION COMMAND...
  local description=$1 started=$SECONDS log status ticker
  shift
  set +e
  (set -e; false; true)
  status=$?
  set -e
  [[ $status != 0 ]] || die "the step \"$description\" is part of a condition, in which bash ignores failures."
  say "  $description ..."
  log=$(mktemp "$CACHE/tmp/log.XXXXXX")
  show_progress "$description" "$log" "$started" &
  ticker=$!
  set +e
  (set -e; "$@") > "$log" 2>&1 < /dev/null
  status=$?
  kill "$ticker" 2> /dev/null
  wait "$ticker" 2> /dev/null
  set -e
  if [[ -t 1 ]]; then printf '\r\033[K'; fi
  if [[ $status != 0 ]]; then
    tail -n 40 "$log" >&2
    if grep -qi 'no space left on device' "$log"; then
      die "$description failed after $((SECONDS - started)) s: the disk is full. Free some space and run it again."
    fi
    die "$description failed after $((SECONDS - started)) s. Run it again to continue; finished steps are kept. Full output: $log"
  fi
  rm -f "$log"
  say "  $description: $((SECONDS - started)) s"
}
