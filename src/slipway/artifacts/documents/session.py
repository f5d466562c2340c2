"""Session: the state of an upload, stored as a manifest with the tag ``session`` in the upload's repository. Pure.

The layers of the manifest are the parts of the uploaded file, in order. A part has at most :data:`PIECE_BYTES` bytes,
and fewer if a request ended early or was slow.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Annotated, Final, Literal

import msgspec

from slipway.artifacts.documents.publication import Digest
from slipway.decoding import DecodingError, decode_json

TAG = "session"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE: Final = "application/vnd.slipway.upload.v1+json"
PIECE_TYPE = "application/octet-stream"
FILE_NAME, LENGTH, COMPLETE = "slipway.inference/file-name", "slipway.inference/length", "slipway.inference/complete"
"""Annotations of the manifest. :data:`COMPLETE` is ``true`` once all bytes are stored."""
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
"""Media type and content of the manifest's configuration, which is empty."""
EMPTY_DIGEST = f"sha256:{hashlib.sha256(EMPTY).hexdigest()}"
PIECE_BYTES = 64 << 20
MOST_PIECES = 20_000
MANIFEST_BYTES = 4 << 20
"""Maximum size of a manifest in bytes."""
HEAD_BYTES = 512
"""Number of bytes at the beginning of a file from which :func:`kind_of` detects the kind of the file."""
LONGEST_NAME = 200
KINDS = ("gguf", "zip", "tar", "tar.gz", "tar.zst")

_TAR_MAGIC = slice(257, 262)


class Piece(msgspec.Struct, frozen=True):
    """A blob in the registry with one part of the uploaded file."""

    digest: str
    size: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an upload of one file, as stored in the registry."""

    file_name: str
    length: int
    """Size of the file in bytes."""
    pieces: tuple[Piece, ...] = ()

    @property
    def offset(self) -> int:
        """Number of stored bytes."""
        return sum(piece.size for piece in self.pieces)

    @property
    def complete(self) -> bool:
        """Whether all bytes are stored."""
        return self.offset == self.length

    def followed_by(self, piece: Piece) -> Session:
        """Return a copy of the session with ``piece`` appended."""
        return msgspec.structs.replace(self, pieces=(*self.pieces, piece))


class _Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    digest: Digest
    size: Annotated[int, msgspec.Meta(ge=1)]


class _Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    schema_version: Literal[2] = 2
    media_type: Literal["application/vnd.oci.image.manifest.v1+json"] = MANIFEST_TYPE
    artifact_type: Literal["application/vnd.slipway.upload.v1+json"]
    config: _Descriptor = _Descriptor(EMPTY_TYPE, EMPTY_DIGEST, len(EMPTY))
    layers: Annotated[tuple[_Descriptor, ...], msgspec.Meta(max_length=MOST_PIECES)] = ()
    annotations: dict[str, str] = {}


def encode_session(session: Session) -> bytes:
    """Encode a session as an OCI manifest."""
    annotations = {FILE_NAME: session.file_name, LENGTH: str(session.length)}
    if session.complete:
        annotations[COMPLETE] = "true"
    manifest = _Manifest(
        artifact_type=ARTIFACT_TYPE,
        layers=tuple(_Descriptor(PIECE_TYPE, piece.digest, piece.size) for piece in session.pieces),
        annotations=annotations,
    )
    return msgspec.json.encode(manifest)


def parse_session(text: bytes) -> Session:
    """Parse a session from its OCI manifest. Raise DecodingError if the manifest is invalid."""
    manifest = decode_json(text, _Manifest, most=MANIFEST_BYTES)
    length = manifest.annotations.get(LENGTH, "")
    if not length.isascii() or not length.isdecimal() or len(length) > 18:
        raise DecodingError(f"the annotation {LENGTH} is not a number of bytes")
    pieces = tuple(Piece(layer.digest, layer.size) for layer in manifest.layers)
    session = Session(file_name=manifest.annotations.get(FILE_NAME, ""), length=int(length), pieces=pieces)
    if session.offset > session.length:
        raise DecodingError("there are more bytes than the file's size")
    return session


def kind_of(head: bytes) -> str:
    """Return the kind of a file, one of ``KINDS``, from its first ``HEAD_BYTES`` bytes. Empty if it is unsupported."""
    if head.startswith(b"GGUF"):
        return "gguf"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "tar.zst"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz" if _is_gzip(head) else ""
    return "tar" if head[_TAR_MAGIC] == b"ustar" else ""


def _is_gzip(head: bytes) -> bool:
    """Whether a gzip file contains a tar. Also true if its first bytes are too few to recognize one."""
    try:
        start = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return False
    return len(start) < _TAR_MAGIC.stop or start[_TAR_MAGIC] == b"ustar"


def name_for(file_name: str, kind: str) -> str:
    """Convert an untrusted name to a valid file name without directories. A GGUF file's name ends with ``.gguf``.
    Return ``model.KIND`` if no valid characters remain."""
    last = file_name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(character for character in last if character.isprintable()).strip().lstrip(".")
    short = printable.encode(errors="ignore")[-LONGEST_NAME:].decode(errors="ignore")
    if not short:
        return f"model.{kind}"
    return short if kind != "gguf" or short.lower().endswith(".gguf") else f"{short}.gguf"
