"""Public keys of an issuer: what is taken, and what HAProxy gets of it."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from slipway.gateway import jwks
from slipway.gateway.jwks import MOST_KEYS, JwksError, map_of, parse_loaded, read, sweep

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


def test_each_key_verifies_one_algorithm_and_stands_in_a_certificate() -> None:
    found, problems = read(text(rsa_key(), rsa_key(kid="c", alg="PS384"), point()))
    assert problems == ()
    assert [(key.kid, key.algorithm) for key in found] == [("a", "RS256"), ("b", "ES256"), ("c", "PS384")]
    certificates = [x509.load_pem_x509_certificate(key.certificate.encode()) for key in found]
    assert [made.public_key() for made in certificates] == [RSA, POINT, RSA]


def test_the_same_keys_give_the_same_files_whatever_their_order() -> None:
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
        point(alg="RS256"),
        point(alg="ES384"),
        point(y=number(5)),
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
    ],
)
def test_a_key_that_cannot_be_used_is_left_out_and_told(entry: object) -> None:
    found, problems = read(text(entry, point(kid="good")))
    assert [key.kid for key in found] == ["good"]
    assert problems[0].startswith("key 0: ")


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b'{"keys": 5}', text(), text({"kty": "oct"}), b"[" * 9999, b" " * (1 << 19)]
)
def test_an_answer_without_a_usable_key_is_refused(answer: bytes) -> None:
    with pytest.raises(JwksError):
        read(answer)


def test_of_keys_of_one_name_the_first_counts_and_their_number_is_bounded() -> None:
    found, problems = read(text(rsa_key(), point(kid="a")))
    assert ([key.algorithm for key in found], len(problems)) == (["RS256"], 1)
    found, problems = read(text(*(point(kid=str(kid)) for kid in range(MOST_KEYS + 5))))
    assert (len(found), len(problems)) == (MOST_KEYS, 1)


def test_the_map_leads_from_a_hash_to_algorithm_and_file() -> None:
    found, _unused = read(text(rsa_key(kid="a b\n; del"), point()))
    entries = map_of("/run", found)
    digest = hashlib.sha256(b"a b\n; del").hexdigest().upper()
    assert entries[digest] == f"RS256:/run/{found[0].file}"
    assert "-" not in entries, "a token that names no key could mean either"


def test_a_token_may_name_no_key_where_there_is_one() -> None:
    found, _unused = read(text(point()))
    assert map_of("/run", found)["-"] == f"ES256:/run/{found[0].file}"


def test_files_of_keys_that_are_gone_are_deleted(tmp_path: Path) -> None:
    found, _unused = read(text(rsa_key(), point()))
    (tmp_path / jwks.FOLDER).mkdir()
    for key in found:
        (tmp_path / key.file).write_text(key.certificate)
    sweep(tmp_path, found[:1])
    assert list((tmp_path / jwks.FOLDER).iterdir()) == [tmp_path / found[0].file]


def test_what_haproxy_has_is_read_from_its_answer() -> None:
    assert parse_loaded("# filename\n/run/jwt/a.pem\n/run/jwt/b.pem\n") == ["/run/jwt/a.pem", "/run/jwt/b.pem"]
