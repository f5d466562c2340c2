"""API keys of a Secret."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from typing import Any

import pytest

from slipway.gateway.routing.keys import (
    REFUSED,
    RIGHTS,
    Keyring,
    Limits,
    Rights,
    build_keyring,
    get_limits,
    get_rights,
    hash_keys,
)

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def secret(**values: bytes) -> dict[str, dict[str, str]]:
    return {"data": {name: base64.b64encode(value).decode() for name, value in values.items()}}


def test_only_hashes_leave() -> None:
    expected = hashlib.sha256(b"sk-1").hexdigest().upper()
    assert hash_keys(secret(alice=b"sk-1\n")) == ((expected, "alice"),)


def test_empty_values_and_a_missing_secret_give_no_keys() -> None:
    assert hash_keys(secret(empty=b"", space=b" \n")) == ()
    assert hash_keys({}) == hash_keys(None) == ()


def test_equal_keys_count_once() -> None:
    assert [name for _unused, name in hash_keys(secret(b=b"same", a=b"same"))] == ["a"]


def with_rights(rights: object, **values: bytes) -> dict[str, Any]:
    text = rights if isinstance(rights, str) else json.dumps(rights)
    return secret(**(values or {"alice": b"sk-1", "bob": b"sk-2"})) | {"metadata": {"annotations": {RIGHTS: text}}}


def read(
    keys_secret: dict[str, Any], before: Keyring | None = None, *, now: dt.datetime = NOW, counted: bool = True
) -> tuple[Keyring, tuple[str, ...]]:
    return build_keyring(keys_secret, before or Keyring(), now, tokens_counted=counted)


def names(ring: Keyring) -> set[str]:
    return {name for _unused, name in ring.hashes}


def test_rights_are_read_by_name_of_the_key() -> None:
    given = {
        "owner": "search",
        "models": ["m", "team/*"],
        "requestsPerMinute": 5,
        "tokensPerMinute": 7,
        "requestsAtOnce": 2,
    }
    ring, problems = read(with_rights({"alice": given}))
    assert (names(ring), problems) == ({"alice", "bob"}, ())
    assert ring.rights["alice"].limits.text == "5:7:2::"
    assert ring.rights["alice"].restricted
    assert "bob" not in ring.rights


@pytest.mark.parametrize(
    "nonsense",
    [
        {"requestsPerMinute": -1},
        {"requestsPerMinute": 0},
        {"tokensPerMinute": 1.5},
        {"requestsPerDay": 0},
        {"tokensPerDay": "5"},
        {"requestsAtOnce": "3"},
        {"requestsAtOnce": 10**30},
        {"unknown": 1},
        {"models": "m"},
        {"selector": "a ==== b"},
        {"ends": "tomorrow"},
        {"ends": "2030-01-01T00:00:00"},
        [],
        None,
    ],
    ids=str,
)
def test_a_key_with_invalid_rights_keeps_its_last_valid_ones(nonsense: object) -> None:
    good, _unused = read(with_rights({"alice": {"requestsPerMinute": 5}}))
    ring, problems = read(with_rights({"alice": nonsense, "bob": {"owner": "b"}}), good)
    assert ring.rights == {"alice": Rights(requests_per_minute=5), "bob": Rights(owner="b")}
    assert len(problems) == 1
    assert "alice" in problems[0]
    fresh, _unused = read(with_rights({"alice": nonsense}))
    assert names(fresh) == {"bob"}, "what it may do has never been known"


@pytest.mark.parametrize("text", ["", "{", "[]", "{" * 1000, '{"alice": NaN}', "x" * 300_000], ids=range(6))
def test_an_annotation_that_cannot_be_read_changes_no_rights(text: str) -> None:
    good, _unused = read(with_rights({"alice": {"requestsPerMinute": 5}}))
    ring, problems = read(with_rights(text), good)
    assert ring == good
    assert len(problems) == 1
    assert names(read(with_rights(text))[0]) == set(), "at startup, all requests are rejected"


def test_a_key_ends() -> None:
    keys_secret = with_rights({"alice": {"ends": "2026-11-23T01:00:00+01:00"}, "bob": {"ends": "2026-11-23T00:00:01Z"}})
    assert names(read(keys_secret)[0]) == {"bob"}
    assert names(read(keys_secret, now=NOW + dt.timedelta(seconds=1))[0]) == set()
    assert names(read(keys_secret, now=NOW - dt.timedelta(seconds=1))[0]) == {"alice", "bob"}


def test_token_limits_require_token_counting() -> None:
    ring, problems = read(with_rights({"alice": {"tokensPerMinute": 5}}), counted=False)
    assert names(ring) == {"bob"}
    assert "countTokens" in problems[0]


def test_limits_per_day_follow_the_others() -> None:
    ring, problems = read(with_rights({"alice": {"requestsPerDay": 5, "tokensPerDay": 9}}))
    own = ring.rights["alice"].limits
    assert (own.text, own.shared, problems) == (":::5:9", True, ())
    assert not Limits(at_once=3).shared


def test_a_subject_without_an_entry_has_the_limits_of_all_subjects() -> None:
    limits = {"jwt:*": Limits(requests=5), "jwt:a": Limits(requests=1)}
    assert get_limits(limits, "jwt:a") == Limits(requests=1)
    assert get_limits(limits, "jwt:b") == Limits(requests=5)
    assert get_limits(limits, "b") is None


SUBJECTS = {"jwt:alice@example.org": {"models": ["m"]}, "jwt:*": {"requestsPerMinute": 5}}


def test_subjects_have_rights_without_a_key() -> None:
    ring, problems = read(with_rights(SUBJECTS))
    assert (set(ring.rights), problems) == (set(SUBJECTS), ())
    assert names(ring) == {"alice", "bob"}


def test_a_subject_with_expired_rights_is_refused_and_does_not_get_those_of_all() -> None:
    ring, _unused = read(with_rights(SUBJECTS | {"jwt:bob": {"ends": "2026-11-22T00:00:00Z"}}))
    assert ring.rights["jwt:bob"] == REFUSED
    assert ring.rights["jwt:*"] != REFUSED


def test_a_subject_with_unreadable_rights_keeps_the_old_ones_or_is_refused() -> None:
    faulty = with_rights(SUBJECTS | {"jwt:alice@example.org": {"models": 5}, "jwt:new": {"requests": 1}})
    before, _unused = read(with_rights(SUBJECTS))
    ring, problems = read(faulty, before)
    assert ring.rights["jwt:alice@example.org"] == before.rights["jwt:alice@example.org"]
    assert (ring.rights["jwt:new"], len(problems)) == (REFUSED, 2)
    assert read(faulty)[0].rights["jwt:alice@example.org"] == REFUSED
    assert read(with_rights("{"), ring)[0] == ring, "the annotation cannot be read"
    assert read(with_rights("{"))[0] == Keyring(), "no rights were known"


@pytest.mark.parametrize("name", ["jwt:", "jwt:a b", "jwt:a\nb", "jwt:a;b", "jwt:a!b", "jwt:a*", "jwt:" + "a" * 300])
def test_an_invalid_subject_is_a_problem(name: str) -> None:
    ring, problems = read(with_rights({name: {}}))
    assert (ring.rights, len(problems)) == ({}, 1)
    assert "not a valid subject" in problems[0]


def test_without_rights_a_subject_is_refused_and_a_key_is_unlimited() -> None:
    assert get_rights({}, "alice") == Rights()
    assert get_rights({}, "jwt:alice") == REFUSED
