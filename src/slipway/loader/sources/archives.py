"""The files of zip and tar archives, which may be compressed, read without unpacking the archive to a disk.

Archives are untrusted. A path outside of the archive, a link, a device, too many files, or an implausible amount of
data raises ArchiveError immediately, before any content is kept.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol
from zipfile import BadZipFile, ZipFile, ZipInfo

import msgspec

from slipway.artifacts.locations.paths import fault_inside
from slipway.loader.transport.source import CHUNK, MOST_FILES

Kind = Literal["GGUF", "zip", "tar", "tar.gz", "tar.zst"]
HEAD = 512
"""Number of bytes at the beginning of a file that identify its kind."""
LONGEST_HEADER = 1 << 20
"""Maximum size in bytes of a tar header with all its extensions."""
LARGEST_DIRECTORY = 32 << 20
"""Maximum size in bytes of a zip archive's directory, and of any other single read of the archive. With ``MOST_FILES``
files, a directory has about 10 MB."""
RATIO, SLACK = 200, 64 << 20
"""Limit against archives that were made to fill a disk: an archive unpacks to at most ``RATIO`` times its size, plus
``SLACK`` bytes."""
ZSTD_WINDOW = 1 << 27
"""Maximum memory in bytes that a zstd stream may request, which is also the limit of the zstd tool."""
WRONG = (tarfile.TarError, BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError, KeyError)
"""Exceptions that the libraries raise for invalid archives. RuntimeError, which they raise for encrypted files, and its
subclass NotImplementedError are not included."""


class ArchiveError(ValueError):
    """The archive is invalid, or contains entries that a model must not contain. The message is the reason."""


class Member(msgspec.Struct, frozen=True):
    """A regular file in an archive."""

    path: str
    size: int
    offset: int
    """Offset of the file's bytes in the uncompressed tar archive, or index of the file's entry in a zip archive."""


class Bytes(Protocol):
    """A remote file that can be read from any offset."""

    @property
    def size(self) -> int:
        """Size of the file in bytes."""

    def stream(self, start: int) -> Iterator[bytes]:
        """Yield the bytes from offset ``start`` on. Raise LoadError or TransientError."""


def kind_of(head: bytes) -> Kind | None:
    """Return the kind of a file, judging by its first bytes, or None if the kind is not supported."""
    if head.startswith(b"GGUF"):
        return "GGUF"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "tar.zst"
    return "tar" if head[257:262] == b"ustar" else None


class Forward:
    """A file object that reads a stream. It moves only forward, and the size of a read is limited."""

    def __init__(self, chunks: Iterator[bytes], at: int = 0) -> None:
        self._chunks, self._rest = chunks, b""
        self._position = at

    def tell(self) -> int:
        """Return the current offset."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Skip to the offset ``position``, or to the end of the stream if that is nearer, and return the new offset.
        Raise ArchiveError for an offset before the current one, or for any ``whence`` except ``SEEK_SET``."""
        if whence != io.SEEK_SET or position < self._position:
            raise ArchiveError("its headers lead back")
        while self._position < position and self._take(min(CHUNK, position - self._position)):
            pass
        return self._position

    def read(self, size: int) -> bytes:
        """Read exactly ``size`` bytes, or fewer at the end of the stream. Raise ArchiveError for a negative size or a
        size above ``LONGEST_HEADER``."""
        if not 0 <= size <= LONGEST_HEADER:
            raise ArchiveError("a header of it is too long")
        buffer = bytearray()
        while len(buffer) < size and (chunk := self._take(size - len(buffer))):
            buffer += chunk
        return bytes(buffer)

    def chunk(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``. An empty result means that the stream has ended."""
        return self._take(most)

    def _take(self, most: int) -> bytes:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = chunk
        result, self._rest = self._rest[:most], self._rest[most:]
        self._position += len(result)
        return result


def tar_members(stream: Forward, each: Callable[[Member], None] = lambda _member: None) -> Iterator[Member]:
    """Yield the files of a tar archive. Call ``each`` while the stream is at the first byte of a file, so that ``each``
    can read its content. Raise ArchiveError."""
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[call-overload] # a readable file
            count = 0
            while (member := archive.next()) is not None:
                archive.members.clear()
                count += 1
                _few(count)
                if member.isdir():
                    continue
                file = _regular(member)
                each(file)
                yield file
    except ArchiveError:
        raise
    except WRONG as error:
        raise ArchiveError("it is not a sound tar archive, or is cut off") from error


def _regular(member: tarfile.TarInfo) -> Member:
    if not member.isreg() or member.sparse is not None:
        raise ArchiveError(f"{_printable(member.name)} is a link, a device or has holes")
    return Member(_path(member.name), member.size, member.offset_data)


def unpacked(kind: Kind, archive: Bytes) -> Iterator[bytes]:
    """Yield the bytes of a tar archive, decompressed if its ``kind`` is compressed. Raise ArchiveError, or the errors
    of ``Bytes.stream``."""
    if kind == "tar":
        yield from archive.stream(0)
        return
    total, most = 0, RATIO * archive.size + SLACK
    for chunk in _gunzipped(archive) if kind == "tar.gz" else _unzstandard(archive):
        total += len(chunk)
        if total > most:
            raise ArchiveError(f"it unpacks to more than {RATIO} times its size")
        yield chunk


