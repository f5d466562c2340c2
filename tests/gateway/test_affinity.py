"""Affinity: requests that a client says belong together, or that share a prompt, meet the same engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipway.gateway.balancing import SESSION_HEADERS
from tests.gateway.conftest import Api, Engine
from tests.gateway.standalone import Standalone
from tests.gateway.test_prefix import CHAT, TEXT, at_once, settled, user

MESSAGES = "/v1/messages"
KEYS = 16
"""So many different keys meet more than one of four engines, whatever their ports are."""


def affinity(engines: list[Engine], **parameters: int) -> dict[str, object]:
    route = {"strategy": "Affinity", "prefixHash": parameters}
    return {"endpoints": [engine.endpoint for engine in engines], "route": route}


@pytest.fixture(scope="module")
def engines(make_engine: Callable[..., Engine]) -> list[Engine]:
    return [make_engine(f"e{number}") for number in range(4)]


@pytest.fixture(scope="module")
def sticky(make_gateway: Callable[..., Standalone], engines: list[Engine]) -> Iterator[Standalone]:
    made = make_gateway(maxBodyBytes=8 << 20)
    made.route({"m1": affinity(engines)})
    with made:
        settled(made, engines)
        yield made


@pytest.fixture(scope="module")
def api(sticky: Standalone) -> Iterator[Api]:
    with Api(sticky.url) as made:
        yield made


def engine_of(api: Api, body: dict[str, Any], path: str = CHAT, **headers: str) -> str:
    answer = api.post(path, data=json.dumps({"model": "m1", **body}), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-engine"]


def body(number: int, size: int = 0) -> dict[str, Any]:
    """A prompt of its own."""
    return user(f"{number} {TEXT}", filler="x" * size)


@pytest.mark.parametrize("size", [0, 9000], ids=["in the begin", "far behind"])
def test_requests_of_one_cache_key_meet_one_engine_whatever_they_ask(api: Api, size: int) -> None:
    keyed = [{**body(number, size), "prompt_cache_key": "mine"} for number in range(KEYS)]
    assert len({engine_of(api, one) for one in keyed}) == 1
    assert len({engine_of(api, {**body(0, size), "prompt_cache_key": str(number)}) for number in range(KEYS)}) > 1


@pytest.mark.parametrize("header", SESSION_HEADERS)
def test_requests_of_one_session_meet_one_engine_whatever_they_ask(api: Api, header: str) -> None:
    assert len({engine_of(api, body(number), **{header: "mine"}) for number in range(KEYS)}) == 1
    assert len({engine_of(api, body(0), **{header: str(number)}) for number in range(KEYS)}) > 1


def test_requests_of_one_user_meet_one_engine_whatever_they_ask(api: Api) -> None:
    def asked(number: int, name: str) -> str:
        return engine_of(api, {**body(number), "metadata": {"user_id": name}}, MESSAGES)

    assert len({asked(number, "mine") for number in range(KEYS)}) == 1
    assert len({asked(0, str(number)) for number in range(KEYS)}) > 1


def test_a_cache_key_counts_more_than_a_session_and_a_session_more_than_a_user(api: Api) -> None:
    session, named = {"x-session-id": "mine"}, {"metadata": {"user_id": "other"}}
    assert engine_of(api, {**body(0), **named}, **session) == engine_of(api, body(1), **session)
    keyed = {"prompt_cache_key": "mine"}
    seen = {engine_of(api, {**body(0), **keyed}, **{"x-session-id": str(number)}) for number in range(KEYS)}
    assert seen == {engine_of(api, {**body(1), **keyed})}


@pytest.mark.parametrize("nothing", ["", None, 7, {"a": "b"}], ids=str)
def test_what_is_no_key_does_not_count(api: Api, nothing: object) -> None:
    for number in range(4):
        plain = engine_of(api, body(number))
        assert engine_of(api, {**body(number), "prompt_cache_key": nothing}) == plain
        assert engine_of(api, {**body(number), "metadata": {"user_id": nothing}}) == plain


def test_a_conversation_without_a_key_stays_where_it_began_and_conversations_spread(api: Api) -> None:
    begun = set()
    for number in range(KEYS):
        messages = [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": f"Hello {number}"}]
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
        first = engine_of(api, {"messages": messages, "tools": tools})
        begun.add(first)
        for _turn in range(6):
            messages += [{"role": "assistant", "content": TEXT}, {"role": "user", "content": TEXT}]
            assert engine_of(api, {"messages": messages, "tools": tools}) == first
    assert len(begun) > 1


@pytest.mark.parametrize("part", ["system", "tools"])
def test_what_stands_before_the_prompt_counts(api: Api, part: str) -> None:
    def asked(text: str) -> str:
        return engine_of(api, {part: [{"type": "text", "text": text}], **user("Hello")}, MESSAGES)

    assert len({asked(f"You are number {number}.") for number in range(KEYS)}) > 1


async def test_a_saturated_engine_is_left(sticky: Standalone, engines: list[Engine]) -> None:
    seen = await at_once(sticky, engines, CHAT, {"model": "m1", "prompt_cache_key": "mine", **body(0)}, 40)
    assert len(seen) == 4
    assert max(seen.values()) <= 14


def test_two_gateways_agree_without_talking(
    make_gateway: Callable[..., Standalone], engines: list[Engine], api: Api
) -> None:
    with make_gateway() as other:
        other.route({"m1": affinity(engines[::-1])})
        settled(other, engines)
        with Api(other.url) as second:
            for number in range(KEYS):
                keyed = {**body(number), "prompt_cache_key": str(number)}
                assert engine_of(second, keyed) == engine_of(api, keyed)
                assert engine_of(second, body(number)) == engine_of(api, body(number))
