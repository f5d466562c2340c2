"""Range reader: reads the beginning of a local or remote file in pieces, up to a limit. Pure.

A header's parser requests bytes, and the caller supplies them, from a disk or with a range request. Headers are
untrusted: a length is accepted only if the bytes actually exist.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Read = Callable[[int, int], bytes]
"""``read(offset, size)`` returns up to ``size`` bytes from ``offset`` on; fewer, or none, at the end of the file."""
PIECE = 1 << 20
"""Minimum bytes per request, because a request costs more than its bytes."""
FARTHEST = 1 << 62
"""An offset beyond the limit of every file system."""


class MalformedFileError(ValueError):
    """The file is not in the format of its name, or is truncated; the message has the position."""


class TruncatedError(MalformedFileError):
    """The file ends earlier than its header declares. The message names the place."""


class UnreadableError(MalformedFileError):
    """The file may be valid, but is too large, or too far away, to be read. The message has the reason."""


class RangeReader:
    """A position in a file, and the last piece read."""

    def __init__(self, read: Read, most: int) -> None:
        """``most``: limit for the total number of bytes read."""
        self._read, self._remaining = read, most
        self._piece, self._start = b"", 0
        self.position = 0

    def take(self, size: int, what: str) -> bytes:
        """Returns the next ``size`` bytes. Raises MalformedFileError if the file ends earlier or the header is too
        long."""
        begin = self.position - self._start
        if begin < 0 or begin + size > len(self._piece):
            self._fetch(size, what)
            begin = 0
        self.position += size
        return self._piece[begin : begin + size]

    def skip(self, size: int, what: str) -> None:
        """Skips ``size`` bytes without reading them. Whether they exist is detected by the next read after them.

        Raises MalformedFileError for a position that no file can have.
        """
        self.position += size
        if self.position > FARTHEST:
            raise MalformedFileError(f"{what} would end beyond the largest possible file")

    def skip_texts(self, count: int, length: struct.Struct, what: str) -> None:
        """Skips ``count`` texts, each preceded by its length in the format ``length``. There may be a million."""
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
