"""Lane records: the result of a lane, and the inputs that it used.

A record belongs to the files that the lane's result depends on, not to a commit. It is stale if one of them changes.
Every run writes its record to tests/output/lanes. A run from a clean checkout also writes it to tests/lanes, one file
per lane, to be committed with the change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .table import Lane, matches


@dataclass(frozen=True)
class Record:
    """The result of a lane, and the inputs that it used."""

    lane: str
    inputs: str
    commit: str
    outcome: str
    """``passed``, ``failed``, or ``not run`` if the lane could not start: this says nothing about its tests."""
    passed: int
    failed: list[str]
    skipped: int
    seconds: int
    load: float
    """The one-minute load average at the start of the lane."""
    cores: int
    at: str

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.lane}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_record(folder: Path, lane: str) -> Record | None:
    """The record of a lane; None if there is none or this version cannot read it."""
    try:
        return Record(**json.loads((folder / f"{lane}.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def inputs_hash(lane: Lane, objects: Mapping[str, str]) -> str:
    """``sha256:`` hash of the lane's files and its table entry. ``objects``: path -> git blob hash."""
    digest = hashlib.sha256(json.dumps([lane.run, lane.needs, lane.parts]).encode())
    for path in sorted(objects):
        if matches(path, [*lane.inputs, *lane.tests]):
            digest.update(f"{path}\0{objects[path]}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def state(record: Record | None, inputs: str) -> str:
    """``missing``, ``stale``, ``green`` or ``red``."""
    if record is None:
        return "missing"
    if record.inputs != inputs:
        return "stale"
    return "green" if record.outcome == "passed" else "red"
