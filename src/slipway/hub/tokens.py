"""Tokens for gated repositories, from a file such as a mounted Secret with ``NAME TOKEN`` on each line.

The file is reloaded when it changes, so that tokens can be replaced without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

log = logging.getLogger(__name__)


class InvalidTokensError(Exception):
    """An error for a line of the tokens file that is not a unique name and a token. The message does not contain the
    token."""


def parse(text: str) -> dict[str, bytes]:
    """Return the SHA-256 of each token, by name. Empty lines and lines that start with ``#`` are skipped.

    Raise InvalidTokensError for any other line that is not a unique name and a token.
    """
    tokens: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] in tokens:
            raise InvalidTokensError(f"line {number}: expected a unique name and a token")
        tokens[words[0]] = _hash(words[1])
    return tokens


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Tokens:
    """The tokens of a file. The constructor raises InvalidTokensError, UnicodeDecodeError or OSError if the file is
    unusable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._read_stamp()
        self._tokens = parse(path.read_text(encoding="utf-8"))

    def user(self, token: str) -> str | None:
        """Return the name of a token's owner, or None for an invalid token. The duration of the call does not depend on
        the token."""
        self._refresh()
        digest, owner = _hash(token), None
        for name, expected in self._tokens.items():
            if hmac.compare_digest(digest, expected):
                owner = name
        return owner

    def _read_stamp(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _refresh(self) -> None:
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return
            self._tokens = parse(self._path.read_text(encoding="utf-8"))
            self._stamp = stamp
        except (OSError, UnicodeDecodeError, InvalidTokensError) as error:
            log.warning("Could not reload %s, keeping the previous tokens: %s", self._path, error)
