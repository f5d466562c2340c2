"""Digests that sources declare for their files, and hashers that compute them while the bytes are read."""

from __future__ import annotations

import base64
import binascii
import hashlib
from enum import Enum
from typing import Protocol

import msgspec


class Kind(Enum):
    SHA256 = "sha256"
    GIT = "git blob"
    MD5 = "md5"
    CRC32C = "crc32c"


class Digest(msgspec.Struct, frozen=True):
    kind: Kind
    value: str
    """The digest in lower-case hex."""


class Hasher(Protocol):
    def update(self, data: bytes, /) -> None:
        """Add the next bytes of the content to the hash."""

    def hexdigest(self) -> str:
        """Return the hash of all content so far, in lower-case hex."""


class _Unchecked:
    """A hasher for content without a declared digest, which computes nothing."""

    def update(self, data: bytes, /) -> None:
        """Ignore the bytes."""

    def hexdigest(self) -> str:
        return ""


class _Crc32c:
    def __init__(self) -> None:
        # Only one source uses this checksum, so the others do not wait for the import.
        import google_crc32c

        self._checksum = google_crc32c.Checksum()

    def update(self, data: bytes, /) -> None:
        self._checksum.update(data)

    def hexdigest(self) -> str:
        digest: bytes = self._checksum.digest()
        return digest.hex()


def hasher(digest: Digest | None, size: int | None) -> Hasher:
    """Return a new hasher for content with this digest. ``size`` is the content's size in bytes, which is part of a git
    blob's hash. Without a ``digest``, the hasher computes nothing."""
    match digest.kind if digest else None:
        case Kind.SHA256:
            return hashlib.sha256()
        case Kind.MD5:
            return hashlib.md5(usedforsecurity=False)
        case Kind.GIT:
            return hashlib.sha1(b"blob %d\0" % (size or 0), usedforsecurity=False)
        case Kind.CRC32C:
            return _Crc32c()
        case None:
            return _Unchecked()


def from_base64(kind: Kind, text: str) -> Digest | None:
    """Parse a digest in base64, Google's format. Return None if the text is invalid."""
    try:
        return Digest(kind, base64.b64decode(text, validate=True).hex())
    except binascii.Error:
        return None


def of_google(md5: str, crc32c: str) -> Digest | None:
    """Return the digest that Cloud Storage declares for an object: the MD5 or, for a composite object, which has no
    MD5, the CRC32C. Both arguments are in base64; empty: there is none. Return None if neither is valid."""
    return (from_base64(Kind.MD5, md5) if md5 else None) or (from_base64(Kind.CRC32C, crc32c) if crc32c else None)
