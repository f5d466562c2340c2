"""The model in a file that a user uploaded. The registry stores the file as several blobs, called pieces.

The upload's session is a manifest that lists the pieces in order. The file is either a GGUF model, or a zip or tar
archive with the files of a model. Archives are not unpacked to a disk. The small files of a compressed tar archive are
kept in memory, because they are read in another order; large files are read in the archive's order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from zipfile import ZipFile

import msgspec

from slipway.artifacts.documents import modelpack, session
from slipway.artifacts.documents.modelpack import Descriptor
from slipway.artifacts.locations.paths import fault_inside
from slipway.decoding import DecodingError
from slipway.loader.sources import archives
from slipway.loader.sources.archives import ArchiveError, Forward, Kind, Member
from slipway.loader.transport.errors import TransientError
from slipway.loader.transport.registry import Registry
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import CHUNK, Body, Entry, Listing, Retry

KEPT, SMALL = 48 << 20, 16 << 20
"""Maximum total size in bytes of the files of a compressed archive that are kept in memory, and maximum size of one of
them."""


class Session(msgspec.Struct, frozen=True):
    digest: str
    """Digest of the session's manifest."""
    name: str
    """Name of the uploaded file; empty: it is unknown."""
    pieces: tuple[Descriptor, ...]

    @property
    def size(self) -> int:
        """Size of the uploaded file in bytes."""
        return sum(piece.size for piece in self.pieces)


def session_of(registry: Registry, retry: Retry) -> Session | None:
    """Return the session of the upload in a repository, or None if there is no upload. Raise LoadError if the upload is
    incomplete or invalid."""
    manifest = retry(lambda: registry.manifest(session.TAG))
    if manifest is None:
        return None
    try:
        whole = modelpack.parse_manifest(manifest.content)
    except DecodingError as error:
        raise FaultError("InvalidFileSet", f"the upload's session cannot be read: {error}") from error
    upload = Session(manifest.digest, whole.annotations.get(session.FILE_NAME, ""), whole.layers)
    notes = whole.annotations
    complete = notes.get(session.COMPLETE) == "true" and str(upload.size) == notes.get(session.LENGTH)
    if whole.artifact_type != session.ARTIFACT_TYPE or not complete:
        raise FaultError("InvalidFileSet", "the upload is not complete: send the rest of it")
    return upload


class Pieces:
    """The uploaded file as a stream of bytes. It implements ``archives.Bytes``."""

    def __init__(self, registry: Registry, pieces: Sequence[Descriptor]) -> None:
        self._registry, self._pieces = registry, pieces
        self.size = sum(piece.size for piece in pieces)

    def stream(self, start: int) -> Iterator[bytes]:
        """Yield the bytes from offset ``start`` on. Raise LoadError or TransientError."""
        for piece in self._pieces:
            if start >= piece.size:
                start -= piece.size
                continue
            remaining = piece.size - start
            with self._registry.blob(piece.digest, start) as body:
                skip = start - body.start
                while remaining and (chunk := body.read(CHUNK)):
                    if skip:
                        chunk, skip = chunk[skip:], max(0, skip - len(chunk))
                    remaining -= len(chunk)
                    if chunk:
                        yield chunk
            if remaining:
                raise TransientError("the connection ended in the middle of a piece")
            start = 0


