"""Runs the load generator once and reads its result."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

SPARE_SECONDS = 75
"""Beyond the window: connections are opened before it and answers awaited after it, each with a limit of its own."""


class LoadError(Exception):
    """The load could not be put on the target."""


@dataclass(frozen=True)
class Load:
    """What is asked of a target."""

    body: Path
    connections: int = 32
    rate: float = 0.0
    """Requests a second; 0: each connection asks again as soon as it has its answer."""
    events: bool = False
    idle: bool = False


@dataclass(frozen=True)
class Result:
    """What came of it within the measured window. Times are microseconds."""

    seconds: float
    completed: int
    failed: int
    started: int
    cpu_us: int
    resident_bytes: int
    p50_us: int
    p99_us: int
    first_p50_us: int
    events: int
    event_p50_us: int
    event_p99_us: int


def measure(program: Path, port: int, key: str, pids: list[int], load: Load, seconds: float) -> Result:
    """Put ``load`` on ``port`` for a while, counting CPU time and memory of ``pids``. Raises LoadError."""
    command = [str(program), "-c", str(load.connections), "-d", str(seconds), "-k", key]
    command += ["-p", ",".join(map(str, pids))] if pids else []
    command += ["-r", f"{load.rate:.1f}"] if load.rate else []
    command += ["-s"] if load.events else []
    command += ["-i"] if load.idle else []
    command += [str(port), str(load.body)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + SPARE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise LoadError("no end within the time limit") from error
    if done.returncode:
        raise LoadError(done.stderr.strip().removeprefix("load: ") or f"exit status {done.returncode}")
    stats = json.loads(done.stdout)
    unanswered = 0 if load.idle else stats["unanswered"]
    failed = stats["client_errors"] + stats["server_errors"] + stats["broken"] + unanswered
    names = Result.__dataclass_fields__.keys() - {"failed"}
    return Result(**{name: stats[name] for name in names}, failed=failed)
