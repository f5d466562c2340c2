"""The termination message of a container, which Kubernetes stores in the pod's status."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_MESSAGE_BYTES = 4000
"""Maximum size of a termination message in bytes. Kubernetes accepts 4096."""


def write_termination_message(message: str) -> None:
    """Write ``message`` as one line to standard error and, in a container, as its termination message, of which at most
    ``TERMINATION_MESSAGE_BYTES`` are kept. Ignore errors of the file. Kubernetes keeps this one file writable on a
    read-only file system."""
    text = " ".join(message.split())
    sys.stderr.write(f"slipway loader: {text}\n")
    sys.stderr.flush()
    with suppress(OSError):
        if TERMINATION_LOG.exists():
            TERMINATION_LOG.write_bytes(text.encode("utf-8", "replace")[:TERMINATION_MESSAGE_BYTES])
