"""Proofs, by which a loader recognizes requests from the controller. Pure.

The controller signs each request with an Ed25519 key that no other process has. Every loader gets the public key, which
is not a secret, as an environment variable. Therefore no tenant's namespace contains a secret, and a compromised pod
cannot forge a request.

The signature covers the method, the path, the SHA-256 of the body, the pod's UID and the time. It is invalid for
another pod, request or body, and after :data:`WINDOW_SECONDS`. Within that time, a loader only accepts requests that
were signed after the last accepted request, which prevents replays. The proof is sent in the header ``Authorization``::

    Slipway-Ed25519 issued=NANOSECONDS,digest=HEX,signature=BASE64URL

The header contains the body's digest, so that a loader can reject other clients before it reads a body.
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
"""Largest accepted difference, in seconds, between a request's time and the loader's clock, in either direction."""
_CONTEXT = "slipway-loader-request-v1"
"""First line of the signed text. It makes signatures for other purposes invalid here."""
_FORM = re.compile(rf"{SCHEME} issued=([0-9]{{1,20}}),digest=([0-9a-f]{{64}}),signature=([A-Za-z0-9_-]{{86}})")


class ProofError(Exception):
    """The request does not come from the controller, or its time is not valid. The message contains the reason."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """Whether the proof is missing or malformed."""


class Proof(msgspec.Struct, frozen=True):
    """The content of a valid proof."""

    issued: int
    """Unix time in nanoseconds, by the controller's clock."""
    digest: str
    """SHA-256 of the body, in hexadecimal digits."""


class SigningKey:
    """The controller's private key. Its ``repr`` does not reveal the key."""

    def __init__(self, seed: bytes) -> None:
        """Create the key from its 32 secret bytes. Raise ValueError for any other length."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = _text(self._key.public_key().public_bytes_raw())
        """The public key, by which loaders recognize the controller, as text (see ``CONTROLLER_KEY``)."""

    @classmethod
    def generate(cls) -> SigningKey:
        """Generate a new random key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def seed(self) -> bytes:
        """The secret bytes of the key."""
        return self._key.private_bytes_raw()

    def proof(self, method: str, path: str, body: bytes, pod: str, issued: int) -> str:
        """Return the value of the ``Authorization`` header for one request. ``pod`` is the pod's UID, and ``issued``
        the Unix time in nanoseconds."""
        digest = body_digest(body)
        signature = self._key.sign(_statement(method, path, pod, issued, digest))
        return f"{SCHEME} issued={issued},digest={digest},signature={_text(signature)}"


def body_digest(body: bytes) -> str:
    """Return the SHA-256 of a request body in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def public_key(text: str) -> Ed25519PublicKey:
    """Parse a public key in the format of ``SigningKey.public``. Raise ValueError if it is invalid."""
    if not CONTROLLER_KEY.fullmatch(text):
        raise ValueError(f"{text!r} is not an Ed25519 public key (43 characters of base64url)")
    return Ed25519PublicKey.from_public_bytes(_bytes(text))


def verify_proof(key: Ed25519PublicKey, header: str | None, method: str, path: str, pod: str, now: int) -> Proof:
    """Return the content of a valid ``Authorization`` header. Raise ProofError if the header is missing or invalid.

    ``pod`` is the UID of the loader's pod, and ``now`` the Unix time in nanoseconds. The caller must compare the digest
    with the request's body.
    """
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
    """Return the text to sign: one line for each part. No part can contain a line break."""
    return "\n".join((_CONTEXT, method, path, digest, pod, str(issued))).encode()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
