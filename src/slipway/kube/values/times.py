"""Times as Kubernetes writes them: RFC 3339 timestamps and Go durations."""

from __future__ import annotations

import re
from datetime import datetime

SECONDS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
WHOLE = re.compile(rf"\+?(?:0|(?:{PART.pattern})+)")
LONGEST = 64
"""Maximum length of a time in characters. Authors write times, so longer ones are rejected before parsing."""


def parse_duration(text: str) -> float:
    """Returns the seconds of a Go duration such as ``600s``, ``1h30m``, ``.5h`` or ``0``, except negative ones. Raises
    ValueError with the expected form."""
    if len(text) > LONGEST or not WHOLE.fullmatch(text):
        raise ValueError(f"{text[:LONGEST]!r} is not a duration such as 90s, 10m or 1h30m")
    return sum(float(number) * SECONDS[unit] for number, unit in PART.findall(text))


def unix_time(stamp: str) -> float:
    """Returns Unix seconds for ``2026-11-21T10:00:00Z``. Raises ValueError for text that is not RFC 3339."""
    return datetime.fromisoformat(stamp).timestamp()
