"""The record of the streams, in the form of a benchmark's result."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from .clients import LONG, Clients
from .disturbances import Disturbance

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/output/streams.json"


def figures(clients: Clients, disturbances: list[Disturbance]) -> dict[str, Any]:
    """Counts of streams, in total and by kind of disturbance. A stream counts for each kind that it lived through."""
    kinds = dict.fromkeys(one.kind for one in disturbances)
    streams = clients.ended
    return {
        "clients": clients.number,
        "long_seconds": LONG,
        "streams": len(streams),
        "long": len(clients.long),
        "events": sum(stream.events for stream in streams),
        "broken": len(clients.broken),
        "median_seconds": round(_median([stream.seconds for stream in streams])),
        "longest_seconds": round(max((stream.seconds for stream in streams), default=0)),
        "disturbances": {kind: _of_kind(clients, [one for one in disturbances if one.kind == kind]) for kind in kinds},
    }


def _of_kind(clients: Clients, disturbances: list[Disturbance]) -> dict[str, Any]:
    streams = {id(one): one for each in disturbances for one in clients.during(each.began, each.ended)}
    return {
        "number": len(disturbances),
        "streams": len(streams),
        "streams_of_ended_pods": sum(one.held for one in disturbances),
        "broken": sum(bool(stream.ended) and not stream.whole for stream in streams.values()),
        "seconds": [round(one.ended - one.began) for one in disturbances],
    }


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def write(counts: dict[str, Any]) -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    goal = {"name": "streams that are broken", "value": counts["broken"], "bound": 0, "met": not counts["broken"]}
    document = {
        "benchmark": "streams",
        "quick": False,
        "machine": _machine(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "command": "scripts/lanes.py run streams",
        "versions": {"slipway.inference": _version()},
        "goals": [goal],
        "missing": {},
        "figures": counts,
    }
    FILE.write_text(json.dumps(document, indent=1) + "\n")


def _machine() -> dict[str, str | int | float]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cpu": model[0].partition(": ")[2] if model else platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _version() -> str:
    """The version of the collection, and the commit."""
    lines = (ROOT / "galaxy.yml").read_text().splitlines()
    release = next(line.partition(":")[2].strip() for line in lines if line.startswith("version:"))
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{release} ({commit})" if commit else release
