"""Ranges: reads the beginning of a file piece by piece, wherever the file is, and never more than a bound. Pure.

What parses a header says which bytes it wants next; whoever calls it brings them, from a disk or by a range request. A
header is what a stranger wrote: lengths in it are believed only as far as there are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Read = Callable[[int, int], bytes]
"""``read(offset, size)``: at most ``size`` bytes from ``offset`` on; fewer, or none, at the end of the file."""
PIECE = 1 << 20
"""Bytes that are asked for at a time, at least: a request costs more than what it brings."""
FARTHEST = 1 << 62
"""No file system goes further."""


class Malformed(ValueError):
    """The file is not what its name says, or is cut off; the message says where."""


class Window:
    """A position in a file, and the piece of it that was read last."""

    def __init__(self, read: Read, most: int) -> None:
        """``most``: bytes that are read in all."""
        self._read, self._left = read, most
        self._piece, self._start = b"", 0
        self.position = 0

    def take(self, size: int, what: str) -> bytes:
        """The next ``size`` bytes. Raises Malformed where the file has no more, or a header is longer than any is."""
        begin = self.position - self._start
        if begin < 0 or begin + size > len(self._piece):
            self._fetch(size, what)
            begin = 0
        self.position += size
        return self._piece[begin : begin + size]

    def skip(self, size: int, what: str) -> None:
        """Go on behind ``size`` bytes, which are not read. That they are there shows when something is read behind."""
        self.position += size
        if self.position > FARTHEST:
            raise Malformed(f"{what} would end beyond the end of any file")

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
        if size > self._left:
            raise Malformed(f"{what} is longer than any header is")
        wanted = min(max(size, PIECE), self._left)
        piece = self._read(self.position, wanted)[:wanted]
        self._left -= len(piece)
        self._piece, self._start = piece, self.position
        if len(piece) < size:
            raise Malformed(f"the file ends in {what}")
