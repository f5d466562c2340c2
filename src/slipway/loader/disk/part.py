"""Part: the partial content of one file, in a file that only this process writes.

A process that loses its lock, or never had one, must not damage the file of another process. So a part has a unique
name, was created by the process that writes it, is never truncated in place, and gets the file's name only at its full
size.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import CHUNK

WINDOW = 16 << 20
"""Number of bytes after which the disk starts writing them."""


class Part:
    """An open part file. It tracks its own position, so nothing is appended after another process's bytes."""

    def __init__(self, path: Path) -> None:
        """Continues the file at ``path`` if this process took it over, otherwise creates it. Raises OSError."""
        self._path = path
        try:
            self._stream: IO[bytes] = path.open("r+b", buffering=0)
        except FileNotFoundError:
            self._stream = self._create_file()
        self._size = os.fstat(self._stream.fileno()).st_size
        self._pushed = self._size

    def __enter__(self) -> Part:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()

    @property
    def size(self) -> int:
        """Number of bytes that existed or were written here."""
        return self._size

    def read(self, offset: int) -> bytes:
        """Returns the next bytes of the file. Raises LoadError if another process has truncated it."""
        chunk = os.pread(self._stream.fileno(), min(CHUNK, self._size - offset), offset)
        if not chunk:
            raise replaced_error(self._path)
        return chunk

    def write(self, data: bytes) -> None:
        """Appends ``data``. Raises OSError."""
        self._stream.seek(self._size)
        written = self._stream.write(data)
        while written < len(data):
            written += self._stream.write(data[written:])
        self._size += len(data)
        if self._size - self._pushed >= WINDOW:
            # Start writing to the disk now, which makes the wait at the end much shorter.
            with suppress(OSError):
                os.posix_fadvise(self._stream.fileno(), self._pushed, self._size - self._pushed, os.POSIX_FADV_DONTNEED)
            self._pushed = self._size

    def restart(self) -> None:
        """Starts over with a new, empty file, because another process may have taken over the old one."""
        self._stream.close()
        self._path.unlink(missing_ok=True)
        self._stream, self._size = self._create_file(), 0
        self._pushed = 0

    def is_complete(self, size: int | None) -> bool:
        """Whether the disk has exactly the bytes written here, and ``size`` of them if the size is known."""
        os.fsync(self._stream.fileno())
        return os.fstat(self._stream.fileno()).st_size == self._size and size in (None, self._size)

    def become(self, final: Path) -> None:
        """Renames the part to its final name. Raises LoadError if another process has removed it."""
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            ours = os.path.samestat(self._path.lstat(), os.fstat(self._stream.fileno()))
            if ours:
                self._path.replace(final)
        except FileNotFoundError:
            ours = False
        if not ours:
            raise replaced_error(final)

    def _create_file(self) -> IO[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._path.open("x+b", buffering=0)


def replaced_error(path: Path) -> LoadError:
    """Returns the error if another loader replaced a file that this one was writing."""
    return LoadError(
        f"another loader changed {path} meanwhile: retry; if two loaders share a volume without file locks,"
        " let one of them finish first",
        transient=True,
    )
