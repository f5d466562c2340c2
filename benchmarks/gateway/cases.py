"""What is measured: the grid of request sizes, streams and rates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import bodies
from generator import Load

SIZES = {"1 KB": 1 << 10, "32 KB": 32 << 10, "220 KB": 220 << 10, "1 MB": 1 << 20}
RATES = (500, 1000, 2000)
IDLE_GAP_US = 900_000_000


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    """``closed``, ``rate``, ``half`` (of the peer's own capacity), ``events``, ``idle`` or ``memory``."""
    load: Load
    heavy: bool = False
    """Left out for peers that are slow."""


def cases(folder: Path, *, quick: bool) -> list[Case]:
    """The grid; bodies are written into ``folder``. ``closed`` of 1 KB comes first: ``half`` is reckoned from it."""
    folder.mkdir(parents=True, exist_ok=True)
    grid = []
    for label, size in SIZES.items():
        for place in ("first", "last"):
            if quick and (place == "last" or label in ("32 KB", "220 KB")):
                continue
            body = _written(folder / f"{size}-{place}.json", bodies.chat(size, model_first=place == "first"))
            connections = 32 if size <= 32 << 10 else 16
            grid.append(Case(f"{label}, model {place}", "closed", Load(body, connections), heavy=size > 1 << 10))
    small = folder / f"{SIZES['1 KB']}-first.json"
    large = folder / f"{SIZES['1 MB']}-first.json"
    events = _written(folder / "events.json", bodies.stream(200, 5000))
    idle = _written(folder / "idle.json", bodies.stream(2, IDLE_GAP_US))
    grid.append(Case("half load, 1 KB", "half", Load(small, 256)))
    if not quick:
        grid += [Case(f"{rate}/s, 1 KB", "rate", Load(small, 256, rate)) for rate in RATES]
        grid.append(Case("50 streams of 200 events/s", "events", Load(events, 50, events=True), heavy=True))
        grid.append(Case("10 idle streams", "idle", Load(idle, 10, idle=True)))
        grid.append(Case("1,000 idle streams", "idle", Load(idle, 1000, idle=True), heavy=True))
    grid.append(Case("64 bodies of 1 MB at once", "memory", Load(large, 64), heavy=True))
    return grid


def _written(path: Path, body: bytes) -> Path:
    path.write_bytes(body)
    return path
