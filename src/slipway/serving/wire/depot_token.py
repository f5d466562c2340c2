"""Tokens that the depot verifies without storing them: a claim and its signature with a key that controller and depot
share. Pure.

A token states its purpose, so a token for an upload cannot be used for anything else::

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
"""First line of the signed text, so that signatures for other purposes are not valid here."""


class TokenError(Exception):
    """The token is not ours, has another purpose, or has expired. The message gives the reason without the token."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The permissions of a token."""

    use: Literal["upload", "pull"]
    namespace: str
    """Namespace of the model; empty for a cluster-scoped model. To pull: of the pods."""
    name: str = ""
    """Name of the model. To pull: empty."""
    uid: str = ""
    """Uid of the model. To pull: of the namespace, because another one may later have its name."""
    expires: int = 0
    """Expiry in Unix seconds; 0: never."""


def sign(key: bytes, claim: Claim) -> str:
    """Returns the signed token. Raises ValueError if the key's length is not :data:`KEY_BYTES`."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    statement = msgspec.json.encode(claim)
    return f"{_text(statement)}.{_text(_signature(key, statement))}"


def verify_token(key: bytes, token: str, use: Literal["upload", "pull"], now: float) -> Claim:
    """Returns the claim of a token that is valid for ``use`` at ``now`` (Unix seconds). Raises TokenError."""
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
    """Decodes base64url. Raises ValueError."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
