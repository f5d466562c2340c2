"""API keys of a Secret."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from typing import Any

import pytest

from slipway.gateway.keys import RIGHTS, Keyring, Limited, Limits, Rights, hashes, keyring, rights_of
from slipway.gateway.limits import backends_of
from tests.unit.gateway.test_render import TABLE

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def secret(**values: bytes) -> dict[str, dict[str, str]]:
    return {"data": {name: base64.b64encode(value).decode() for name, value in values.items()}}


def test_only_hashes_leave() -> None:
    expected = hashlib.sha256(b"sk-1").hexdigest().upper()
    assert hashes(secret(alice=b"sk-1\n")) == ((expected, "alice"),)


def test_empty_values_and_a_missing_secret_let_nobody_in() -> None:
    assert hashes(secret(empty=b"", space=b" \n")) == ()
    assert hashes({}) == hashes(None) == ()


def test_equal_keys_count_once() -> None:
    assert [name for _unused, name in hashes(secret(b=b"same", a=b"same"))] == ["a"]


def with_rights(rights: object, **values: bytes) -> dict[str, Any]:
    text = rights if isinstance(rights, str) else json.dumps(rights)
    return secret(**(values or {"alice": b"sk-1", "bob": b"sk-2"})) | {"metadata": {"annotations": {RIGHTS: text}}}


def read(
    made: dict[str, Any], before: Keyring | None = None, *, now: dt.datetime = NOW, counted: bool = True
) -> tuple[Keyring, tuple[str, ...]]:
    return keyring(made, before or Keyring(), now, tokens_counted=counted)


def names(ring: Keyring) -> set[str]:
    return {name for _unused, name in ring.hashes}


def test_rights_are_read_by_name_of_the_key() -> None:
    given = {
        "owner": "search",
        "models": ["m", "team/*"],
        "requestsPerMinute": 5,
        "tokensPerMinute": 7,
        "requestsAtOnce": 2,
        "tokensPerDay": 9,
    }
    ring, problems = read(with_rights({"alice": given}))
    assert (names(ring), problems) == ({"alice", "bob"}, ())
    assert ring.rights["alice"].limits.text == "5:7:2::9"
    assert ring.rights["alice"].restricted
    assert "bob" not in ring.rights


@pytest.mark.parametrize(
    "nonsense",
    [
        {"requestsPerMinute": -1},
        {"requestsPerMinute": 0},
        {"tokensPerMinute": 1.5},
        {"requestsAtOnce": "3"},
        {"requestsAtOnce": 10**30},
        {"requestsPerDay": -1},
        {"tokensPerDay": 0},
        {"tokensPerDay": "NaN"},
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
def test_a_key_whose_rights_are_nonsense_keeps_its_last_good_ones(nonsense: object) -> None:
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
    assert names(read(with_rights(text))[0]) == set(), "at the start nobody is let in"


def test_a_key_ends() -> None:
    made = with_rights({"alice": {"ends": "2026-11-23T01:00:00+01:00"}, "bob": {"ends": "2026-11-23T00:00:01Z"}})
    assert names(read(made)[0]) == {"bob"}
    assert names(read(made, now=NOW + dt.timedelta(seconds=1))[0]) == set()
    assert names(read(made, now=NOW - dt.timedelta(seconds=1))[0]) == {"alice", "bob"}


def test_tokens_are_limited_only_where_they_are_counted() -> None:
    for limit in ("tokensPerMinute", "tokensPerDay"):
        ring, problems = read(with_rights({"alice": {limit: 5}}), counted=False)
        assert names(ring) == {"bob"}
        assert f"{limit}: this gateway counts no tokens (countTokens)" in problems[0]


OWNERS = {"jwt:alice@example.org": {"models": ["m"]}, "jwt:*": {"requestsPerMinute": 5}}


def test_owners_of_tokens_have_rights_without_a_key() -> None:
    ring, problems = read(with_rights(OWNERS))
    assert (set(ring.rights), ring.refused, problems) == (set(OWNERS), frozenset(), ())
    assert names(ring) == {"alice", "bob"}


def test_an_owner_whose_time_is_over_is_refused_and_does_not_get_what_all_others_have() -> None:
    ring, _unused = read(with_rights(OWNERS | {"jwt:bob": {"ends": "2026-11-22T00:00:00Z"}}))
    assert (set(ring.rights), ring.refused) == (set(OWNERS), {"jwt:bob"})


def test_an_owner_whose_rights_cannot_be_read_keeps_his_or_is_refused() -> None:
    faulty = with_rights(OWNERS | {"jwt:alice@example.org": {"models": 5}, "jwt:new": {"requests": 1}})
    before, _unused = read(with_rights(OWNERS))
    ring, problems = read(faulty, before)
    assert ring.rights["jwt:alice@example.org"] == before.rights["jwt:alice@example.org"]
    assert (ring.refused, len(problems)) == ({"jwt:new"}, 2)
    assert read(faulty)[0].refused == {"jwt:new", "jwt:alice@example.org"}
    assert read(with_rights("{"), ring)[0] == ring, "nothing of it can be read"
    assert read(with_rights("{"))[0] == Keyring(), "nobody had rights before"


@pytest.mark.parametrize(
    "name",
    [
        *("jwt:", "jwt:a b", "jwt:a\nb", "jwt:a;b", "jwt:a*", "jwt:" + "a" * 300),
        *("serviceaccount:", "serviceaccount:a", "serviceaccount:a:*", "serviceaccount:A:b", "serviceaccount:a:b:c"),
        "serviceaccount:a:" + "b" * 171,
    ],
)
def test_what_is_no_name_of_an_owner_is_told(name: str) -> None:
    ring, problems = read(with_rights({name: {}}))
    assert (ring.rights, ring.refused, len(problems)) == ({}, frozenset(), 1)


def test_service_accounts_have_rights_as_owners_of_tokens_have_and_apart_from_theirs() -> None:
    accounts = {"serviceaccount:search:indexer": {"models": ["m"]}, "serviceaccount:*": {"requestsPerMinute": 5}}
    ring, problems = read(with_rights(OWNERS | accounts))
    assert (set(ring.rights), problems) == ({*OWNERS, *accounts}, ())
    limited = Limited({"jwt:*": Limits(1), "serviceaccount:*": Limits(2), "key": Limits(3)}, {"serviceaccount:a:free"})
    found = {
        name: limited.of(name) for name in ("jwt:a:b", "serviceaccount:a:b", "key", "other", "serviceaccount:a:free")
    }
    assert [own and own.requests for own in found.values()] == [1, 2, 3, None, None]
    assert [name for name in found if limited.borrows(name)] == ["jwt:a:b", "serviceaccount:a:b"]


def test_an_owner_whose_record_has_just_gone_may_do_nothing_and_a_key_everything() -> None:
    assert rights_of({}, "alice") == Rights()
    assert rights_of({}, "jwt:alice").restricted
    assert backends_of(rights_of({}, "jwt:alice"), TABLE) == frozenset()
