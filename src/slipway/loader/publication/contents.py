"""The content of blobs to upload, readable from any offset: a file of a source, or a tar archive of several files.

The same files always give the same archive: they are sorted by path, and have a fixed owner, time and mode.
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
"""Zero bytes that mark the end of a tar archive."""


CHECKED = 64 << 20
"""Maximum size in bytes of a file that is read again from the beginning to verify its checksum."""


class WrongError(Exception):
    """The bytes of a file do not match the source's digest. The message is the file's name."""


class Content(Protocol):
    @property
    def name(self) -> str:
        """Name of the content for messages."""

    @property
    def size(self) -> int:
        """Size of the content in bytes."""

    @property
    def promised(self) -> Digest | None:
        """Digest of the whole content that the source declares; None: the source declares none."""

    @property
    def key(self) -> str:
        """Text that identifies this version of the content; empty: the version is unknown."""

    def chunks(self, start: int) -> Iterator[bytes]:
        """Yield the bytes from offset ``start`` on. Retry transient errors. Raise LoadError or StoppedError or, for an
        archive, WrongError."""


class FileContent:
    def __init__(self, source: Source, entry: Entry, work: Work) -> None:
        """Raise LoadError if the source does not report the size of the file."""
        if entry.size is None:
            raise LoadError(f"the source does not report the size of {entry.path}")
        self.name, self.size, self.promised = entry.path, entry.size, entry.digest
        self.key = key(entry.path, entry.version, str(entry.size)) if entry.version else ""
        self._source, self._entry, self._work = source, entry, work

    def chunks(self, start: int) -> Iterator[bytes]:
        """Yield the bytes from offset ``start`` on; see ``Content.chunks``."""
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
        """Yield the bytes from offset ``start`` on, for a file in an archive, and verify the source's digest if there
        is one. Raise WrongError before the last bytes if the digest does not match.

        A file larger than ``CHECKED`` is verified only if ``start`` is 0.
        """
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
        """Yield the bytes from offset ``start`` on, over a single connection. Raise TransientError if the connection
        ends too early, or StoppedError."""
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
    """A tar archive of one or more files. Each file's digest is verified while the archive is read."""

    promised: Digest | None = None

    def __init__(self, name: str, files: Sequence[FileContent]) -> None:
        """Arrange the files in the archive, sorted by name. Raise LoadError for a name that a tar archive cannot
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
        """Yield the bytes from offset ``start`` on; see ``Content.chunks``."""
        for size, chunks in self._parts:
            if start < size:
                yield from chunks(start)
            start = max(0, start - size)


class Hashed:
    """A wrapper of a ``Content`` that hashes the bytes while they are sent. ``catch_up`` hashes the first bytes if
    another loader has sent them."""

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
        """Yield the bytes from offset ``start`` on, and hash those that directly follow the bytes hashed so far."""
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
        """Read and hash the bytes up to the offset ``end`` that are not hashed yet, and possibly a few more."""
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
        """SHA-256 of the bytes hashed so far, in a registry's format: ``sha256:HEX``."""
        return f"sha256:{self._sha256.hexdigest()}"

    def keeps_promise(self) -> bool:
        """Whether the bytes match the digest that the source declares. True if there is no digest, some bytes are not
        hashed, or the digest is neither SHA-256 nor the hash of a git blob."""
        promised = self._content.promised
        if promised is None or not self.whole:
            return True
        if self._git is not None:
            return self._git.hexdigest() == promised.value
        return promised.kind is not Kind.SHA256 or self._sha256.hexdigest() == promised.value


def key(*words: str) -> str:
    """Return a short hash that identifies a list of texts."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def promised_digest(content: Content) -> str:
    """Return the digest of the content as a blob, ``sha256:HEX``, if the source declares the SHA-256. Otherwise return
    an empty string."""
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
