"""Proof: how a loader recognizes that a request comes from the controller. Pure.

The controller signs each request with an Ed25519 key that only it has; every loader gets the public key, which is not a
secret, as a variable. So no tenant's namespace holds a secret, and a compromised pod cannot forge anything. The
signature covers the method, the path, the SHA-256 of the body, the pod's uid and the time: it is not valid for another
pod, another request or another body, nor after :data:`WINDOW_SECONDS`. Within that time, a loader accepts only requests
signed after the last one that it accepted, which prevents replays.

The proof is sent in the header ``Authorization``::

    Slipway-Ed25519 issued=NANOSECONDS,digest=HEX,signature=BASE64URL

It contains the body's digest, so that a loader can reject other clients before it reads a body.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from slipway.serving.wire.agent import CONTROLLER_KEY

SCHEME = "Slipway-Ed25519"
HEADER = "Authorization"
WINDOW_SECONDS = 60
"""The largest accepted difference between a request's time and the loader's clock, in either direction."""
_CONTEXT = "slipway-loader-request-v1"
"""First line of the signed text, so that signatures for other purposes are not valid here."""
_FORM = re.compile(rf"{SCHEME} issued=([0-9]{{1,20}}),digest=([0-9a-f]{{64}}),signature=([A-Za-z0-9_-]{{86}})")


class ProofError(Exception):
    """The request does not come from the controller, or its time is not valid. The message has the reason."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """Whether the proof is missing, or has another format."""


class Proof(msgspec.Struct, frozen=True):
    """The contents of a valid proof, in addition to the request line."""

    issued: int
    """Unix time in nanoseconds, by the controller's clock."""
    digest: str
    """SHA-256 of the body, in hexadecimal digits."""


class SigningKey:
    """The controller's private key. Its ``repr`` reveals nothing about it."""

    def __init__(self, seed: bytes) -> None:
        """``seed``: the key's 32 bytes. Raises ValueError for any other length."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = _text(self._key.public_key().public_bytes_raw())
        """The public key by which loaders recognize the controller, as text (see ``CONTROLLER_KEY``)."""

    @classmethod
    def generate(cls) -> SigningKey:
        """Generates a new key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def seed(self) -> bytes:
        """The secret bytes of the key."""
        return self._key.private_bytes_raw()

    def proof(self, method: str, path: str, body: bytes, pod: str, issued: int) -> str:
        """Returns the header's value for one request. ``pod`` is the uid of the pod; ``issued`` as in
        :class:`Proof`."""
        digest = body_digest(body)
        signature = self._key.sign(_statement(method, path, pod, issued, digest))
        return f"{SCHEME} issued={issued},digest={digest},signature={_text(signature)}"


def body_digest(body: bytes) -> str:
    """Returns the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def public_key(text: str) -> Ed25519PublicKey:
    """Parses a public key in the format of ``SigningKey.public``. Raises ValueError if it is invalid."""
    if not CONTROLLER_KEY.fullmatch(text):
        raise ValueError(f"{text!r} is not an Ed25519 public key (43 characters of base64url)")
    return Ed25519PublicKey.from_public_bytes(_bytes(text))


def verify_proof(key: Ed25519PublicKey, header: str | None, method: str, path: str, pod: str, now: int) -> Proof:
    """Verifies the header of a request to the pod ``pod`` at ``now`` (Unix time in nanoseconds). The caller compares
    the digest of the body. Raises ProofError."""
    matched = _FORM.fullmatch(header or "")
    if matched is None:
        raise ProofError("only the controller may call this: the request is not signed", missing=True)
    issued, digest = int(matched[1]), matched[2]
    try:
        key.verify(_bytes(matched[3]), _statement(method, path, pod, issued, digest))
    except InvalidSignature:
        reason = "the signature is not the controller's, or is for another request or another pod"
        raise ProofError(reason) from None
    seconds = (now - issued) / 1e9
    if abs(seconds) > WINDOW_SECONDS:
        skew = f"{abs(seconds):.0f} s {'old' if seconds > 0 else 'ahead'} by this node's clock"
        raise ProofError(
            f"the request is {skew}, but at most {WINDOW_SECONDS} s are allowed: synchronize the nodes' clocks"
        )
    return Proof(issued, digest)


def _statement(method: str, path: str, pod: str, issued: int, digest: str) -> bytes:
    """Returns the signed text: one line for each part, none of which can contain a line break."""
    return "\n".join((_CONTEXT, method, path, digest, pod, str(issued))).encode()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
