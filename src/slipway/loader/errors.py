"""Why a load ends early. Every message is one that a person may read: no secret, no signed address is ever in it."""

from __future__ import annotations


class LoadError(Exception):
    """The load ends. The message says the reason and what to do about it."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing
        """Whether the same command may well succeed later without anybody's help."""


class PassingError(Exception):
    """Something that another attempt may overcome: a lost connection, a busy server."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the server asks to be left alone."""


class StoppedError(Exception):
    """Whoever started the load wants it to end; the next one goes on where it was."""
