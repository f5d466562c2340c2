# Shared by scripts that run several versions of Python.
# shellcheck shell=bash

find_python() { # VERSION; prints the path of a working one
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1"; do
    # A pyenv shim can exist without its Python.
    if "$candidate" -c 'import ensurepip, ssl, venv' 2> /dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
