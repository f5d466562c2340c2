"""Files in the controller's container, such as mounted keys, which may change while the controller runs."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1 << 20


def content(path: str) -> bytes:
    """Return the first :data:`MOST_BYTES` of a file, or empty bytes if the file is missing or cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return b""
