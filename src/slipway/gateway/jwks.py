"""Public keys of an issuer of tokens: a JWKS (RFC 7517) in, and what HAProxy verifies signatures by out.

HAProxy takes a new public key while it runs only within a certificate. So each key gets one around it, with a signature
that anybody could make and nobody looks at. Its file is named by what it holds: a file never changes.

Each key verifies one algorithm, which the key says and not the token: so a public key is never taken for a secret.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from slipway.decoding import DecodingError, decode_json

MOST_BYTES = 256 << 10
"""Of a JWKS."""
MOST_KEYS = 32
"""Of one issuer, beyond which the others are left out."""
FOLDER = "jwt"
"""Of the files, in the shared directory."""
MAP = "jwt.map"
SHOW = "show ssl jwt"
"""The command that asks HAProxy which keys it has."""
_ONLY = "-"
"""Entry of the map for tokens that name no key."""
_RSA_BITS = range(2048, 4097)
_MOST_EXPONENT = 1 << 32
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Mapping[str, tuple[ec.EllipticCurve, str]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
_SIGNER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slipway")])
_FROM, _UNTIL = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(2999, 1, 1, tzinfo=dt.UTC)


class VerificationKey(NamedTuple):
    """A key that signatures are held against."""

    kid: str
    """By which tokens name it; empty: they do not."""
    algorithm: str
    certificate: str
    """PEM."""

    @property
    def file(self) -> str:
        """Its path below the shared directory."""
        return f"{FOLDER}/{hashlib.sha256(self.certificate.encode()).hexdigest()[:32]}.pem"


class JwksError(ValueError):
    """There is no usable key; the message says why."""


class UnusableKeyError(ValueError):
    """One key cannot be used; the message says why."""


class _Jwk(msgspec.Struct, frozen=True):
    kty: str = ""
    kid: str = ""
    alg: str = ""
    use: str = "sig"
    key_ops: tuple[str, ...] = ("verify",)
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""
    d: Any = None


class _Jwks(msgspec.Struct, frozen=True):
    keys: list[msgspec.Raw]


def read(text: bytes) -> tuple[tuple[VerificationKey, ...], tuple[str, ...]]:
    """The keys of a JWKS, and which ones of it are left out and why. Raises JwksError where none is usable."""
    try:
        entries = decode_json(text, _Jwks, most=MOST_BYTES).keys
    except DecodingError as error:
        raise JwksError(f"this is no JWKS: {error}") from error
    found: dict[str, VerificationKey] = {}
    problems = []
    for number, entry in enumerate(entries[:MOST_KEYS]):
        try:
            key = _read(entry, found)
            found[key.kid] = key
        except UnusableKeyError as error:
            problems.append(f"key {number}: {error}")
    if len(entries) > MOST_KEYS:
        problems.append(f"there are more than {MOST_KEYS} keys")
    if not found:
        raise JwksError("; ".join(["it has no usable key", *problems])[:500])
    return tuple(sorted(found.values())), tuple(problems)


def map_of(run_directory: str, keys: Iterable[VerificationKey]) -> dict[str, str]:
    """``ALGORITHM:PATH`` of each key, by the SHA-256 of its ``kid`` as HAProxy's ``hex`` writes it."""
    found = {_digest(key.kid): f"{key.algorithm}:{run_directory}/{key.file}" for key in keys}
    return found | dict.fromkeys((_ONLY,), *found.values()) if len(found) == 1 else found


def parse_loaded(answer: str) -> list[str]:
    """Paths of the files that HAProxy has, of its answer to SHOW."""
    return [line for line in answer.splitlines() if line and not line.startswith("#")]


def sweep(directory: Path, keys: Iterable[VerificationKey]) -> None:
    """Deletes the files of keys that are not among these."""
    wanted = {key.file for key in keys}
    for path in (directory / FOLDER).glob("*.pem"):
        if f"{FOLDER}/{path.name}" not in wanted:
            path.unlink(missing_ok=True)


def _digest(kid: str) -> str:
    return hashlib.sha256(kid.encode()).hexdigest().upper()


def _read(entry: msgspec.Raw, before: Container[str]) -> VerificationKey:
    """Raises UnusableKeyError, whose message quotes nothing that a stranger wrote."""
    try:
        jwk = decode_json(entry, _Jwk, most=MOST_BYTES)
    except DecodingError as error:
        raise UnusableKeyError("it is no JWK") from error
    if jwk.kid in before:
        raise UnusableKeyError("another one has the same kid")
    if jwk.use != "sig" or "verify" not in jwk.key_ops:
        raise UnusableKeyError("it is not for signatures")
    if jwk.kty not in ("RSA", "EC"):
        raise UnusableKeyError("it is neither of RSA nor of an elliptic curve")
    if jwk.d is not None:
        raise UnusableKeyError("it is a private key, and so everybody's")
    algorithm, public = _rsa(jwk) if jwk.kty == "RSA" else _elliptic(jwk)
    return VerificationKey(jwk.kid, algorithm, _certificate(public))


def _rsa(jwk: _Jwk) -> tuple[str, rsa.RSAPublicKey]:
    algorithm = jwk.alg or "RS256"
    if algorithm not in _RSA:
        raise UnusableKeyError(f"its algorithm is none of {', '.join(_RSA)}")
    modulus, exponent = _integer(jwk.n), _integer(jwk.e)
    if modulus.bit_length() not in _RSA_BITS or exponent > _MOST_EXPONENT:
        raise UnusableKeyError(
            f"its modulus is not of {_RSA_BITS[0]} to {_RSA_BITS[-1]} bits, or its exponent too large"
        )
    try:
        return algorithm, rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError as error:
        raise UnusableKeyError("it is no RSA key") from error


def _elliptic(jwk: _Jwk) -> tuple[str, ec.EllipticCurvePublicKey]:
    if jwk.crv not in _CURVES:
        raise UnusableKeyError(f"its curve is none of {', '.join(_CURVES)}")
    curve, algorithm = _CURVES[jwk.crv]
    if jwk.alg not in ("", algorithm):
        raise UnusableKeyError(f"its algorithm is not {algorithm}, as that of its curve")
    try:
        return algorithm, ec.EllipticCurvePublicNumbers(_integer(jwk.x), _integer(jwk.y), curve).public_key()
    except ValueError as error:
        raise UnusableKeyError("it is no point of its curve") from error


def _integer(text: str) -> int:
    """A number in base64url. Raises UnusableKeyError."""
    try:
        return int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), "big")
    except ValueError as error:
        raise UnusableKeyError("one of its numbers is no base64url") from error


def _certificate(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    """The same text for the same key."""
    builder = x509.CertificateBuilder(_NAME, _NAME, key, 1, _FROM, _UNTIL)
    return builder.sign(_SIGNER, None).public_bytes(Encoding.PEM).decode()
