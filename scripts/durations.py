#!/usr/bin/env python3
"""Prints how many seconds each test file takes, from pytest's JUnit XML reports.

usage: pytest -n 4 -m 'not full and not plays' --junitxml tests/output/units.xml tests/unit tests/gateway
       scripts/durations.py tests/output/units.xml > tests/durations.json

tests/conftest.py runs the slowest files first. The list is only a hint: it need not contain new files, and entries for
deleted files have no effect.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
LEAST = 1.0
"""The list omits files that take this many seconds or fewer."""


def file_of(module: str) -> str:
    """The file for a test's ``classname``, which ends in the name of the test class if there is one."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        path = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / path).is_file():
            return path.as_posix()
    return ""


def durations(reports: list[str]) -> dict[str, float]:
    seconds: Counter[str] = Counter()
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314  # pytest wrote it
            seconds[file_of(case.get("classname", ""))] += float(case.get("time", "0"))
    return {name: round(took, 1) for name, took in sorted(seconds.items()) if name and took > LEAST}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: scripts/durations.py REPORT.xml...")
    print(json.dumps(durations(sys.argv[1:]), indent=2))
