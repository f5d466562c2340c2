"""Times as Kubernetes writes them: RFC 3339 timestamps and Go durations. Pure."""

from __future__ import annotations

import re
from datetime import datetime

SECONDS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
WHOLE = re.compile(rf"\+?(?:0|(?:{PART.pattern})+)")
LONGEST = 64
"""Maximum length of a duration in characters. Authors write durations, so longer ones are rejected before they are
parsed."""


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as ``600s``, ``1h30m``, ``.5h`` or ``0``. Raise ValueError, with the
    expected form, for any other text and for negative durations."""
    if len(text) > LONGEST or not WHOLE.fullmatch(text):
        raise ValueError(f"{text[:LONGEST]!r} is not a duration such as 90s, 10m or 1h30m")
    return sum(float(number) * SECONDS[unit] for number, unit in PART.findall(text))


def unix_time(stamp: str) -> float:
    """Return the Unix seconds of a timestamp such as ``2026-11-21T10:00:00Z``. Raise ValueError for text that is not an
    ISO 8601 timestamp. A timestamp without a time zone counts as local time."""
    return datetime.fromisoformat(stamp).timestamp()
