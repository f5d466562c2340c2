"""Public keys of a JWT issuer: parses a JWKS (RFC 7517), and builds certificates with which HAProxy verifies
signatures.

At run time, HAProxy can load new public keys only from certificates. Each key therefore gets a certificate, whose own
signature has no meaning. The name of a certificate's file is a hash of its content, so a file never changes.

The key, not the token, determines the algorithm of a signature. A public key is therefore never used as an HMAC secret.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from slipway.decoding import DecodingError, decode_json

MOST_BYTES = 256 << 10
"""Maximum size of a JWKS in bytes."""
MOST_KEYS = 32
"""Maximum number of keys in a JWKS. Further keys are ignored."""
RS256, ES256 = "RS256", "ES256"
FOLDER = "jwt"
"""Name of the directory with the certificates, below the shared directory."""
MAP = "jwt.map"
SHOW_CERTIFICATES = "show ssl jwt"
"""HAProxy's command that lists the loaded certificates."""
_ANONYMOUS = "-"
"""Key of the map entry for tokens without a ``kid``."""
_RSA_BITS = range(2048, 4097)
_MOST_EXPONENT = 1 << 32
_SIGNER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slipway")])
_FROM, _UNTIL = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(2999, 1, 1, tzinfo=dt.UTC)


class VerificationKey(NamedTuple):
    """A public key that verifies signatures."""

    kid: str
    """Key ID with which tokens refer to the key; empty if the key has no ID."""
    algorithm: str
    certificate: str
    """Certificate in PEM format that contains the key."""

    @property
    def file(self) -> str:
        """Path of the certificate's file below the shared directory."""
        return f"{FOLDER}/{hashlib.sha256(self.certificate.encode()).hexdigest()[:32]}.pem"


class JwksError(ValueError):
    """A JWKS is invalid or has no usable key. The message has the reason."""


class UnusableKeyError(ValueError):
    """A key in a JWKS is not usable. The message has the reason."""


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


def parse_jwks(text: bytes, algorithms: Collection[str]) -> tuple[tuple[VerificationKey, ...], tuple[str, ...]]:
    """Return the usable keys in a JWKS, and a message for each ignored key. All keys above ``MOST_KEYS`` have one
    message.

    Raise JwksError if the JWKS is invalid or no key is usable.
    """
    try:
        entries = decode_json(text, _Jwks, most=MOST_BYTES).keys
    except DecodingError as error:
        raise JwksError(f"not a JWKS: {error}") from error
    keys: dict[str, VerificationKey] = {}
    problems = []
    for number, entry in enumerate(entries[:MOST_KEYS]):
        try:
            key = _parse_key(entry, keys, algorithms)
            keys[key.kid] = key
        except UnusableKeyError as error:
            problems.append(f"key {number}: {error}")
    if len(entries) > MOST_KEYS:
        problems.append(f"only the first {MOST_KEYS} of {len(entries)} keys are used")
    if not keys:
        raise JwksError("; ".join(["no usable key", *problems])[:500])
    return tuple(sorted(keys.values())), tuple(problems)


def map_entries(run_directory: str, keys: Iterable[VerificationKey]) -> dict[str, str]:
    """Return the map from the upper-case SHA-256 of each ``kid`` to ``ALGORITHM:PATH``. PATH is the path of the key's
    certificate.

    If there is only one key, the map also has an entry for tokens without a ``kid``. With several keys, such tokens are
    ambiguous and rejected.
    """
    entries = {_digest(key.kid): f"{key.algorithm}:{run_directory}/{key.file}" for key in keys}
    return entries | dict.fromkeys((_ANONYMOUS,), *entries.values()) if len(entries) == 1 else entries


def parse_loaded(answer: str) -> list[str]:
    """Return the paths of the loaded certificates, from HAProxy's answer to ``SHOW_CERTIFICATES``."""
    return [line for line in answer.splitlines() if line and not line.startswith("#")]


def delete_unused(directory: Path, keys: Iterable[VerificationKey]) -> None:
    """Delete the certificate files of all keys except ``keys``. ``directory`` is the shared directory."""
    current = {key.file for key in keys}
    for path in (directory / FOLDER).glob("*.pem"):
        if f"{FOLDER}/{path.name}" not in current:
            path.unlink(missing_ok=True)


def _digest(kid: str) -> str:
    return hashlib.sha256(kid.encode()).hexdigest().upper()


def _parse_key(entry: msgspec.Raw, earlier: Container[str], algorithms: Collection[str]) -> VerificationKey:
    """Parse one key of a JWKS. ``earlier`` contains the ``kid`` of each earlier key. Raise UnusableKeyError if the key
    is not usable; the message contains no text from the JWKS."""
    try:
        jwk = decode_json(entry, _Jwk, most=MOST_BYTES)
    except DecodingError as error:
        raise UnusableKeyError("not a JWK") from error
    if jwk.kid in earlier:
        raise UnusableKeyError("an earlier key has the same kid")
    if jwk.use != "sig" or "verify" not in jwk.key_ops:
        raise UnusableKeyError("not for signatures")
    if jwk.d is not None:
        raise UnusableKeyError("a private key, so it is no longer secret")
    if jwk.kty not in _READERS:
        raise UnusableKeyError("neither RSA nor EC")
    algorithm, reader = _READERS[jwk.kty]
    if jwk.alg not in ("", algorithm):
        raise UnusableKeyError(f"its alg is not {algorithm}")
    if algorithm not in algorithms:
        raise UnusableKeyError(f"{algorithm} is not one of the allowed algorithms")
    return VerificationKey(jwk.kid, algorithm, _certificate(reader(jwk)))


def _rsa_key(jwk: _Jwk) -> rsa.RSAPublicKey:
    modulus, exponent = _decode_integer(jwk.n), _decode_integer(jwk.e)
    if modulus.bit_length() not in _RSA_BITS or exponent > _MOST_EXPONENT:
        raise UnusableKeyError(f"its modulus does not have {_RSA_BITS[0]} to {_RSA_BITS[-1]} bits, or e is too large")
    try:
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError as error:
        raise UnusableKeyError("not a valid RSA key") from error


def _ec_key(jwk: _Jwk) -> ec.EllipticCurvePublicKey:
    if jwk.crv != "P-256":
        raise UnusableKeyError("its curve is not P-256")
    try:
        return ec.EllipticCurvePublicNumbers(
            _decode_integer(jwk.x), _decode_integer(jwk.y), ec.SECP256R1()
        ).public_key()
    except ValueError as error:
        raise UnusableKeyError("not a point on its curve") from error


_Reader = Callable[[_Jwk], rsa.RSAPublicKey | ec.EllipticCurvePublicKey]
_READERS: Mapping[str, tuple[str, _Reader]] = {"RSA": (RS256, _rsa_key), "EC": (ES256, _ec_key)}
ALGORITHMS = tuple(algorithm for algorithm, _reader in _READERS.values())


def _decode_integer(text: str) -> int:
    """Decode a number in base64url. Raise UnusableKeyError if the text is not base64url."""
    try:
        return int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), "big")
    except ValueError as error:
        raise UnusableKeyError("a number is not base64url") from error


def _certificate(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    """Return a certificate for ``key`` in PEM format. Equal keys give equal text."""
    builder = x509.CertificateBuilder(_NAME, _NAME, key, 1, _FROM, _UNTIL)
    return builder.sign(_SIGNER, None).public_bytes(Encoding.PEM).decode()
