"""Program: a load that is killed at its first, second, third ... touch of the disk, each followed by one that is not.

Arguments: URL, folder for the loads, folder with what has to arrive. Prints the number of kills, or what was wrong.
A touch is a write, or whatever Python audits below the folder: opening, renaming, cutting, making, removing.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from slipway.loader.disk.folder import MARKER, WORK
from slipway.loader.disk.progress import Meter
from slipway.loader.download.load import load
from slipway.loader.download.transfer import Policy
from slipway.loader.transport.source import open_source

AUDITED = ("open", "os.rename", "os.truncate", "os.mkdir")
REMOVALS = ("os.remove", "os.rmdir")
"""Events whose path is relative to an open folder."""


class Trap:
    """Kills the process at the ``last`` touch below ``folder``."""

    def __init__(self, folder: Path, last: int) -> None:
        self._folder, self._left = str(folder), last
        sys.addaudithook(self._audit)
        plain = Path.open
        counted = self._counted()
        Path.open = lambda path, mode="r", *rest, **more: (  # type: ignore[method-assign]
            counted(path, mode) if mode in ("x+b", "r+b") else plain(path, mode, *rest, **more)
        )

    def touch(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in REMOVALS or (event in AUDITED and str(arguments[0]).startswith(self._folder)):
            self.touch()

    def _counted(self) -> type[io.FileIO]:
        trap = self

        class Counted(io.FileIO):
            def write(self, data: Any) -> int:
                trap.touch()
                half = super().write(data[: len(data) // 2 + 1])
                trap.touch()
                return half

        return Counted


def in_child(url: str, folder: Path, last: int) -> bool:
    """Load; whether the child lived to its end. ``last`` 0 lets it."""
    child = os.fork()
    if child == 0:
        if last:
            Trap(folder, last)
        policy = Policy(attempts=3, first_pause=0.001, longest_pause=0.01, parallel=2)
        load(url, partial(open_source, url, os.environ), folder, policy, threading.Event(), Meter())
        os._exit(0)
    _child, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "a load failed"
    return True


def visible(folder: Path) -> dict[str, bytes]:
    """What an engine would find."""
    names = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if name != MARKER and not name.startswith((f"{WORK}/", f"{MARKER}."))
    }


def main(url: str, place: Path, expected: dict[str, bytes]) -> int:
    import_module("slipway.loader.sources.huggingface")  # once, not in every child
    last = 0
    while True:
        last += 1
        folder = place / f"load-{last}"
        lived = in_child(url, folder, last)
        files = visible(folder) if folder.exists() else {}
        assert files.items() <= expected.items(), f"touch {last}: a file is not what it should be"
        assert files == expected or not (folder / MARKER).exists(), f"touch {last}: declared complete too early"
        if lived:
            return last - 1
        in_child(url, folder, 0)
        assert visible(folder) == expected, f"touch {last}: the next load did not repair it"
        assert {path.name for path in folder.iterdir() if path.name.startswith(".")} == {MARKER}, (
            f"touch {last}: remains"
        )


if __name__ == "__main__":
    sys.stdout.write(str(main(sys.argv[1], Path(sys.argv[2]), visible(Path(sys.argv[3])))))
