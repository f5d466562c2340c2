"""The bytes of one file on their way, in a file that this process alone writes.

A process that loses its lock, or never had one, must not spoil what another one brings. So a part has a name of its own
and was made by whoever writes it, is never cut short in place, and takes the file's name only at its full size.
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
"""Bytes after which the disk is told of them."""


class Part:
    """An open part file. It keeps its own positions: nothing is appended behind another process's bytes."""

    def __init__(self, path: Path) -> None:
        """Goes on with the file at ``path`` where this process took it over, and makes it otherwise. Raises OSError."""
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
        """Bytes that are there already, or that were written here."""
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
            # Has the disk begin now: the wait for all of it at the end is so much shorter.
            with suppress(OSError):
                os.posix_fadvise(self._stream.fileno(), self._pushed, self._size - self._pushed, os.POSIX_FADV_DONTNEED)
            self._pushed = self._size

    def restart(self) -> None:
        """Continues with an empty file: a new one, because another process may have taken over the old one."""
        self._stream.close()
        self._path.unlink(missing_ok=True)
        self._stream, self._size = self._create_file(), 0
        self._pushed = 0

    def is_whole(self, size: int | None) -> bool:
        """Whether exactly what was written here is on the disk, which is ``size`` bytes where that was promised."""
        os.fsync(self._stream.fileno())
        return os.fstat(self._stream.fileno()).st_size == self._size and size in (None, self._size)

    def become(self, final: Path) -> None:
        """Renames it to its final name. Raises LoadError if another process has removed it."""
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
