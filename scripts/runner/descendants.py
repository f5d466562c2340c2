"""Finds and ends the processes that a command has started, also those outside its process group.

ansible-runner, for example, starts each playbook in a new session. If its parent ends, such a process becomes a child
of process 1, unless an ancestor adopts orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

SET_ADOPTS, GET_ADOPTS = 36, 37
"""PR_SET_CHILD_SUBREAPER and PR_GET_CHILD_SUBREAPER of prctl(2)."""
TERM_SECONDS = 10
"""How long a process outside the group may take to end after SIGTERM."""
KILL_SECONDS = 60
"""The same after SIGKILL: on a busy machine the kernel may need a while."""
PAUSE_SECONDS = 0.02


class Descendants:
    """The processes that this process starts from now on, with all that they start."""

    def __init__(self) -> None:
        self._older = {child for child, parent in _parents().items() if parent == os.getpid()}

    def find(self) -> set[int]:
        """Running processes and those whose status has not been read."""
        return find_descendants(os.getpid(), self._older)

    def reap(self, besides: Collection[int] = ()) -> None:
        """Reads the status of adopted processes that have ended: nothing else does, and some tests wait for this."""
        for child in self.find().difference(besides):
            with contextlib.suppress(ChildProcessError):  # a child of a child
                os.waitpid(child, os.WNOHANG)

    def end(self) -> set[int]:
        """Ends all of them: by SIGTERM, and after a grace period by SIGKILL.

        Returns:
            Those that did not end.
        """
        for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            signalled: set[int] = set()
            deadline = time.monotonic() + seconds
            while (survivors := self._find_after_reaping()) and time.monotonic() < deadline:
                for process in survivors - signalled:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process, number)
                signalled |= survivors
                time.sleep(PAUSE_SECONDS)
        return self._find_after_reaping()

    def _find_after_reaping(self) -> set[int]:
        self.reap()
        return self.find()


@contextlib.contextmanager
def adopted_orphans() -> Iterator[Descendants]:
    """In this block, processes whose parent ends become children of this process."""
    before = ctypes.c_int()
    _prctl(GET_ADOPTS, ctypes.byref(before))
    _prctl(SET_ADOPTS, ctypes.c_ulong(1))
    try:
        yield Descendants()
    finally:
        _prctl(SET_ADOPTS, ctypes.c_ulong(before.value))


def _prctl(option: int, value: object) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def find_descendants(ancestor: int, without: Collection[int] = ()) -> set[int]:
    """Children of this process, and theirs; ``without`` some, and without what those have started."""
    children: dict[int, set[int]] = {}
    for child, parent in _parents().items():
        children.setdefault(parent, set()).add(child)
    descendants: set[int] = set()
    new = children.get(ancestor, set()).difference(without)
    while new:
        descendants |= new
        new = {child for parent in new for child in children.get(parent, ())} - descendants
    return descendants


def _parents() -> dict[int, int]:
    """Process -> its parent, of all processes of the machine."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            # The second field is the program's name in parentheses, which may contain both.
            parents[int(folder.name)] = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return parents


def describe_running(processes: Collection[int]) -> str:
    """Such as ``1234 (sleep), 1235 (sh)``; empty if all have ended."""
    names = []
    for process in sorted(processes):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, _, rest = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")
            if rest.split()[0] != "Z":
                names.append(f"{process} ({name.partition('(')[2]})")
    return ", ".join(names)
