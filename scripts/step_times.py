"""Copies what a build or a playbook prints, and ends with the time of each step.

usage: make demo | python scripts/step_times.py

Images and plays are steps; what a script says of its own steps ("compile etcd: 21 s") is shown below them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TextIO

BEGINNINGS = (
    re.compile(r"^(Installing the Python packages|Downloading kubernetes\.core)"),
    re.compile(r"^(\S+): (?:building|pulling)$"),
    re.compile(r"^PLAY \[(.+)\]"),
)
PART = re.compile(r"^  (\S.*): (\d+) s$")


class Part(NamedTuple):
    """A line of the table."""

    name: str
    seconds: float
    nested: bool = False


def follow(lines: Iterable[str], echo: TextIO, clock: Callable[[], float] = time.monotonic) -> list[Part]:
    """Echoes the lines as they come and returns the steps in their order, each followed by its own parts."""
    began, name = clock(), "Start"
    steps: list[Part] = []
    parts: list[Part] = []

    def end(now: float) -> None:
        steps.extend([Part(name, now - began), *parts])
        parts.clear()

    for line in lines:
        echo.write(line)
        echo.flush()
        if beginning := next((match for pattern in BEGINNINGS if (match := pattern.match(line))), None):
            end(now := clock())
            began, name = now, beginning.group(1)
        elif part := PART.match(line):
            parts.append(Part(part.group(1), float(part.group(2)), nested=True))
    end(clock())
    return steps


def table(steps: list[Part]) -> str:
    """The steps that took a second or more, and their sum."""
    shown = [part for part in steps if part.seconds >= 1]
    rows = [f"{part.seconds:6.0f} s  {'  ' if part.nested else ''}{part.name}" for part in shown]
    total = sum(part.seconds for part in steps if not part.nested)
    return "\n".join([*rows, f"{total:6.0f} s  in all ({total / 60:.1f} min)", ""])


if __name__ == "__main__":
    times = follow(sys.stdin, sys.stdout)
    sys.stdout.write("\n" + table(times))
