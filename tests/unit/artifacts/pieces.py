"""What the tests of headers share: files of bytes, and how much was read of them."""

from __future__ import annotations


class Bytes:
    """A file in memory that counts what is asked of it; with ``size`` larger than its content zeros follow."""

    def __init__(self, content: bytes, size: int = 0) -> None:
        self._content, self._size = content, max(size, len(content))
        self.taken = 0

    def __call__(self, offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size > 0
        length = max(min(offset + size, self._size) - offset, 0)
        self.taken += length
        return self._content[offset : offset + length].ljust(length, b"\0")
