"""Local files: ``file:///PATH`` of a file or directory, such as a mounted claim or a path on the node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from slipway.artifacts.files.soundness import parts_of
from slipway.loader.disk.folder import MARKER, NOTES
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import Body, Entry, Listing, Retry, Source, bounded

SCHEME = "file://"


class LocalBody:
    verifiable = True

    def __init__(self, stream: BinaryIO, start: int) -> None:
        self.start = start
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return the next bytes of the file, at most ``size``. An empty result means that the file has ended."""
        return self._stream.read(size)


class LocalFiles:
    def __init__(self, path: Path) -> None:
        self._path = path

    def listing(self, retry: Retry) -> Listing:  # noqa: ARG002 - a disk needs no retries
        """List the file, with the existing other parts if it is a part of a split file, or all files of the directory
        except the loader's marker and report. Raise LoadError if they cannot be read."""
        try:
            return Listing("", bounded(self._entries(), str(self._path)))
        except OSError as error:
            raise unreadable(self._path, error) from error

    @contextmanager
    def read(self, entry: Entry, start: int) -> Iterator[Body]:
        """Open a file at offset ``start``. Raise LoadError if the file has changed since the listing, or cannot be
        read."""
        try:
            with open(entry.locator, "rb", buffering=0) as stream:
                if _version(os.fstat(stream.fileno())) != entry.version:
                    raise LoadError(f"{entry.locator} changed while it was read: load it once it is complete")
                stream.seek(start)
                yield LocalBody(stream, start)
        except OSError as error:
            raise unreadable(Path(entry.locator), error) from error

    def _entries(self) -> Iterator[Entry]:
        if not self._path.is_dir():
            for name in parts_of(self._path.name) or (self._path.name,):
                part = self._path.with_name(name)
                if part == self._path or part.is_file():
                    yield _entry(part, name)
            return
        for folder, folders, files in os.walk(self._path, onerror=_raised):
            folders.sort()
            for name in sorted(files):
                path = Path(folder, name)
                # A folder that a loader filled may itself be a source.
                if path.is_file() and not (name in (MARKER, NOTES) and path.parent == self._path):
                    yield _entry(path, path.relative_to(self._path).as_posix())


def unreadable(path: Path, error: OSError) -> LoadError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return FaultError("SourceNotFound", f"{path} does not exist")
    return LoadError(f"cannot read {path}: {(error.strerror or type(error).__name__).lower()}")


def _raised(error: OSError) -> None:
    raise error


def _entry(path: Path, name: str) -> Entry:
    status = path.stat()
    return Entry(name, str(path), status.st_size, None, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def open_source(url: str, _env: Mapping[str, str]) -> Source:
    """Return the source of a ``file://`` URL."""
    return LocalFiles(Path(url.removeprefix(SCHEME)))
