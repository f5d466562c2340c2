"""Proof: how a loader knows that a request comes from the controller. Pure.

The controller signs each request with an Ed25519 key that it alone has; every loader gets the public key, which is no
secret, as a variable. So no tenant's namespace holds a secret, and a stolen pod can forge nothing. The signature covers
the method, the path, the SHA-256 of the body, the uid of the pod that is asked and the time: it is worth nothing for
another pod, another request or another body, nor after :data:`WINDOW_SECONDS`. Within that time a loader takes no order
that was not signed after the last one it took, which rules out a replay.

The proof travels in the header ``Authorization``::

    Slipway-Ed25519 issued=NANOSECONDS,digest=HEX,signature=BASE64URL

It carries the body's digest, so that a loader refuses a stranger before it reads any body.
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
"""How far the time of a request may be from the loader's clock, either way."""
_CONTEXT = "slipway-loader-request-v1"
"""First line of what is signed: a signature made for anything else proves nothing here."""
_FORM = re.compile(rf"{SCHEME} issued=([0-9]{{1,20}}),digest=([0-9a-f]{{64}}),signature=([A-Za-z0-9_-]{{86}})")


class ProofError(Exception):
    """The request does not come from the controller, or not now. The message has the reason."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """Whether there is no proof at all, or nothing that looks like one."""


class Proof(msgspec.Struct, frozen=True):
    """What a valid signature proves, in addition to the request line."""

    issued: int
    """Unix time in nanoseconds, by the controller's clock."""
    digest: str
    """SHA-256 of the body, in hexadecimal digits."""


class SigningKey:
    """The controller's private key. Its ``repr`` shows nothing of it."""

    def __init__(self, seed: bytes) -> None:
        """``seed``: the key's 32 bytes. Raises ValueError for any other number."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = _text(self._key.public_key().public_bytes_raw())
        """What loaders know the controller by, as text (see ``CONTROLLER_KEY``)."""

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def seed(self) -> bytes:
        """The secret itself."""
        return self._key.private_bytes_raw()

    def proof(self, method: str, path: str, body: bytes, pod: str, issued: int) -> str:
        """The header's value for one request. ``pod`` is the uid of the pod; ``issued`` as in :class:`Proof`."""
        digest = body_digest(body)
        signature = self._key.sign(_statement(method, path, pod, issued, digest))
        return f"{SCHEME} issued={issued},digest={digest},signature={_text(signature)}"


def body_digest(body: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def public_key(text: str) -> Ed25519PublicKey:
    """Raises ValueError for an invalid public key, which ``SigningKey.public`` writes."""
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
