"""What a run needs of the machine, checked before anything is built."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from .checkout import ROOT

PROGRAMS = ("docker", "git", "pytest", "ansible-playbook", "molecule")
FREE_GIB = 8
"""What one run may write to the disk."""


class CannotStartError(Exception):
    """A requirement of the run is missing. The message names it and the fix."""


def cache_folder() -> Path:
    """Where images, programs and environments are kept, for all checkouts of this user."""
    if named := os.environ.get("SLIPWAY_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"


def check_machine() -> None:
    """Raises CannotStartError if a program is missing or the disk is full."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        names = ", ".join(missing)
        raise CannotStartError(f"not on PATH: {names}. Run `make setup docker` and `source .venv/bin/activate`.")
    free = shutil.disk_usage(ROOT).free / 2**30
    if free < FREE_GIB:
        raise CannotStartError(f"{free:.1f} GiB of disk are free; a run needs {FREE_GIB}. Delete files and try again.")


@contextlib.contextmanager
def only_run() -> Iterator[None]:
    """Waits until no other test run uses this machine: they share the test cluster, and slow each other down."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "tests.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            print(f"Another test run uses this machine {lock.read() or 'already'}; waiting.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"since {time.strftime('%H:%M')} (process {os.getpid()})")
        lock.flush()
        yield
