"""What a run needs of the machine, checked before anything is built."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .checkout import ROOT

PROGRAMS = ("docker", "git", "pytest", "ansible-playbook", "molecule")
LOCK = Path("/tmp/slipway-tests.lock")  # noqa: S108
"""The name and the ports of the test cluster exist once per machine, for all users, checkouts and caches."""
DOCKER_SECONDS = 60
"""How long Docker may take to answer."""
FREE_GIB = 8
"""What one run may write to the disk."""
HOLDER = re.compile(r"since \d\d:\d\d \(process \d+\)")


class CannotStartError(Exception):
    """A requirement of the run is missing. The message names it and the fix."""


def cache_folder() -> Path:
    """Where images, programs and environments are kept, for all checkouts of this user."""
    if named := os.environ.get("SLIPWAY_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"


def check_machine() -> None:
    """Raises CannotStartError if a program is missing, Docker does not respond, or the disk is full."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        names = ", ".join(missing)
        raise CannotStartError(f"not on PATH: {names}. Run `make setup docker` and `source .venv/bin/activate`.")
    if not _docker_answers():  # a daemon that a lane starts would end with the lane
        raise CannotStartError("Docker does not respond. Run scripts/docker.sh to start it.")
    free = shutil.disk_usage(ROOT).free / 2**30
    if free < FREE_GIB:
        raise CannotStartError(f"{free:.1f} GiB of disk are free; a run needs {FREE_GIB}. Delete files and try again.")


def _docker_answers() -> bool:
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, timeout=DOCKER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return not done.returncode


@contextlib.contextmanager
def only_run() -> Iterator[None]:
    """Waits until no other test run uses this machine: they share the test cluster, and slow each other down.

    Raises:
        CannotStartError: The lock is not a file that this user can write.
    """
    with _open_lock() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = HOLDER.match(lock.read(100))
            print(f"Another test run has used this machine{f' {holder[0]}' if holder else ''}; waiting.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        lock.truncate()
        lock.write(f"since {time.strftime('%H:%M')} (process {os.getpid()})")
        lock.flush()
        yield


def _open_lock() -> IO[str]:
    # In /tmp, an open that may create a file fails for files of other users. Another process may create it meanwhile.
    for flags in (0, os.O_CREAT | os.O_EXCL, 0):
        try:
            lock = os.fdopen(os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | flags), "r+", errors="replace")
        except (FileNotFoundError, FileExistsError):
            continue
        except OSError as error:
            raise CannotStartError(f"{LOCK}: {error.strerror}. Remove it.") from error
        if flags:
            os.fchmod(lock.fileno(), 0o666)
        return lock
    raise CannotStartError(f"{LOCK} cannot be opened. Remove it.")
