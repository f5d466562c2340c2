"""Why a load ends early. Messages are for people: none contains a secret or a signed address."""

from __future__ import annotations


class LoadError(Exception):
    """The load ends. The message has the reason and the fix."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        """Whether the same command may succeed later without any change."""


class TransientError(Exception):
    """A failure that another attempt may overcome: a lost connection, a busy server."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait, as the server asked."""


class StoppedError(Exception):
    """The load was stopped."""
