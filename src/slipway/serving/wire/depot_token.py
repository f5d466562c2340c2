"""Tokens that the depot verifies without storing them. Pure.

A token is a claim and its signature with a key that the controller and the depot share. The claim contains its purpose,
so a token for uploads cannot be used to pull::

    BASE64URL(JSON of the claim) "." BASE64URL(HMAC-SHA256)
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal

import msgspec

from slipway.decoding import DecodingError, decode_json

KEY_BYTES = 32
LONGEST = 2048
"""Maximum length of a token in characters."""
_CONTEXT = b"slipway-depot-token-v1\n"
"""First line of the signed text. It makes signatures for other purposes invalid here."""


class TokenError(Exception):
    """The token is malformed, is not from this cluster's controller, has another purpose, or has expired. The message
    does not contain the token."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The permissions that a token gives."""

    use: Literal["upload", "pull"]
    namespace: str
    """Namespace of the model to upload, empty if it is cluster-scoped. For pulls, the namespace of the pods."""
    name: str = ""
    """Name of the model to upload. The value is empty for pulls."""
    uid: str = ""
    """UID of the model to upload. For pulls, the UID of the namespace, because a new namespace may later have its
    name."""
    expires: int = 0
    """Unix time at which the token expires. 0 means never."""


def sign(key: bytes, claim: Claim) -> str:
    """Return the token for a claim. Raise ValueError if the key's length is not :data:`KEY_BYTES`."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    statement = msgspec.json.encode(claim)
    return f"{_text(statement)}.{_text(_signature(key, statement))}"


def verify_token(key: bytes, token: str, use: Literal["upload", "pull"], now: float) -> Claim:
    """Return the claim of a token that is valid for ``use`` at ``now`` (Unix seconds). Raise TokenError if it is not
    valid."""
    try:
        statement, signature = (_bytes(one) for one in token[: LONGEST + 1].split("."))
    except ValueError:
        raise TokenError("this is not a depot token") from None
    if len(token) > LONGEST or not hmac.compare_digest(signature, _signature(key, statement)):
        raise TokenError("the token was not signed by this cluster's controller")
    try:
        claim = decode_json(statement, Claim, most=LONGEST)
    except DecodingError:
        raise TokenError("this is not a depot token") from None
    if claim.use != use:
        raise TokenError(f"the token is for another use: {claim.use}")
    if claim.expires and now >= claim.expires:
        raise TokenError("the token has expired")
    return claim


def _signature(key: bytes, statement: bytes) -> bytes:
    return hmac.digest(key, _CONTEXT + statement, hashlib.sha256)


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Decode base64url without padding. Raise ValueError for text of an impossible length and for text that is not
    ASCII. Other invalid characters are ignored."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
