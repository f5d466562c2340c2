"""Range reader: reads the beginning of a local or remote file in pieces, up to a limit. Pure.

A header's parser requests bytes, and the caller supplies them, from a disk or with a range request. Headers are
untrusted: a length is accepted only if the bytes actually exist.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Read = Callable[[int, int], bytes]
"""``read(offset, size)`` returns ``size`` bytes from ``offset`` on, or fewer at the end of the file."""
PIECE = 1 << 20
"""Minimum number of bytes to request, because a request costs more than its bytes."""
FARTHEST = 1 << 62
"""An offset beyond the limit of every file system."""


class MalformedFileError(ValueError):
    """The file is truncated, or does not have the format that its name implies. The message has the reason."""


class TruncatedError(MalformedFileError):
    """The file ends earlier than its header declares. The message has the reason."""


class UnreadableError(MalformedFileError):
    """The file may be valid, but its header cannot be read, for example because it is too long. The message has the
    reason."""


class RangeReader:
    """A reader with a position in a file. It caches the last piece that it read."""

    def __init__(self, read: Read, most: int) -> None:
        """``most``: maximum total number of bytes to read."""
        self._read, self._remaining = read, most
        self._piece, self._start = b"", 0
        self.position = 0

    def take(self, size: int, what: str) -> bytes:
        """Return the next ``size`` bytes, which error messages describe as ``what``. Raise TruncatedError if the file
        ends earlier, and UnreadableError if the header is too long."""
        begin = self.position - self._start
        if begin < 0 or begin + size > len(self._piece):
            self._fetch(size, what)
            begin = 0
        self.position += size
        return self._piece[begin : begin + size]

    def skip(self, size: int, what: str) -> None:
        """Skip ``size`` bytes without reading them. Only the next read detects whether they exist.

        Raise MalformedFileError for a position that no file can have.
        """
        self.position += size
        if self.position > FARTHEST:
            raise MalformedFileError(f"{what} would end beyond the largest possible file")

    def skip_texts(self, count: int, length: struct.Struct, what: str) -> None:
        """Skip ``count`` texts, each preceded by its length in the format ``length``. A header may have a million."""
        piece, begin, size = self._piece, self.position - self._start, length.size
        for _unused in range(count):
            if not 0 <= begin <= len(piece) - size:
                self.skip(begin + self._start - self.position, what)
                self._fetch(size, what)
                piece, begin = self._piece, 0
            begin += size + length.unpack_from(piece, begin)[0]
        self.skip(begin + self._start - self.position, what)

    def _fetch(self, size: int, what: str) -> None:
        if size > self._remaining:
            raise UnreadableError(f"{what} is longer than a header can be")
        length = min(max(size, PIECE), self._remaining)
        piece = self._read(self.position, length)[:length]
        self._remaining -= len(piece)
        self._piece, self._start = piece, self.position
        if len(piece) < size:
            raise TruncatedError(f"the file ends in {what}")
