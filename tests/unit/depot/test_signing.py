"""Registry tokens: what they say, and who can tell that they are the depot's."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from slipway.depot.credentials import signing
from slipway.depot.credentials.signing import Access, Signer

from .conftest import NOW, PEM

PULL = Access("repository", "cluster/a/1", ("pull",))


def raw(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def read(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims, _unused = token.split(".")
    return json.loads(raw(header)), json.loads(raw(claims))


def verify(token: str, entry: dict[str, str]) -> None:
    """As a registry does, with an entry of its set of keys."""
    x, y = (int.from_bytes(raw(entry[name])) for name in "xy")
    key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    text, _unused, signature = token.rpartition(".")
    r, s = (int.from_bytes(half) for half in (raw(signature)[:32], raw(signature)[32:]))
    key.verify(encode_dss_signature(r, s), text.encode(), ec.ECDSA(hashes.SHA256()))


def test_a_token_names_issuer_audience_times_and_access(signer: Signer):
    header, claims = read(signer.sign("user", [PULL], NOW))
    assert header == {"typ": "JWT", "alg": "ES256", "kid": signer.public["kid"]}
    assert len(claims.pop("jti")) == 16
    assert claims == {
        "iss": "slipway-depot",
        "sub": "user",
        "aud": "slipway-registry",
        "iat": NOW,
        "nbf": NOW - 10,
        "exp": NOW + 300,
        "access": [{"type": "repository", "name": "cluster/a/1", "actions": ["pull"]}],
    }


def test_the_signature_holds_with_the_published_key_and_with_no_other(signer: Signer):
    token = signer.sign("user", [PULL], NOW)
    [entry] = json.loads(signing.key_set(PEM))["keys"]
    verify(token, entry)
    [other] = json.loads(signing.key_set(signing.generate_key()))["keys"]
    with pytest.raises(InvalidSignature):
        verify(token, other)


def test_a_signature_always_has_64_bytes(signer: Signer):
    assert {len(raw(signer.sign("a", [], NOW).rpartition(".")[2])) for _unused in range(600)} == {64}


def test_a_published_key_is_named_by_its_thumbprint():
    [entry] = json.loads(signing.key_set(PEM))["keys"]
    bare = {name: entry[name] for name in ("crv", "kty", "x", "y")}
    digest = hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).digest()
    assert raw(entry["kid"]) == digest
    assert entry.keys() == {*bare, "kid", "alg", "use"}


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"SECRET rubbish",
        rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        ec.generate_private_key(ec.SECP384R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    ],
    ids=["nothing", "rubbish", "RSA", "P-384"],
)
def test_an_invalid_key_is_rejected_and_not_shown(pem: bytes):
    with pytest.raises(ValueError, match=r"\Ait has no private key on the curve P-256\Z"):
        signing.key_set(pem)
