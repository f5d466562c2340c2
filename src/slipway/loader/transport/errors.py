"""Errors that end a load. Their messages are for people and contain neither secrets nor signed URLs."""

from __future__ import annotations


class LoadError(Exception):
    """Ends the load. The message has the reason and the fix."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        """Whether the same command may succeed later without any change."""


class TransientError(Exception):
    """A failure that may disappear with another attempt: a lost connection, a busy server."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait, as the server requested."""


class StoppedError(Exception):
    """The load was stopped."""
