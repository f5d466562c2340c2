"""How limits.lua handles requests for each grant. The test replaces the control process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import requests

from slipway.gateway.rules import limits
from slipway.gateway.rules.limits import HolderEntry
from slipway.gateway.shared_limits.holders import Grant
from tests.gateway.conftest import Api, Engine, ask_haproxy, settle, wait_for
from tests.gateway.standalone import Standalone

CHAT = "/v1/chat/completions"
RIGHTS: dict[str, dict[str, Any]] = {
    "minute": {"requestsPerMinute": 5},
    "day": {"requestsPerDay": 5},
    "both": {"requestsPerMinute": 5, "requestsPerDay": 5},
    "tokens": {"tokensPerMinute": 5, "tokensPerDay": 50},
    "tokens_minute": {"tokensPerMinute": 50},
    "tokens_day": {"requestsAtOnce": 9, "tokensPerDay": 50},
    "new": {"requestsPerMinute": 5},
    "alone": {"requestsPerMinute": 5},
    "flood": {"requestsPerMinute": 5},
    "reserved": {"requestsPerMinute": 50, "requestsPerDay": 500},
    "dropped": {"requestsPerDay": 50},
}
TOMORROW = int(time.time()) + 5000
YESTERDAY = int(time.time()) - 5


@pytest.fixture(scope="module")
def granted(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True)
    gateway.route({"m1": [engine.endpoint]}, {name: f"sk-{name}" for name in RIGHTS}, rights=RIGHTS)
    with gateway:
        settle(gateway)
        gateway.stop(gateway.control)
        yield gateway


def send(gateway: Standalone, name: str, **x: Any) -> requests.Response:
    with Api(gateway.url, f"sk-{name}") as api:
        return api.post(CHAT, json={"model": "m1", "x": x})


@pytest.fixture
def sending(granted: Standalone) -> Iterator[Callable[..., Future[requests.Response]]]:
    with ThreadPoolExecutor(200) as pool:
        yield lambda name, **x: pool.submit(send, granted, name, **x)


def counted(gateway: Standalone, name: str) -> HolderEntry | None:
    return limits.parse_entries(ask_haproxy(gateway, f"{limits.SHOW_LIMITS} all")).get(name)


def wait_for_entry(gateway: Standalone, name: str) -> HolderEntry:
    wait_for(lambda: counted(gateway, name) is not None)
    entry = counted(gateway, name)
    assert entry is not None
    return entry


def grant(gateway: Standalone, name: str, **fields: int) -> HolderEntry:
    """Grants relative to what HAProxy has counted."""
    entry = wait_for_entry(gateway, name)
    moved = {
        field: number + entry.requests if field.endswith(("until", "zero")) else number
        for field, number in fields.items()
    }
    text = Grant(**({"day_ends": TOMORROW} | moved)).encode()
    for command in limits.grant_commands([(name, entry.birth, text)]):
        assert ask_haproxy(gateway, command) == ""
    return entry


def test_a_request_waits_for_the_first_grant(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("minute")
    grant(granted, "minute", minute_until=1, minute_zero=5)
    answer = first.result()
    assert (answer.status_code, answer.headers["x-ratelimit-remaining-requests"]) == (200, "4")


def test_without_a_grant_a_request_gets_503_and_reaches_no_engine(granted: Standalone, engine: Engine) -> None:
    before = len(engine.bodies)
    answer = send(granted, "new")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "limits_unknown")
    assert len(engine.bodies) == before


def test_a_request_waits_for_a_rest_that_others_may_return(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("minute")
    entry = grant(granted, "minute", minute_until=0, minute_zero=1)
    before = counted(granted, "minute")
    grant(granted, "minute", minute_until=1, minute_zero=1)
    assert first.result().status_code == 200
    assert before is not None
    assert before.requests <= entry.requests + 1


def test_the_limit_that_is_reached_is_named_with_its_end(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("both")
    frees = int(time.time()) + 40
    grant(granted, "both", minute_until=9, minute_zero=9, day_until=1, day_zero=1, minute_frees=frees)
    assert first.result().status_code == 200
    ask_haproxy(granted, limits.SHOW_LIMITS)
    last = send(granted, "both")
    assert set(limits.parse_entries(ask_haproxy(granted, limits.SHOW_LIMITS))) == {"both"}, (
        "so that it gets a new grant"
    )
    error = last.json()["error"]
    assert (last.status_code, error["code"]) == (429, "insufficient_quota"), "at once, before any further exchange"
    assert error["message"].startswith(
        "This API key has reached its limit of 5 requests per day. The day ends at 00:00"
    )
    assert 3000 < int(last.headers["retry-after"]) <= 5000
    grant(granted, "both", minute_until=0, minute_zero=0, day_until=0, day_zero=0, minute_frees=frees)
    assert send(granted, "both").json()["error"]["code"] == "insufficient_quota"
    grant(granted, "both", minute_until=0, minute_zero=0, day_until=9, day_zero=9, minute_frees=frees)
    minute = send(granted, "both")
    assert minute.json()["error"]["code"] == "rate_limit_exceeded"
    assert "limit of 5 requests per minute. Retry in" in minute.json()["error"]["message"]
    assert 20 < int(minute.headers["retry-after"]) <= 41


def test_a_spent_day_stays_spent_until_it_ends_and_then_waits_for_a_new_grant(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("day")
    grant(granted, "day", day_until=0, day_zero=0)
    assert first.result().status_code == 429
    grant(granted, "day", day_until=5, day_zero=5, day_ends=YESTERDAY)
    waiting = sending("day")
    grant(granted, "day", day_until=0, day_zero=0)
    assert waiting.result().status_code == 429, "what was left of an old day is not there"
    grant(granted, "day", day_until=0, day_zero=0, day_ends=YESTERDAY)
    waiting = sending("day")
    grant(granted, "day", day_until=1, day_zero=5)
    assert waiting.result().status_code == 200, "what was spent on an old day is over"


def test_errors_distinguish_tokens_of_the_day_and_of_the_minute(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("tokens")
    grant(granted, "tokens", tokens_rest=5, day_tokens_rest=5)
    assert first.result().status_code == 200
    grant(granted, "tokens", tokens_rest=0, day_tokens_rest=0, tokens_free=int(time.time()) + 30)
    assert "limit of 50 tokens per day" in send(granted, "tokens").json()["error"]["message"]
    grant(granted, "tokens", tokens_rest=-3, day_tokens_rest=5, tokens_free=int(time.time()) + 30)
    refused = send(granted, "tokens")
    assert "limit of 5 tokens per minute" in refused.json()["error"]["message"]
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"


def test_only_tokens_with_a_limit_are_kept_for_the_control_process(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    ask_haproxy(granted, limits.SHOW_SPENT)
    spent = Counter[str]()

    def are_kept() -> bool:
        spent.update(limits.parse_tokens(ask_haproxy(granted, limits.SHOW_SPENT)))
        return {"tokens_day", "tokens_minute"} <= set(spent)

    for name in ("reserved", "tokens_day", "tokens_minute"):
        first = sending(name)
        fields = ("minute_until", "minute_zero", "day_until", "day_zero", "tokens_rest", "day_tokens_rest")
        grant(granted, name, **dict.fromkeys(fields, 9))
        assert first.result().status_code == 200
    wait_for(are_kept)
    assert "reserved" not in spent


def test_reported_tokens_of_a_whole_answer_count_against_a_limit(
    granted: Standalone, sending: Callable[..., Future[requests.Response]]
) -> None:
    ask_haproxy(granted, limits.SHOW_SPENT)
    spent = Counter[str]()
    text = '{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'

    def is_kept() -> bool:
        spent.update(limits.parse_tokens(ask_haproxy(granted, limits.SHOW_SPENT)))
        return "tokens_minute" in spent

    first = sending("tokens_minute", pieces=[text], length=len(text))
    grant(granted, "tokens_minute", tokens_rest=9)
    assert first.result().status_code == 200
    wait_for(is_kept)
    assert spent["tokens_minute"] == 7


def test_a_grant_of_another_birth_or_of_no_entry_changes_nothing(granted: Standalone, engine: Engine) -> None:
    entry = wait_for_entry(granted, "new")
    text = Grant(minute_until=9, minute_zero=9, day_ends=TOMORROW).encode()
    words = [("new", f"{entry.birth}0", text), ("unknown", entry.birth, text)]
    for command in (*limits.grant_commands(words), f"{limits._SET_LIMITS} x :: new new:%ZZ: {'a' * 300}"):
        assert ask_haproxy(granted, command) == ""
    before = len(engine.bodies)
    assert send(granted, "new").status_code == 503
    assert len(engine.bodies) == before


def test_a_rest_that_others_reserved_is_not_reported_as_a_reached_limit(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("reserved")
    grant(granted, "reserved", minute_until=1, minute_zero=9, day_until=1, day_zero=50)
    assert first.result().status_code == 200
    for fields, limit in (
        ({"minute_until": 0, "minute_zero": 9, "day_until": 9, "day_zero": 50}, "50 requests per minute"),
        ({"minute_until": 9, "minute_zero": 9, "day_until": 0, "day_zero": 50}, "500 requests per day"),
    ):
        grant(granted, "reserved", **fields)
        answer = send(granted, "reserved")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"] == {
            "message": f"Other gateway pods have reserved the rest of the limit of {limit}. Retry in 1 s.",
            "type": "requests",
            "param": None,
            "code": "limit_reserved",
        }


@pytest.mark.parametrize(("frees", "least", "most"), [(0, 61, 61), (5000, 61, 61), (-5000, 1, 1), (30, 20, 31)])
def test_a_minute_has_room_in_a_minute_at_the_latest(
    granted: Standalone,
    sending: Callable[[str], Future[requests.Response]],
    frees: int,
    least: int,
    most: int,
) -> None:
    first = sending("minute")
    time_ = int(time.time()) + frees if frees else 0
    grant(granted, "minute", minute_until=0, minute_zero=0, minute_frees=time_)
    first.result()
    assert least <= int(send(granted, "minute").headers["retry-after"]) <= most


def test_an_entry_is_dropped_only_if_all_of_its_requests_were_counted(
    granted: Standalone, sending: Callable[[str], Future[requests.Response]]
) -> None:
    first = sending("dropped")
    grant(granted, "dropped", day_until=9, day_zero=9)
    assert first.result().status_code == 200
    entry = counted(granted, "dropped")
    assert entry
    assert (entry.requests, entry.until) == (1, (0, 9))

    def drop(birth: str, number: int) -> list[tuple[str, str]]:
        (command,) = limits.drop_commands([("dropped", birth, number)])
        return limits.parse_dropped(ask_haproxy(granted, command))

    sending("new").result()  # an entry after it
    before = limits.parse_entries(ask_haproxy(granted, f"{limits.SHOW_LIMITS} all"))
    assert drop(entry.birth, 0) == []
    assert counted(granted, "dropped") == entry
    assert drop("other", 1) == [("dropped", "other")]
    assert counted(granted, "dropped") == entry
    assert drop(entry.birth, 1) == [("dropped", entry.birth)]
    after = limits.parse_entries(ask_haproxy(granted, f"{limits.SHOW_LIMITS} all"))
    assert after == {name: one for name, one in before.items() if name != "dropped"}
    assert drop(entry.birth, 1) == [("dropped", entry.birth)]


@pytest.fixture
def changed(granted: Standalone) -> Iterator[Callable[..., None]]:
    """Replaces texts of limits.lua, and starts HAProxy with it."""
    path = granted.run / "lua" / "limits.lua"
    text = path.read_text()

    def answers() -> bool:
        with suppress(OSError):
            return ask_haproxy(granted, limits.SHOW_LIMITS) == ""
        return False

    def start(new: str) -> None:
        path.write_text(new)
        granted.kill_haproxy()
        granted.start_haproxy()
        wait_for(answers)

    def change(*replacements: tuple[str, str]) -> None:
        new = text
        for old, other in replacements:
            assert text.count(old) == 1
            new = new.replace(old, other)
        start(new)

    yield change
    start(text)


def test_requests_that_wait_are_bounded(
    granted: Standalone,
    sending: Callable[[str], Future[requests.Response]],
    changed: Callable[..., None],
) -> None:
    changed(("WAIT_MILLISECONDS = 2000", "WAIT_MILLISECONDS = 600000"), ("MOST_WAITING = 100", "MOST_WAITING = 3"))
    waiting = [sending("flood")]
    grant(granted, "flood", minute_until=0, minute_zero=3)
    waiting += [sending("flood") for _unused in range(4)]
    wait_for(lambda: sum(one.done() for one in waiting) == 2)
    grant(granted, "flood", minute_until=5, minute_zero=5)
    assert sorted(one.result().status_code for one in waiting) == [200, 200, 200, 429, 429]


def test_without_a_control_process_a_gateway_keeps_an_equal_part(
    granted: Standalone,
    sending: Callable[[str], Future[requests.Response]],
    changed: Callable[..., None],
) -> None:
    changed(("STALE_SECONDS = 10", "STALE_SECONDS = 0"))
    first = sending("alone")
    grant(granted, "alone", minute_until=0, minute_zero=0, alone=2)
    answers = [first.result()]
    while answers[-1].status_code == 200 and len(answers) < 10:
        answers.append(send(granted, "alone"))
    assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"
    passed = len(answers) - 1
    assert passed in (2, 3, 4), "two, or a minute began between them"
