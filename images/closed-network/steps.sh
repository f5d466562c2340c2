# Steps of a build: what runs, how far it is and how long it took. No image depends on this file, so it is part of no key.
# shellcheck shell=bash

say() { printf '%s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

elapsed() { # SECONDS; prints "45 s" or "3 min 5 s"
  if (($1 < 60)); then say "$1 s"; else say "$(($1 / 60)) min $(($1 % 60)) s"; fi
}

# Counts what the log of a step shows as done, whichever program wrote it. Prints nothing where there is nothing to count.
# A Go build names each package that it compiles; it may know how many there are (STEP_TOTAL).
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

# Shows that a step lives until it is killed: one line that changes on a terminal, elsewhere a line every half minute.
show_progress() { # DESCRIPTION LOG STARTED
  local progress pause=30 before='  ' after='\n' sleeper
  if [[ -t 1 ]]; then pause=1 before='\r\033[K  ' after=''; fi
  # A sleep that outlived this would keep the output open for whoever reads it.
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

# Runs a command quietly and says what it was, how far it is and how long it took; its output is shown only when it fails.
# A function ends at its first command that fails. Bash grants that nowhere below a condition (if, ||, &&): a step refuses
# to run there.
step() { # DESCRIPTION COMMAND...
  local description=$1 started=$SECONDS log status ticker
  shift
  set +e
  (set -e; false; true)
  status=$?
  set -e
  [[ $status != 0 ]] || die "the step \"$description\" is part of a condition, where a failure would go unseen"
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
    die "$description failed after $((SECONDS - started)) s"
  fi
  rm -f "$log"
  say "  $description: $((SECONDS - started)) s"
}
