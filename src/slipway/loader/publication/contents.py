"""Contents: the bytes of future blobs, readable from any position: a file of a source, or a tar of several files.

Equal files give equal archives: sorted by path, with the same owner, time and mode.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from slipway.artifacts.documents.modelpack import MODE
from slipway.loader.download.stage import Work
from slipway.loader.download.transfer import Retrier
from slipway.loader.transport.digests import Digest, Kind, hasher
from slipway.loader.transport.errors import LoadError, StoppedError, TransientError
from slipway.loader.transport.source import CHUNK, Entry, Source

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
"""End of an archive."""


CHECKED = 64 << 20
"""Maximum size of a file that is read again from its beginning to verify its checksum."""


class WrongError(Exception):
    """A file does not match its source's digest. The message is the file's name."""


class Content(Protocol):
    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def promised(self) -> Digest | None:
        """The source's digest of all bytes, if any."""

    @property
    def key(self) -> str:
        """Identifies this version of the content, whatever its name; empty: it cannot be identified."""

    def chunks(self, start: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` on. Retries transient errors. Raises LoadError or StoppedError."""


class FileContent:
    def __init__(self, source: Source, entry: Entry, work: Work) -> None:
        """Raises LoadError if the source does not report the file's size."""
        if entry.size is None:
            raise LoadError(f"the source does not report the size of {entry.path}")
        self.name, self.size, self.promised = entry.path, entry.size, entry.digest
        self.key = key(entry.path, entry.version, str(entry.size)) if entry.version else ""
        self._source, self._entry, self._work = source, entry, work

    def chunks(self, start: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` on; see Content."""
        retrier = Retrier(self._work.policy, self._work.stop, self._work.meter)
        have = start
        while have < self.size:
            try:
                for chunk in self._read(have):
                    have += len(chunk)
                    retrier.progressed()
                    yield chunk
            except TransientError as error:
                retrier.failed(self.name, error)

    def checked(self, start: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` on, for a file that is packed into an archive, and verifies the source's
        digest unless ``start`` is inside a file larger than CHECKED. Raises WrongError before the last bytes if the
        digest does not match."""
        if start and self.size > CHECKED:
            yield from self.chunks(start)
            return
        checksum, at = hasher(self.promised, self.size), 0
        for chunk in self.chunks(0):
            checksum.update(chunk)
            end = at + len(chunk)
            if end == self.size and self.promised is not None and checksum.hexdigest() != self.promised.value:
                raise WrongError(self.name)
            if end > start:
                yield chunk[max(0, start - at) :]
            at = end

    def _read(self, start: int) -> Iterator[bytes]:
        """Yields the bytes of one connection."""
        have = start
        with self._source.read(self._entry, start if self._entry.version else 0) as body:
            if body.start not in (0, start):
                raise TransientError(f"the server sent bytes from {body.start} instead of {start}")
            skip = start - body.start
            while chunk := body.read(CHUNK):
                if self._work.stop.is_set():
                    raise StoppedError
                if skip:
                    chunk, skip = chunk[skip:], max(0, skip - len(chunk))
                have += len(chunk)
                if have > self.size:
                    raise TransientError("the server sent more bytes than it announced")
                if chunk:
                    yield chunk
        if have < self.size:
            raise TransientError(f"the connection ended after {have} of {self.size} bytes")


class TarContent:
    """An archive of files."""

    promised: Digest | None = None

    def __init__(self, name: str, files: Sequence[FileContent]) -> None:
        """Arranges the files in an archive, sorted by name. Raises LoadError for a name that an archive cannot
        store."""
        self.name = name
        self._parts: list[tuple[int, Callable[[int], Iterator[bytes]]]] = []
        ordered = sorted(files, key=lambda file: file.name)
        for file in ordered:
            self._parts.append(_constant(_header(file)))
            self._parts.append((file.size, file.checked))
            self._parts.append(_constant(bytes(-file.size % BLOCK)))
        self._parts.append(_constant(END))
        self.size = sum(size for size, _chunks in self._parts)
        self.key = key("tar", *(file.key for file in ordered)) if all(file.key for file in ordered) else ""

    def chunks(self, start: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` on; see Content."""
        for size, chunks in self._parts:
            if start < size:
                yield from chunks(start)
            start = max(0, start - size)


class Hashed:
    """Hashes the bytes of a content while they are sent. Another loader may have sent the first ones."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.position = 0
        """Number of bytes hashed so far."""
        self._sha256 = hashlib.sha256()
        promised = content.promised
        self._git = None
        if promised is not None and promised.kind is Kind.GIT:
            self._git = hashlib.sha1(b"blob %d\0" % content.size, usedforsecurity=False)

    def chunks(self, start: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` on, and hashes those that directly follow the hashed ones."""
        at = start
        for chunk in self._content.chunks(start):
            end = at + len(chunk)
            if at <= self.position < end:
                fresh = chunk[self.position - at :]
                self._sha256.update(fresh)
                if self._git is not None:
                    self._git.update(fresh)
                self.position = end
            at = end
            yield chunk

    def catch_up(self, end: int) -> None:
        """Reads and hashes the remaining bytes up to ``end``."""
        if self.position < end:
            for _chunk in self.chunks(self.position):
                if self.position >= end:
                    break

    @property
    def whole(self) -> bool:
        """Whether all bytes have been hashed."""
        return self.position == self._content.size

    @property
    def digest(self) -> str:
        """The digest in a registry's format."""
        return f"sha256:{self._sha256.hexdigest()}"

    def keeps_promise(self) -> bool:
        """Whether the bytes match the source's digest, as far as that can be checked."""
        promised = self._content.promised
        if promised is None or not self.whole:
            return True
        if self._git is not None:
            return self._git.hexdigest() == promised.value
        return promised.kind is not Kind.SHA256 or self._sha256.hexdigest() == promised.value


def key(*words: str) -> str:
    """Returns a short text that identifies these words."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def promised_digest(content: Content) -> str:
    """Returns the blob's digest if the source declares it; otherwise an empty text."""
    promised = content.promised
    return f"sha256:{promised.value}" if promised is not None and promised.kind is Kind.SHA256 else ""


def _constant(data: bytes) -> tuple[int, Callable[[int], Iterator[bytes]]]:
    return len(data), lambda start: iter([data[start:]])


def _header(file: FileContent) -> bytes:
    info = tarfile.TarInfo(file.name)
    info.size, info.mode = file.size, MODE
    try:
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    except (ValueError, UnicodeError) as error:
        raise LoadError(f"{file.name!r} is not a valid name for a file in an archive: rename it") from error
