"""Notes of uploads: the length that the depot has reserved, and its proof, in an annotation of the model. Pure.

Depot and controller both read them, so that neither uses space that the other has reserved.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import Object, annotations_of, uid

UPLOAD = "slipway.inference/upload"
"""Annotation of a model with the :class:`Note` of its upload, as JSON."""
_NOTE_BYTES = 1024


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the annotation."""

    length: int
    """Size of the file in bytes, which is reserved in the storage."""
    proof: str = ""
    """Proves that the depot wrote this length for this model. Otherwise an author of models could reserve all of the
    storage."""
    expires: int = 0
    """Unix seconds at which the session ends; 0: never."""
    writer: str = ""
    until: int = 0
    """Unix time until which a requested length is reserved."""


def note(model: Object) -> Note | None:
    """Returns an upload's note on a model; None if it is missing or invalid."""
    try:
        return decode_json(annotations_of(model).get(UPLOAD, ""), Note, most=_NOTE_BYTES)
    except DecodingError:
        return None


def proof(key: bytes, model: str, length: int, expires: int) -> str:
    """Returns the proof of a note on the model with this uid."""
    return hmac.digest(key, f"slipway-depot-note-v2\n{model}\n{length}\n{expires}".encode(), hashlib.sha256).hex()


def request_proof(key: bytes, model: str, length: int, until: int) -> str:
    """Returns the proof of a note whose length must still be checked against the available space."""
    return hmac.digest(key, f"slipway-depot-request-v1\n{model}\n{length}\n{until}".encode(), hashlib.sha256).hex()


def _old_proof(key: bytes, model: str, length: int) -> str:
    """Returns the proof of a note by an older depot, whose session never ends."""
    return hmac.digest(key, f"slipway-depot-note-v1\n{model}\n{length}".encode(), hashlib.sha256).hex()


def proven(model: Object, key: bytes) -> Note | None:
    """Returns the note of an upload for which the depot had room; None if there is none. The proof is checked, because
    authors of models can also write annotations."""
    noted = note(model)
    if noted is None:
        return None
    valid = [proof(key, uid(model), noted.length, noted.expires)]
    if not noted.expires:
        valid.append(_old_proof(key, uid(model), noted.length))
    return noted if _is_one_of(noted.proof, valid) else None


def _is_one_of(text: str, valid: Sequence[str]) -> bool:
    return any(hmac.compare_digest(text.encode(), one.encode()) for one in valid)


def reserved(model: Object, key: bytes, now: float) -> int:
    """Returns the bytes that an unfinished upload has reserved, or requests now. Without a key no note can be
    verified."""
    noted = note(model)
    if noted is None or not key:
        return 0
    asks = now < noted.until and _is_one_of(noted.proof, [request_proof(key, uid(model), noted.length, noted.until)])
    return max(noted.length, 0) if asks or proven(model, key) else 0
