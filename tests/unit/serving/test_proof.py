"""A proof is valid for one request to one pod for a minute, and cannot be created without the key."""

from __future__ import annotations

import re

import pytest

from slipway.serving.wire.agent import CONTROLLER_KEY
from slipway.serving.wire.proof import Proof, ProofError, SigningKey, body_digest, public_key, verify_proof

KEY = SigningKey(bytes(range(32)))
NOW = 1_900_000_000 * 10**9
REQUEST = {"method": "PUT", "path": "/v1/adapters", "pod": "u-1"}


def check(header: str | None, now: int = NOW, **fields: str) -> Proof:
    return verify_proof(public_key(KEY.public), header, now=now, **(REQUEST | fields))


def header() -> str:
    return KEY.proof(**REQUEST, body=b"[]", issued=NOW)


def test_a_proof_says_when_it_was_made_and_of_which_body() -> None:
    assert check(header()) == Proof(NOW, body_digest(b"[]"))


@pytest.mark.parametrize(
    "requested", [{"method": "GET"}, {"path": "/v1/state"}, {"path": "/v1/adapters?x"}, {"pod": "u-2"}]
)
def test_it_is_good_for_nothing_else(requested: dict[str, str]) -> None:
    with pytest.raises(ProofError, match="is for another request or another pod") as caught:
        check(header(), **requested)
    assert not caught.value.missing


@pytest.mark.parametrize("part", ["issued", "digest", "signature"])
def test_none_of_its_parts_can_be_changed(part: str) -> None:
    other = KEY.proof(**REQUEST, body=b"[1]", issued=NOW + 1)
    taken = re.search(rf"{part}=[^,]+", other)
    assert taken is not None
    with pytest.raises(ProofError, match="not the controller's"):
        check(re.sub(rf"{part}=[^,]+", taken[0], header()))


@pytest.mark.parametrize("given", [None, "", "Bearer x", header() + " ", header().lower(), "Slipway-Ed25519 "])
def test_a_malformed_proof_counts_as_missing(given: str | None) -> None:
    with pytest.raises(ProofError) as caught:
        check(given)
    assert caught.value.missing


@pytest.mark.parametrize("seconds", [-60, 0, 60])
def test_a_minute_either_way_is_allowed(seconds: int) -> None:
    assert check(header(), NOW + seconds * 10**9).issued == NOW


@pytest.mark.parametrize(("seconds", "expected"), [(61, "61 s old"), (-61, "61 s ahead"), (10**9, "1000000000 s old")])
def test_beyond_it_the_clocks_are_named(seconds: int, expected: str) -> None:
    with pytest.raises(ProofError, match=f"{expected} by this node's clock.*synchronize the nodes' clocks"):
        check(header(), NOW + seconds * 10**9)


def test_keys_are_text_that_needs_no_quotes_and_the_private_one_shows_nowhere() -> None:
    assert CONTROLLER_KEY.fullmatch(KEY.public)
    assert SigningKey(KEY.seed).public == KEY.public
    assert SigningKey.generate().public != SigningKey.generate().public
    assert not {KEY.seed.hex(), str(KEY.seed)} & {repr(KEY), str(vars(KEY))}


@pytest.mark.parametrize("text", ["", "x" * 42, "x" * 44, "/" * 43])
def test_an_invalid_key_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an Ed25519 public key"):
        public_key(text)
