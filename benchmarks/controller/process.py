"""What Linux tells of a process that is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mebibytes(pid: int, field: Literal["VmRSS", "VmHWM"]) -> float:
    """Its memory now, or at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
