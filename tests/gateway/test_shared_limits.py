"""Limits of keys hold over all gateways together: three of them, each a real HAProxy with its control process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from slipway.gateway.keys import Limits
from slipway.gateway.sharing import LAST
from tests.gateway.conftest import PATIENCE, Api, Engine, ask_haproxy, wait_for
from tests.gateway.standalone import Standalone
from tests.ports import reserved_port

CHAT = "/v1/chat/completions"
MINUTE = 60
USED = 40
"""Tokens of each answer."""
DAYS_REST = LAST + 1 + Limits._fields.index("requests_day")
"""Index in a line of shares.map of what the other gateways have left of the day's requests."""
RIGHTS: dict[str, dict[str, Any]] = {
    "requests": {"requestsPerMinute": 120},
    "tokens": {"tokensPerMinute": 4000},
    "lone": {"requestsPerMinute": 24},
    "daily": {"requestsPerDay": 9},
    "spender": {"tokensPerDay": 200},
    "left": {"requestsPerMinute": 60},
}


def key(name: str) -> str:
    return f"sk-{name}-secret"


@pytest.fixture(scope="module")
def three(
    make_gateway: Callable[..., Standalone], engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Standalone]]:
    secret = tmp_path_factory.mktemp("shares") / "key"
    secret.write_text("k" * 64)
    doors = [f"127.0.0.1:{reserved_port()}" for _unused in range(3)]
    settings = {"apiKeysSecret": "keys", "countTokens": True, "threads": 2, "shareKeyFile": str(secret)}
    made = [make_gateway(**settings, shareListen=door) for door in doors]
    text = {
        "models": {"m": [engine.endpoint]},
        "keys": {name: key(name) for name in RIGHTS},
        "rights": RIGHTS,
        "gateways": doors,
    }
    with ExitStack() as stack:
        for one in made:
            one.table.write_text(json.dumps(text))
            stack.enter_context(one)
        for one in made:
            wait_for(lambda one=one: set(shares(one)) == set(RIGHTS))
        yield made


def shares(gateway: Standalone) -> dict[str, list[int]]:
    """What a gateway's HAProxy keeps to, by name of the key."""
    lines = [line.split() for line in ask_haproxy(gateway, f"show map {gateway.run}/shares.map").splitlines()]
    return {line[1]: [0 if one == "-" else int(one) for one in line[2].split(":")] for line in lines if line}


def left_of_minute(gateway: Standalone, name: str) -> int:
    """Requests left this minute, as seen by a gateway that has used none: its share and what the others have left."""
    line = shares(gateway)[name]
    return line[0] + line[LAST + 1]


def ask(gateway: Standalone, name: str, **body: Any) -> requests.Response:
    with Api(gateway.url, key(name)) as api:
        return api.post(CHAT, json={"model": "m", **body})


def answered_under_load(gateways: list[Standalone], name: str, at_once: int, **body: Any) -> tuple[int, float]:
    """How many requests were answered when all gateways got more than the limit, and how many limits fit that time.

    Each client goes on until it is refused three times in a row: then nobody has anything left.
    """
    began = time.monotonic()

    def client(gateway: Standalone) -> int:
        answered = refused = 0
        with Api(gateway.url, key(name)) as api:
            while refused < 3:
                status = api.post(CHAT, json={"model": "m", **body}).status_code
                assert status in (200, 429)
                answered, refused = (answered + 1, 0) if status == 200 else (answered, refused + 1)
        return answered

    with ThreadPoolExecutor(3 * at_once) as pool:
        found = sum(pool.map(client, gateways * at_once))
    return found, max(1.0, (time.monotonic() - began) / MINUTE)


def test_three_gateways_under_full_load_answer_no_more_requests_than_the_limit(three: list[Standalone]) -> None:
    limit = RIGHTS["requests"]["requestsPerMinute"]
    answered, limits = answered_under_load(three, "requests", 4)
    assert 0.9 * limit <= answered <= 1.02 * limit * limits + 1


def test_three_gateways_under_full_load_use_no_more_tokens_than_the_limit(three: list[Standalone]) -> None:
    limit = RIGHTS["tokens"]["tokensPerMinute"]
    usage = json.dumps({"usage": {"prompt_tokens": 20, "completion_tokens": USED - 20}})
    body = {"max_tokens": USED, "x": {"pieces": [usage]}}
    answered, limits = answered_under_load(three, "tokens", 4, **body)
    assert 0.7 * limit <= answered * USED <= (1.02 * limit + USED) * limits


