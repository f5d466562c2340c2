"""Registry tokens: permissions for operations on repositories, valid for a few minutes and signed with the depot's key.
Pure.

The tokens are JSON Web Tokens with the algorithm ES256, which the registry's token authentication requires. The
registry has the public key as a JSON Web Key Set (JWKS).
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_COORDINATE_BYTES = 32
LEEWAY_SECONDS = 10
"""Seconds by which tokens are backdated, for registries whose clocks are slow."""


class Access(msgspec.Struct, frozen=True):
    """The permitted actions on one resource of the registry, in the terms of the registry's token protocol."""

    type: str
    """Type of the resource: ``repository`` or ``registry``."""
    name: str
    actions: tuple[str, ...]
    """For a repository ``pull``, ``push`` or ``delete``; for the registry ``*``."""


class Signer:
    """The depot's private key, with a method that signs registry tokens. Its ``repr`` does not reveal the key."""

    def __init__(self, pem: bytes, *, issuer: str, audience: str, seconds: int) -> None:
        """Load the private key ``pem``, and sign tokens with a lifetime of ``seconds``. Raise ValueError if the key is
        invalid or not on the curve P-256."""
        self._key = _key(pem)
        self._issuer, self._audience, self.seconds = issuer, audience, seconds
        self.public = public(self._key)
        """The public key as a JSON Web Key."""

    def sign(self, subject: str, access: Sequence[Access], now: float) -> str:
        """Return a signed token with the permissions in ``access``. ``subject`` appears in the registry's log. ``now``
        is in Unix seconds."""
        issued = int(now)
        header = {"typ": "JWT", "alg": "ES256", "kid": self.public["kid"]}
        claims = {
            "iss": self._issuer,
            "sub": subject,
            "aud": self._audience,
            "iat": issued,
            "nbf": issued - LEEWAY_SECONDS,
            "exp": issued + self.seconds,
            "jti": secrets.token_hex(8),
            "access": access,
        }
        text = f"{_text(msgspec.json.encode(header))}.{_text(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_text(r.to_bytes(_COORDINATE_BYTES) + s.to_bytes(_COORDINATE_BYTES))}"


def generate_key() -> bytes:
    """Return a new private key in PEM format."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def key_set(pem: bytes) -> str:
    """Return, as JSON text, the JSON Web Key Set with the public key that belongs to the private key ``pem``. Raise
    ValueError if the key is invalid or not on the curve P-256."""
    return msgspec.json.encode({"keys": [public(_key(pem))]}).decode()


def public(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Return the public key of ``key``, a private key on the curve P-256, as a JSON Web Key. Its ID is the public key's
    thumbprint (RFC 7638)."""
    numbers = key.public_key().public_numbers()
    bare = {
        "crv": "P-256",
        "kty": "EC",
        "x": _text(numbers.x.to_bytes(_COORDINATE_BYTES)),
        "y": _text(numbers.y.to_bytes(_COORDINATE_BYTES)),
    }
    thumbprint = _text(hashlib.sha256(msgspec.json.encode(bare)).digest())
    return {**bare, "kid": thumbprint, "alg": "ES256", "use": "sig"}


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # never show the content
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError("it has no private key on the curve P-256")


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
