"""Lists the goals of the benchmarks that just ran, met or missed, and what is missing with the reason.

    summary.py [--quick] NAME...

The exit status is 1 where a goal was not met, or a benchmark wrote nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outcome import FOLDER, MET, QUICK, Goal

Document = Mapping[str, Any]


def lines(name: str, document: Document | None) -> Iterator[str]:
    """The lines of one benchmark. ``document``: what it wrote; None: nothing."""
    if document is None:
        yield f"  {'FAILED':12}  {name}: it did not finish: see its output"
        return
    for goal in map(goal_of, document["goals"]):
        yield f"  {goal.verdict:12}  {name}: {goal.text}"
    for what, reason in document["missing"].items():
        yield f"  {'missing':12}  {name}: {what}: {reason}"


def goal_of(row: Mapping[str, Any]) -> Goal:
    return Goal(**{field: row[field] for field in Goal.__dataclass_fields__})


def good(document: Document | None) -> bool:
    return document is not None and all(goal_of(row).verdict == MET for row in document["goals"])


def read(folder: Path, name: str) -> Document | None:
    file = folder / f"{name}.json"
    document: Document | None = json.loads(file.read_text()) if file.exists() else None
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description="Lists the goals of benchmarks.")
    parser.add_argument("--quick", action="store_true", help="of quick runs")
    parser.add_argument("names", nargs="+", metavar="NAME")
    options = parser.parse_args()
    documents = {name: read(QUICK if options.quick else FOLDER, name) for name in options.names}
    for name, document in documents.items():
        print("\n".join(lines(name, document)))
    bad = [name for name, document in documents.items() if not good(document)]
    print(f"\nNot all goals were met: {', '.join(bad)}" if bad else "\nAll goals were met.")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
