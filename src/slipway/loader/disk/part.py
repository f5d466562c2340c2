"""A partial file: the bytes of one file that have been downloaded so far, written by this process only.

A process that loses its lock, or never had one, must not damage the file of another process. Therefore a partial file
has a unique name, is never truncated in place, and is renamed to its final name only at its full size.
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
"""Number of new bytes after which the kernel starts to write them to the disk."""


class Part:
    """An open partial file. It tracks its own position, so it never appends to bytes that another process wrote."""

    def __init__(self, path: Path) -> None:
        """Open the file at ``path`` to continue it, or create it if it does not exist. Raise OSError."""
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
        """Number of bytes in the file, without bytes that another process has written since this one opened it."""
        return self._size

    def read(self, offset: int) -> bytes:
        """Return bytes of the file from ``offset`` on, at most ``CHUNK``. ``offset`` must be less than ``size``. Raise
        LoadError if another process has truncated the file."""
        chunk = os.pread(self._stream.fileno(), min(CHUNK, self._size - offset), offset)
        if not chunk:
            raise replaced_error(self._path)
        return chunk

    def write(self, data: bytes) -> None:
        """Append ``data`` to the file. Raise OSError."""
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
        """Start over with a new, empty file. The old file is not truncated, because another process may have taken it
        over."""
        self._stream.close()
        self._path.unlink(missing_ok=True)
        self._stream, self._size = self._create_file(), 0
        self._pushed = 0

    def is_complete(self, size: int | None) -> bool:
        """Flush the file to the disk. Return whether the file has exactly the bytes that this process knows of and, if
        ``size`` is set, this size in bytes."""
        os.fsync(self._stream.fileno())
        return os.fstat(self._stream.fileno()).st_size == self._size and size in (None, self._size)

    def become(self, final: Path) -> None:
        """Rename the file to its final name. Raise LoadError if another process has removed or replaced the file."""
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
    """Return the error for a file that another loader replaced while this process was writing it."""
    return LoadError(
        f"another loader changed {path} meanwhile: retry; if two loaders share a volume without file locks,"
        " let one of them finish first",
        transient=True,
    )
