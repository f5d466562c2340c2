"""Archives: the files of a zip or tar, optionally compressed, read without unpacking the archive to a disk.

Archives are untrusted. A path outside of the archive, a link, a device, more files than any model has, or an
implausible amount of data: each raises ArchiveError as soon as it is detected, before any content is kept.
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
"""Number of bytes that identify the kind."""
LONGEST_HEADER = 1 << 20
"""Maximum size of a tar header with all its extensions."""
LARGEST_DIRECTORY = 32 << 20
"""Maximum size of a zip's directory: with MOST_FILES files it has about 10 MB."""
RATIO, SLACK = 200, 64 << 20
"""An archive that unpacks to more than its size times RATIO, plus SLACK, was made to fill a disk."""
ZSTD_WINDOW = 1 << 27
"""Maximum memory that a stream may request; the limit of the zstd tool."""
WRONG = (tarfile.TarError, BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError, KeyError)
"""Exceptions of the libraries for invalid archives. NotImplementedError is a RuntimeError, which they also raise for
encryption."""


class ArchiveError(ValueError):
    """The archive cannot be read as a model. The message has the reason."""


class Member(msgspec.Struct, frozen=True):
    """A regular file of an archive."""

    path: str
    size: int
    offset: int
    """Position of its bytes in the unpacked tar; in a zip: the number of the entry."""


class Bytes(Protocol):
    """A remote file."""

    @property
    def size(self) -> int:
        """Size of the file."""

    def stream(self, start: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` on. Raises LoadError or TransientError."""


def kind_of(head: bytes) -> Kind | None:
    """Returns the kind of a file from its first bytes; None: not supported."""
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
    """A file object that reads a stream: it only moves forward, and its reads are bounded."""

    def __init__(self, chunks: Iterator[bytes], at: int = 0) -> None:
        self._chunks, self._rest = chunks, b""
        self._position = at

    def tell(self) -> int:
        """Returns the number of bytes read or skipped."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Skips to a position. Raises ArchiveError for a position before the current one."""
        if whence != io.SEEK_SET or position < self._position:
            raise ArchiveError("its headers lead back")
        while self._position < position and self._take(min(CHUNK, position - self._position)):
            pass
        return self._position

    def read(self, size: int) -> bytes:
        """Reads exactly ``size`` bytes, fewer only at the end."""
        if not 0 <= size <= LONGEST_HEADER:
            raise ArchiveError("a header of it is too long")
        buffer = bytearray()
        while len(buffer) < size and (chunk := self._take(size - len(buffer))):
            buffer += chunk
        return bytes(buffer)

    def chunk(self, most: int) -> bytes:
        """Returns some bytes; none at the end."""
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
    """Yields the files of a tar. ``each`` is called when the stream is at the file's first byte, and may read it.
    Raises ArchiveError."""
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
    """Yields the bytes of a tar after decompression. Raises ArchiveError."""
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
    """Yields the files of a zip of ``size`` bytes. Raises ArchiveError."""
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
    """Opens a zip. Raises ArchiveError."""
    try:
        return ZipFile(ZipReader(archive))
    except ArchiveError:
        raise
    except (*WRONG, NotImplementedError) as error:
        raise ArchiveError("it is not a sound zip archive, or is cut off") from error


def zip_chunks(archive: ZipFile, info: ZipInfo) -> Iterator[bytes]:
    """Yields the bytes of one file, exactly as many as its entry declares. Raises ArchiveError."""
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
    """A remote file for the zip library, which reads it mostly, but not only, forward."""

    NEAR = 1 << 20
    """Maximum number of bytes to skip instead of sending another request."""
    PIECE = 1 << 16

    def __init__(self, archive: Bytes) -> None:
        self._archive, self._at = archive, 0
        self._forward: Forward | None = None

    def seekable(self) -> bool:
        """Always True."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Sets the position, without a request."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._archive.size}[whence]
        if base + position < 0:
            raise ArchiveError("its headers lead out of it")
        self._at = base + position
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Reads exactly ``size`` bytes, fewer only at the end."""
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
    """Decompresses all members of a gzip file, which may contain several."""
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
    """A file object that reads from a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._forward = Forward(chunks)

    def read(self, size: int) -> bytes:
        """Returns some bytes; none at the end."""
        return self._forward.chunk(size)


def _few(count: int) -> None:
    if count > MOST_FILES:
        raise ArchiveError(f"it has more than {MOST_FILES} files, more than the limit")


def _path(name: str) -> str:
    """Returns a member's path without the leading dot of tar. Raises ArchiveError for an invalid path."""
    path = name.removeprefix("./")
    fault = fault_inside(path)
    if fault:
        raise ArchiveError(f"the name {_printable(name)} in it {fault}")
    return path


def _printable(name: str) -> str:
    return repr(name[:100])
