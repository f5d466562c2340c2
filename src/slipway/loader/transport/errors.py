"""Errors of a load. Their messages are for people, and contain neither secrets nor signed URLs."""

from __future__ import annotations


class LoadError(Exception):
    """A failure that ends the load. The message contains the reason and the fix."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        """Whether the same command may succeed later without any change."""


class TransientError(Exception):
    """A failure that a retry may resolve, such as a lost connection or a busy server."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait, as requested by the server; 0: no request."""


class StoppedError(Exception):
    """The load was stopped, for example by a signal."""