def test_one_gateway_may_use_all_of_a_limit_that_the_others_do_not_need(three: list[Standalone]) -> None:
    limit = RIGHTS["lone"]["requestsPerMinute"]
    # A gateway that has been silent for some seconds counts as one that uses all of its part.
    wait_for(lambda: all(left_of_minute(one, "lone") == limit for one in three))
    began = time.monotonic()
    first = ask(three[1], "lone")
    assert int(first.headers["x-ratelimit-remaining-requests"]) == limit - 1, "also what others have left"
    for _unused in range(limit - 1):
        wait_for(lambda: ask(three[1], "lone").status_code == 200)
    wait_for(lambda: sum(one["lone"][0] for one in map(shares, three)) <= limit)
    if time.monotonic() - began < MINUTE:
        assert ask(three[2], "lone").status_code == 429, "another gateway knows it"


def test_the_shares_of_all_gateways_are_never_more_than_the_limit(three: list[Standalone]) -> None:
    for name, rights in RIGHTS.items():
        limit = rights.get("requestsPerMinute")
        if limit and name != "requests":
            wait_for(lambda name=name, limit=limit: sum(one[name][0] for one in map(shares, three)) <= limit)


def test_a_days_budget_holds_over_all_gateways_and_outlives_each_of_them(three: list[Standalone]) -> None:
    limit = RIGHTS["daily"]["requestsPerDay"]
    for number in range(limit):
        wait_for(lambda number=number: ask(three[number % 3], "daily").status_code == 200)
    before = rest_of_day()
    refused = ask(three[0], "daily")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    assert rest_of_day() <= int(refused.headers["retry-after"]) <= before
    # What a gateway has not told anybody dies with it.
    wait_for(lambda: all(shares(one)["daily"][DAYS_REST] == 0 for one in three))
    three[2].kill_haproxy()
    three[2].stop(three[2].control)
    three[2].start_haproxy()
    three[2].start_control()
    three[2].wait_ready()
    wait_for(lambda: "daily" in shares(three[2]))
    assert [ask(one, "daily").status_code for one in three] == [429] * 3


def rest_of_day() -> int:
    """Whole seconds until midnight in UTC, when budgets begin anew."""
    return 86400 - int(time.time()) % 86400


def test_a_days_tokens_end_with_insufficient_quota(three: list[Standalone]) -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 20, "completion_tokens": 80}})
    used = 0
    while True:
        answer = ask(three[used // 100 % 3], "spender", max_tokens=80, x={"pieces": [usage]})
        if answer.status_code != 200:
            break
        used += 100
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert 100 <= used <= RIGHTS["spender"]["tokensPerDay"] + 100


def test_what_a_refused_or_failed_request_had_reserved_is_free_again(three: list[Standalone], engine: Engine) -> None:
    for status in (400, 500):
        ask(three[0], "tokens", max_tokens=1000, x={"status": status})
    wait_for(lambda: reserved(three[0], "tokens") == 0)


def reserved(gateway: Standalone, name: str) -> int:
    row = next(line for line in ask_haproxy(gateway, "show table keys").splitlines() if f"key={name} " in line)
    values = dict(word.split("=") for word in row.split()[1:])
    return int(values["gpc2"]) - int(values["gpc3"])


def test_shares_are_told_to_nobody_without_the_gateways_key(three: list[Standalone]) -> None:
    door = json.loads(three[0].table.read_text())["gateways"][0]
    for headers in ({}, {"x-slipway-signature": "0" * 64}, {"x-slipway-signature": "\u00e9"}):
        answer = requests.post(f"http://{door}/shares", data=b"[]", headers=headers, timeout=PATIENCE)
        assert (answer.status_code, answer.content) == (403, b"")


def test_gateways_go_on_when_the_one_that_shares_out_is_gone(three: list[Standalone]) -> None:
    leader = min(three, key=lambda one: json.loads(one.table.read_text())["gateways"][three.index(one)])
    rest = [one for one in three if one is not leader]
    leader.kill_haproxy()
    leader.stop(leader.control)
    assert ask(rest[0], "left").status_code == 200
    limit = RIGHTS["left"]["requestsPerMinute"]
    # Without the leader, whose equal part is kept for it, the two may use the rest, whichever of them is asked.
    wait_for(lambda: ask(rest[0], "left").status_code == 200 and shares(rest[0])["left"][0] > limit // 2)
    assert sum(one["left"][0] for one in map(shares, rest)) <= limit
