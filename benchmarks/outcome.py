"""The file that a benchmark writes. All have the same header and the same goals, so that one page can show them.

A run with --quick tries the program, and its figures decide nothing: it writes into another folder.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/bench"
QUICK = FOLDER / "quick"
STARTED = time.monotonic()
MET, MISSED, TIE, NOT_MEASURED = "met", "MISSED", "tie", "not measured"


@dataclass(frozen=True)
class Goal:
    """A bound, and the value that was measured."""

    name: str
    value: float | None
    """None: not measured, for the reason in ``note``."""
    bound: float
    unit: str = ""
    at_least: bool = False
    """Whether the bound is the least allowed value. Otherwise it is the greatest."""
    note: str = ""
    tie: bool = False
    """The rounds of the two contestants overlap, so neither is better."""

    @property
    def verdict(self) -> str:
        if self.value is None:
            return NOT_MEASURED
        if self.tie:
            return TIE
        return MET if (self.value >= self.bound if self.at_least else self.value <= self.bound) else MISSED

    @property
    def met(self) -> bool:
        return self.verdict == MET

    @property
    def text(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        value = "" if self.value is None else f"{self._shown}{unit}, "
        note = f" ({self.note})" if self.note else ""
        return f"{self.name}: {value}{'at least' if self.at_least else 'at most'} {number(self.bound)}{unit}{note}"

    @property
    def _shown(self) -> str:
        """The value, with all its digits if it would look like the bound that it misses."""
        if self.value is None:
            return ""
        short = number(self.value)
        return f"{self.value:g}" if self.verdict == MISSED and short == number(self.bound) else short


@dataclass
class Outcome:
    """What a benchmark found."""

    name: str
    quick: bool
    goals: Sequence[Goal]
    figures: Mapping[str, Any]
    """What the page shows."""
    rounds: Any = None
    """Every round, for the person who doubts the figures. Not committed."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the peers."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Peer or part -> the reason why there are no figures."""

    def document(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "quick": self.quick,
            "machine": machine(),
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "command": command(),
            "seconds": round(time.monotonic() - STARTED),
            "versions": {"slipway.inference": version(), **self.versions},
            "goals": [{**asdict(goal), "met": goal.met, "verdict": goal.verdict} for goal in self.goals],
            "missing": dict(self.missing),
            "figures": self.figures,
            "rounds": self.rounds,
        }


def finish(outcome: Outcome) -> int:
    """Writes the file, prints the goals, and returns the exit status: 1 if a goal was not met."""
    path = (QUICK if outcome.quick else FOLDER) / f"{outcome.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome.document(), indent=1) + "\n")
    print()
    for goal in outcome.goals:
        print(f"  {goal.verdict:12}  {goal.text}")
    for name, reason in outcome.missing.items():
        print(f"  {'missing':12}  {name}: {reason}")
    print(f"written: {path.relative_to(ROOT)}")
    return int(not all(goal.met for goal in outcome.goals))


def number(value: float) -> str:
    """With three digits that count."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def machine() -> dict[str, str | int | float]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cpu": model[0].partition(": ")[2] if model else platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def command() -> str:
    """What was called, as one types it in the root of the checkout."""
    program = Path(sys.argv[0]).resolve()
    name = str(program.relative_to(ROOT)) if program.is_relative_to(ROOT) else program.name
    return shlex.join(["python", name, *sys.argv[1:]])


def version() -> str:
    """The version of the collection, and the commit."""
    lines = (ROOT / "galaxy.yml").read_text().splitlines()
    release = next(line.partition(":")[2].strip() for line in lines if line.startswith("version:"))
    commit = _git("rev-parse", "--short", "HEAD")
    changed = "+" if commit and _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{release} ({commit}{changed})" if commit else release


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
