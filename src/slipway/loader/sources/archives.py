"""Archives: the files of a zip or tar, compressed or not, read where the archive lies, without unpacking it anywhere.

Strangers made them. A name that leads out, a link, a device, more files than any model has, or more bytes than the
archive could honestly hold: each ends in ArchiveError, as soon as it shows and before anything of it is kept.
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
"""Bytes by which a kind is known."""
LONGEST_HEADER = 1 << 20
"""Bytes of a tar's header with all that extends it."""
LARGEST_DIRECTORY = 32 << 20
"""Bytes of a zip's directory: of MOST_FILES files it has about 10 MB."""
RATIO, SLACK = 200, 64 << 20
"""An archive that unpacks to more than so many times its size, and so many bytes, was made to fill a disk."""
ZSTD_WINDOW = 1 << 27
"""Bytes of memory that a stream may ask for; the tool's own limit."""
WRONG = (tarfile.TarError, BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError, KeyError)
"""What the libraries raise for archives that are not sound. NotImplementedError is a RuntimeError, as encryption is."""


class ArchiveError(ValueError):
    """No model can be read from it. The message has the reason."""


class Member(msgspec.Struct, frozen=True):
    """A regular file of an archive."""

    path: str
    size: int
    offset: int
    """Of its bytes in the unpacked tar; in a zip: number of the entry."""


class Bytes(Protocol):
    """A remote file."""

    @property
    def size(self) -> int:
        """Of all of it."""

    def stream(self, start: int) -> Iterator[bytes]:
        """Its bytes from ``start`` on. Raises LoadError or TransientError."""


def kind_of(head: bytes) -> Kind | None:
    """Returns the kind from the first bytes; None: it is not supported."""
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
    """A stream as a file that only moves forward and is read in bounded pieces."""

    def __init__(self, chunks: Iterator[bytes], at: int = 0) -> None:
        self._chunks, self._rest = chunks, b""
        self._position = at

    def tell(self) -> int:
        """Bytes that were read or passed over."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Passes over what is before. Raises ArchiveError for a way back."""
        if whence != io.SEEK_SET or position < self._position:
            raise ArchiveError("its headers lead back")
        while self._position < position and self._take(min(CHUNK, position - self._position)):
            pass
        return self._position

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end only."""
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
        taken, self._rest = self._rest[:most], self._rest[most:]
        self._position += len(taken)
        return taken


def tar_members(stream: Forward, each: Callable[[Member], None] = lambda _member: None) -> Iterator[Member]:
    """The files of a tar. ``each`` is called where the stream is at the file's first byte, and may read it. Raises
    ArchiveError."""
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[call-overload] # a file that reads
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
        raise ArchiveError(f"{_shown(member.name)} is a link, a device or has holes")
    return Member(_path(member.name), member.size, member.offset_data)


def unpacked(kind: Kind, archive: Bytes) -> Iterator[bytes]:
    """The bytes of a tar, however it is packed. Raises ArchiveError."""
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
    """The files of a zip of ``size`` bytes. Raises ArchiveError."""
    total = 0
    for number, info in enumerate(archive.infolist()):
        _few(number + 1)
        if info.is_dir():
            continue
        kind = info.external_attr >> 28
        if kind not in (0, 8):
            raise ArchiveError(f"{_shown(info.filename)} is a link or a device")
        if info.flag_bits & 0x1:
            raise ArchiveError(f"{_shown(info.filename)} is encrypted")
        total += info.file_size
        if total > RATIO * size + SLACK:
            raise ArchiveError(f"it unpacks to more than {RATIO} times its size")
        yield Member(_path(info.filename), info.file_size, number)


def opened_zip(archive: Bytes) -> ZipFile:
    """Raises ArchiveError."""
    try:
        return ZipFile(ZipReader(archive))
    except ArchiveError:
        raise
    except (*WRONG, NotImplementedError) as error:
        raise ArchiveError("it is not a sound zip archive, or is cut off") from error


def zip_chunks(archive: ZipFile, info: ZipInfo) -> Iterator[bytes]:
    """The bytes of one file, as many as its entry says. Raises ArchiveError."""
    done = 0
    try:
        with archive.open(info) as stream:
            while chunk := stream.read(CHUNK):
                done += len(chunk)
                yield chunk
    except ArchiveError:
        raise
    except (*WRONG, RuntimeError) as error:
        raise ArchiveError(f"{_shown(info.filename)} in it is damaged") from error
    if done != info.file_size:
        raise ArchiveError(f"{_shown(info.filename)} in it has {done} bytes instead of {info.file_size}")


class ZipReader:
    """A remote file for the zip library, which reads it in places, mostly forward."""

    NEAR = 1 << 20
    """Bytes that are rather passed over than asked for anew."""
    PIECE = 1 << 16

    def __init__(self, archive: Bytes) -> None:
        self._archive, self._at = archive, 0
        self._forward: Forward | None = None

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Position."""
        return self._at

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Costs nothing."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._archive.size}[whence]
        if base + position < 0:
            raise ArchiveError("its headers lead out of it")
        self._at = base + position
        return self._at

    def read(self, size: int = -1) -> bytes:
        """So many bytes; fewer at the end only."""
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
    """All members of a gzip file, which may be several behind one another."""
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
    """A stream with a ``read``."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._forward = Forward(chunks)

    def read(self, size: int) -> bytes:
        """Some bytes; none at the end."""
        return self._forward.chunk(size)


def _few(count: int) -> None:
    if count > MOST_FILES:
        raise ArchiveError(f"it has more than {MOST_FILES} files, more than the limit")


def _path(name: str) -> str:
    """Without the dot in front that tar leaves there."""
    path = name.removeprefix("./")
    fault = fault_inside(path)
    if fault:
        raise ArchiveError(f"the name {_shown(name)} in it {fault}")
    return path


def _shown(name: str) -> str:
    return repr(name[:100])