class Upload:
    """The source of the files in an uploaded file. Read them one after another, not concurrently."""

    def __init__(self, registry: Registry, session: Session) -> None:
        self._session, self._pieces = session, Pieces(registry, session.pieces)
        self._kind: Kind | None = None
        self._zip: ZipFile | None = None
        self._forward: Forward | None = None
        self._small: dict[str, bytes] = {}

    def listing(self, retry: Retry) -> Listing:
        """List the files of the model. Raise LoadError if the uploaded file is not a model."""
        self._kind = archives.kind_of(retry(self._head))
        if self._kind is None:
            raise FaultError(
                "UnsupportedSource",
                f"{self._session.name or 'the file'} is neither GGUF nor a zip, tar, tar.gz or tar.zst archive",
            )
        try:
            members = retry(self._members)
        except ArchiveError as error:
            raise FaultError("UnsupportedSource", f"the archive is rejected: {error}") from error
        prefix = _common_folder([member.path for member in members])
        entries = tuple(
            Entry(
                path=member.path.removeprefix(prefix),
                locator=f"{member.offset} {member.path}",
                size=member.size,
                version=f"{self._session.digest} {member.path}",
            )
            for member in members
        )
        return Listing(self._session.digest, entries, self._session.name)

    @contextmanager
    def read(self, entry: Entry, start: int) -> Iterator[Body]:
        """Open a file at offset ``start``. Raise LoadError or TransientError."""
        offset, _space, path = entry.locator.partition(" ")
        yield _Body(self._chunks(int(offset), path, entry.size or 0, start), start)

    def _chunks(self, offset: int, path: str, size: int, start: int) -> Iterator[bytes]:
        """Yield the bytes of a file from ``start`` on. ``offset`` is the file's ``Member.offset``. Raise
        ArchiveError."""
        if path in self._small:
            yield self._small[path][start:]
        elif self._kind == "zip":
            yield from self._zipped(offset, start)
        elif self._kind in ("GGUF", "tar"):
            yield from _read_chunks(Forward(self._pieces.stream(offset + start)), size - start)
        else:
            forward = self._forward
            if forward is None or forward.tell() > offset + start:
                forward = self._open()
            self._forward = None  # until the position is reached
            forward.seek(offset + start)
            self._forward = forward
            yield from _read_chunks(forward, size - start)

    def _head(self) -> bytes:
        return b"".join(_read_chunks(Forward(self._pieces.stream(0)), min(archives.HEAD, self._pieces.size)))

    def _members(self) -> list[Member]:
        if self._kind == "GGUF":
            return [Member(_gguf_name(self._session.name), self._pieces.size, 0)]
        if self._kind == "zip":
            self._zip = archives.opened_zip(self._pieces)
            return list(archives.zip_members(self._zip, self._pieces.size))
        self._small.clear()
        forward = self._open()
        return list(archives.tar_members(forward, lambda member: self._cache(member, forward)))

    def _cache(self, member: Member, forward: Forward) -> None:
        """Keep the content of a small file in memory if the archive is compressed, because its files can then be read
        only in order. Do nothing if all kept files together would exceed ``KEPT`` bytes."""
        cached_bytes = sum(map(len, self._small.values()))
        if self._kind != "tar" and member.size <= SMALL and cached_bytes + member.size <= KEPT:
            self._small[member.path] = b"".join(_read_chunks(forward, member.size))

    def _open(self) -> Forward:
        """Open the archive at its beginning, as an uncompressed tar archive."""
        return Forward(archives.unpacked(self._kind or "tar", self._pieces))

    def _zipped(self, number: int, start: int) -> Iterator[bytes]:
        if self._zip is None:
            self._zip = archives.opened_zip(self._pieces)
        for chunk in archives.zip_chunks(self._zip, self._zip.infolist()[number]):
            if start < len(chunk):
                yield chunk[start:]
            start = max(0, start - len(chunk))


class _Body:
    verifiable = True

    def __init__(self, chunks: Iterator[bytes], start: int) -> None:
        self._forward, self.start = Forward(chunks), start

    def read(self, size: int) -> bytes:
        """Return the next bytes of the file, at most ``size``. An empty result means that the file has ended. Raise
        FaultError if the archive is invalid."""
        try:
            return self._forward.chunk(size)
        except ArchiveError as error:
            raise FaultError("UnsupportedSource", f"the archive is rejected: {error}") from error


def _read_chunks(forward: Forward, size: int) -> Iterator[bytes]:
    while size and (chunk := forward.chunk(min(CHUNK, size))):
        size -= len(chunk)
        yield chunk


def _gguf_name(name: str) -> str:
    base = name.replace("\\", "/").rpartition("/")[2]
    return base if base.lower().endswith(".gguf") and not fault_inside(base) else "model.gguf"


def _common_folder(paths: Sequence[str]) -> str:
    """Return the top-level directory that contains all files of an archive, with a trailing slash, or an empty string
    if there is none. The directory ``__MACOSX`` does not count."""
    tops = {path.partition("/")[0] for path in paths if not path.startswith("__MACOSX/")}
    return f"{tops.pop()}/" if len(tops) == 1 and all("/" in path for path in paths) else ""
