"""Notes of uploads: annotations of models with the length that the depot has reserved, and a proof of this length.
Pure.

The depot and the controller both read the notes, so that neither uses space that the other has reserved.
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
    """The content of a model's annotation :data:`UPLOAD`."""

    length: int
    """Size of the file in bytes, which is reserved in the storage."""
    proof: str = ""
    """Proof that the depot reserved or requested this length for this model. Without a proof, an author of models could
    reserve all of the storage."""
    expires: int = 0
    """Unix time at which the upload session ends. 0 means never."""
    writer: str = ""
    """Name of the client or the depot's task that currently writes the upload. The value is empty if there is none."""
    until: int = 0
    """Unix time until which ``writer`` may write, and until which a requested length counts as reserved."""


def note(model: Object) -> Note | None:
    """Return the note of an upload from a model's annotation, or None if it is missing or invalid. The proof is not
    checked."""
    try:
        return decode_json(annotations_of(model).get(UPLOAD, ""), Note, most=_NOTE_BYTES)
    except DecodingError:
        return None


def proof(key: bytes, model: str, length: int, expires: int) -> str:
    """Return the proof of a note whose length is reserved. ``model`` is the model's UID, and ``expires`` the end of the
    session in Unix seconds, or 0 if it never ends."""
    return hmac.digest(key, f"slipway-depot-note-v2\n{model}\n{length}\n{expires}".encode(), hashlib.sha256).hex()


def request_proof(key: bytes, model: str, length: int, until: int) -> str:
    """Return the proof of a note whose length the depot must still check against the available space. ``model`` is the
    model's UID, and ``until`` the end of the request in Unix seconds."""
    return hmac.digest(key, f"slipway-depot-request-v1\n{model}\n{length}\n{until}".encode(), hashlib.sha256).hex()


def _old_proof(key: bytes, model: str, length: int) -> str:
    """Return the proof of a note from an older depot, whose sessions never end."""
    return hmac.digest(key, f"slipway-depot-note-v1\n{model}\n{length}".encode(), hashlib.sha256).hex()


def proven(model: Object, key: bytes) -> Note | None:
    """Return the note of an upload for which the depot has reserved space, even if the session has ended. Return None
    if there is no note or its proof is invalid: authors of models can also write annotations."""
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
    """Return the number of bytes that the note of a model has reserved or requests now. Return 0 if there is no valid
    note, or if ``key`` is empty, because no note can be verified."""
    noted = note(model)
    if noted is None or not key:
        return 0
    asks = now < noted.until and _is_one_of(noted.proof, [request_proof(key, uid(model), noted.length, noted.until)])
    return max(noted.length, 0) if asks or proven(model, key) else 0
