"""The controller's own files, such as mounted keys, which may change while it runs."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1 << 20


def content(path: str) -> bytes:
    """Returns at most :data:`MOST_BYTES`; empty if the file is missing or cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return b""