def zip_members(archive: ZipFile, size: int) -> Iterator[Member]:
    """Yield the files of a zip archive. ``size`` is the size of the archive itself in bytes. Raise ArchiveError."""
    total = 0
    for number, info in enumerate(archive.infolist()):
        _few(number + 1)
        if info.is_dir():
            continue
        kind = info.external_attr >> 28
        if kind not in (0, 8):
            raise ArchiveError(f"{_printable(info.filename)} is a link or a device")
        if info.flag_bits & 0x1:
            raise ArchiveError(f"{_printable(info.filename)} is encrypted")
        total += info.file_size
        if total > RATIO * size + SLACK:
            raise ArchiveError(f"it unpacks to more than {RATIO} times its size")
        yield Member(_path(info.filename), info.file_size, number)


def opened_zip(archive: Bytes) -> ZipFile:
    """Open a zip archive. Raise ArchiveError if it is invalid."""
    try:
        return ZipFile(ZipReader(archive))
    except ArchiveError:
        raise
    except (*WRONG, NotImplementedError) as error:
        raise ArchiveError("it is not a sound zip archive, or is cut off") from error


def zip_chunks(archive: ZipFile, info: ZipInfo) -> Iterator[bytes]:
    """Yield the bytes of one file of a zip archive, exactly as many as its entry declares. Raise ArchiveError."""
    done = 0
    try:
        with archive.open(info) as stream:
            while chunk := stream.read(CHUNK):
                done += len(chunk)
                yield chunk
    except ArchiveError:
        raise
    except (*WRONG, RuntimeError) as error:
        raise ArchiveError(f"{_printable(info.filename)} in it is damaged") from error
    if done != info.file_size:
        raise ArchiveError(f"{_printable(info.filename)} in it has {done} bytes instead of {info.file_size}")


class ZipReader:
    """A file object over a remote file, for the zip library, which reads mostly, but not only, forward."""

    NEAR = 1 << 20
    """Maximum number of bytes to skip instead of sending another request."""
    PIECE = 1 << 16

    def __init__(self, archive: Bytes) -> None:
        self._archive, self._at = archive, 0
        self._forward: Forward | None = None

    def seekable(self) -> bool:
        """Return True, because the zip library requires a seekable file."""
        return True

    def tell(self) -> int:
        """Return the current offset."""
        return self._at

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Set the offset, without sending a request. Raise ArchiveError for an offset before the beginning of the
        file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._archive.size}[whence]
        if base + position < 0:
            raise ArchiveError("its headers lead out of it")
        self._at = base + position
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read exactly ``size`` bytes, or fewer at the end of the file. A negative size reads to the end. Raise
        ArchiveError if this is more than ``LARGEST_DIRECTORY``."""
        remaining = max(0, self._archive.size - self._at)
        length = remaining if size < 0 else min(size, remaining)
        if length > LARGEST_DIRECTORY:
            raise ArchiveError("its directory is too long")
        forward = self._there()
        buffer = bytearray()
        while len(buffer) < length and (chunk := forward.chunk(length - len(buffer))):
            buffer += chunk
        self._at += len(buffer)
        return bytes(buffer)

    def _there(self) -> Forward:
        forward = self._forward
        if forward is None or not 0 <= self._at - forward.tell() <= self.NEAR:
            forward = self._forward = Forward(self._archive.stream(self._at), self._at)
        forward.seek(self._at)
        return forward


def _gunzipped(archive: Bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of a gzip file, which may consist of several members."""
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        for packed in archive.stream(0):
            data = packed
            while data:
                if decompressor.eof:
                    if not data.strip(b"\0"):
                        break
                    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
                yield decompressor.decompress(data, CHUNK)
                data = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
        while not decompressor.eof and (rest := decompressor.decompress(decompressor.unconsumed_tail, CHUNK)):
            yield rest
    except zlib.error as error:
        raise ArchiveError("it is not a sound gzip file") from error
    if not decompressor.eof:
        raise ArchiveError("it is cut off")


def _unzstandard(archive: Bytes) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    source: Any = _Reading(archive.stream(0))
    try:
        with decompressor.stream_reader(source, read_size=1 << 16, read_across_frames=True) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
    except zstandard.ZstdError as error:
        raise ArchiveError("it is not a sound zstd file, or needs too much memory") from error


class _Reading:
    """A file object for the zstd library that reads a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._forward = Forward(chunks)

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``. An empty result means that the stream has ended."""
        return self._forward.chunk(size)


def _few(count: int) -> None:
    if count > MOST_FILES:
        raise ArchiveError(f"it has more than {MOST_FILES} files, more than the limit")


def _path(name: str) -> str:
    """Return the path of a member without a leading ``./``. Raise ArchiveError for an invalid path."""
    path = name.removeprefix("./")
    fault = fault_inside(path)
    if fault:
        raise ArchiveError(f"the name {_printable(name)} in it {fault}")
    return path


def _printable(name: str) -> str:
    return repr(name[:100])
