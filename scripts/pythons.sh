# Shared by the scripts that run several Pythons.
# shellcheck shell=bash

find_python() { # VERSION; prints the path of one that runs
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1"; do
    # Shims on PATH may lead nowhere.
    if "$candidate" -c 'import ensurepip, ssl, venv' 2> /dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
