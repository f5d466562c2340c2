"""Public keys of an issuer: usable ones, and their files for HAProxy."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from slipway.gateway.rules import jwks
from slipway.gateway.rules.jwks import (
    ALGORITHMS,
    MOST_KEYS,
    JwksError,
    VerificationKey,
    delete_unused,
    map_entries,
    parse_loaded,
)

RSA = rsa.generate_private_key(65537, 2048).public_key()
POINT = ec.generate_private_key(ec.SECP256R1()).public_key()


def number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()


def rsa_key(**changed: Any) -> dict[str, Any]:
    numbers = RSA.public_numbers()
    return {"kty": "RSA", "kid": "a", "use": "sig", "n": number(numbers.n), "e": number(numbers.e)} | changed


def point(**changed: Any) -> dict[str, Any]:
    numbers = POINT.public_numbers()
    return {"kty": "EC", "kid": "b", "crv": "P-256", "x": number(numbers.x), "y": number(numbers.y)} | changed


def text(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def read(answer: bytes, *algorithms: str) -> tuple[tuple[VerificationKey, ...], tuple[str, ...]]:
    return jwks.parse_jwks(answer, algorithms or ALGORITHMS)


def test_each_key_verifies_one_algorithm_and_has_a_certificate() -> None:
    keys, problems = read(text(rsa_key(), rsa_key(kid="c", alg="RS256"), point()))
    assert problems == ()
    assert [(key.kid, key.algorithm) for key in keys] == [("a", "RS256"), ("b", "ES256"), ("c", "RS256")]
    certificates = [x509.load_pem_x509_certificate(key.certificate.encode()) for key in keys]
    assert [certificate.public_key() for certificate in certificates] == [RSA, POINT, RSA]


def test_only_keys_of_allowed_algorithms_are_usable() -> None:
    keys, problems = read(text(rsa_key(), point()), "ES256")
    assert ([key.kid for key in keys], len(problems)) == (["b"], 1)
    with pytest.raises(JwksError, match="RS256 is not one of the allowed algorithms"):
        read(text(rsa_key()), "ES256")


def test_equal_keys_give_equal_files_in_any_order() -> None:
    assert read(text(rsa_key(), point())) == read(text(point(), rsa_key()))


@pytest.mark.parametrize(
    "entry",
    [
        4,
        {},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"},
        rsa_key(alg="HS256"),
        rsa_key(alg="none"),
        rsa_key(alg="ES256"),
        rsa_key(alg="RS512"),
        rsa_key(alg="PS256"),
        rsa_key(use="enc"),
        rsa_key(key_ops=["encrypt"]),
        rsa_key(d="AQAB"),
        rsa_key(kid=5),
        rsa_key(n="!!"),
        rsa_key(n="ä"),
        rsa_key(n=""),
        rsa_key(n=number((1 << 1023) + 1)),
        rsa_key(n=number((1 << 16383) + 1)),
        rsa_key(e=number((1 << 64) + 1)),
        rsa_key(e=""),
        rsa_key(e="Ag"),
        point(crv="P-192"),
        point(crv="P-384"),
        point(alg="RS256"),
        point(alg="ES384"),
        point(y=number(5)),
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
    ],
)
def test_an_unusable_key_is_ignored_and_reported(entry: object) -> None:
    keys, problems = read(text(entry, point(kid="good")))
    assert [key.kid for key in keys] == ["good"]
    assert problems[0].startswith("key 0: ")


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b'{"keys": 5}', text(), text({"kty": "oct"}), b"[" * 9999, b" " * (1 << 19)]
)
def test_an_answer_without_a_usable_key_is_rejected(answer: bytes) -> None:
    with pytest.raises(JwksError):
        read(answer)


def test_the_first_of_several_keys_with_one_name_counts_and_their_number_is_bounded() -> None:
    keys, problems = read(text(rsa_key(), point(kid="a")))
    assert ([key.algorithm for key in keys], len(problems)) == (["RS256"], 1)
    keys, problems = read(text(*(point(kid=str(kid)) for kid in range(MOST_KEYS + 5))))
    assert (len(keys), len(problems)) == (MOST_KEYS, 1)


def test_the_map_has_algorithm_and_file_by_the_hash_of_the_key_id() -> None:
    keys, _unused = read(text(rsa_key(kid="a b\n; del"), point()))
    entries = map_entries("/run", keys)
    digest = hashlib.sha256(b"a b\n; del").hexdigest().upper()
    assert entries[digest] == f"RS256:/run/{keys[0].file}"
    assert "-" not in entries, "a token without a key ID is ambiguous"


def test_a_token_needs_no_key_id_if_there_is_only_one_key() -> None:
    keys, _unused = read(text(point()))
    assert map_entries("/run", keys)["-"] == f"ES256:/run/{keys[0].file}"


def test_files_of_removed_keys_are_deleted(tmp_path: Path) -> None:
    keys, _unused = read(text(rsa_key(), point()))
    (tmp_path / jwks.FOLDER).mkdir()
    for key in keys:
        (tmp_path / key.file).write_text(key.certificate)
    delete_unused(tmp_path, keys[:1])
    assert list((tmp_path / jwks.FOLDER).iterdir()) == [tmp_path / keys[0].file]


def test_loaded_certificates_are_read_from_haproxys_answer() -> None:
    assert parse_loaded("# filename\n/run/jwt/a.pem\n/run/jwt/b.pem\n") == ["/run/jwt/a.pem", "/run/jwt/b.pem"]
