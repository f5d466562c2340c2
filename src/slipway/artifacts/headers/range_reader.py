"""Range reader: reads the beginning of a local or remote file in pieces, up to a limit. Pure.

The parser of a header requests bytes, and the caller supplies them, from a disk or with a range request. Headers are
untrusted: a length is trusted only as far as there are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Read = Callable[[int, int], bytes]
"""``read(offset, size)``: at most ``size`` bytes from ``offset`` on; fewer, or none, at the end of the file."""
PIECE = 1 << 20
"""Bytes to request at a time, at least: a request costs more than its bytes."""
FARTHEST = 1 << 62
"""No file system goes further."""


class MalformedFileError(ValueError):
    """The file is not in the format of its name, or is truncated; the message says where."""


class TruncatedError(MalformedFileError):
    """The file ends before what its header promises. The message names the place."""


class UnreadableError(MalformedFileError):
    """The file may be sound, but it is too much, or too far away, to be read. The message has the reason."""


class RangeReader:
    """A position in a file, and the piece of it that was read last."""

    def __init__(self, read: Read, most: int) -> None:
        """``most``: bytes that are read in all."""
        self._read, self._remaining = read, most
        self._piece, self._start = b"", 0
        self.position = 0

    def take(self, size: int, what: str) -> bytes:
        """Returns the next ``size`` bytes. Raises MalformedFileError if the file has no more, or a header is too
        long."""
        begin = self.position - self._start
        if begin < 0 or begin + size > len(self._piece):
            self._fetch(size, what)
            begin = 0
        self.position += size
        return self._piece[begin : begin + size]

    def skip(self, size: int, what: str) -> None:
        """Go on behind ``size`` bytes, which are not read. That they are there shows when something is read behind.

        Raises MalformedFileError beyond any file's end.
        """
        self.position += size
        if self.position > FARTHEST:
            raise MalformedFileError(f"{what} would end beyond the largest possible file")

    def skip_texts(self, count: int, length: struct.Struct, what: str) -> None:
        """Go on behind ``count`` texts, of which each is told by its ``length`` before it. There may be a million."""
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
