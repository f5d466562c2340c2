"""PrefixHash: requests with the same beginning go to the same engine, on every gateway, if it is not overloaded."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest

from slipway.gateway.haproxy.runtime_diff import parse_map
from tests.gateway.conftest import Api, Engine, ask_haproxy, settle, wait_for
from tests.gateway.standalone import Standalone

CHAT = "/v1/chat/completions"
TEXT = "Tell me a story about harbours, tides and the ships that wait for them. " * 3


def prefix_hash(engines: list[Engine], **parameters: int) -> dict[str, object]:
    route = {"strategy": "PrefixHash", "prefixHash": parameters}
    return {"endpoints": [engine.endpoint for engine in engines], "route": route}


@pytest.fixture(scope="module")
def engines(make_engine: Callable[..., Engine]) -> list[Engine]:
    return [make_engine(f"e{number}") for number in range(4)]


@pytest.fixture(scope="module")
def hashed(make_gateway: Callable[..., Standalone], engines: list[Engine]) -> Iterator[Standalone]:
    gateway = make_gateway(maxBodyBytes=8 << 20)
    gateway.route({"m1": prefix_hash(engines, prefixCharLength=100), "m1_wiki": prefix_hash(engines[:2])})
    with gateway:
        settled(gateway, engines)
        yield gateway


def settled(gateway: Standalone, engines: list[Engine], model: str = "m1") -> None:
    """Returns when HAProxy chooses among all of them."""
    expected = sorted(engine.endpoint for engine in engines)
    wait_for(lambda: ring(gateway, model)[3:] == expected)
    settle(gateway)
    with Api(gateway.url) as api:
        wait_for(lambda: api.post(CHAT, json={"model": model}).status_code == 200)


def ring(gateway: Standalone, model: str) -> list[str]:
    """Returns HAProxy's map entry: backend, percent of the mean load, characters, endpoints."""
    rings = parse_map(ask_haproxy(gateway, f"show map {gateway.run}/rings.map"))
    return rings.get(f"static:{model}", "").split(",")


@pytest.fixture(scope="module")
def api(hashed: Standalone) -> Iterator[Api]:
    with Api(hashed.url) as session:
        yield session


def engine_of(api: Api, body: bytes | dict[str, Any], path: str = CHAT) -> str:
    data = body if isinstance(body, bytes) else json.dumps({"model": "m1", **body}).encode()
    answer = api.post(path, data=data)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-engine"]


def user(content: object, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **more}


def test_a_conversation_stays_at_its_engine_and_conversations_spread(api: Api) -> None:
    for number in range(20):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{number} {TEXT}"}]
        first = engine_of(api, {"messages": messages})
        for turn in range(3):
            messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"And {turn}?"}]
            assert engine_of(api, {"messages": messages}) == first
    # Which ones meet depends on the engines' ports: the bounds are seven standard deviations away from a quarter.
    outcomes = Counter(engine_of(api, user(f"{number} {TEXT}")) for number in range(240))
    assert set(outcomes) == {"e0", "e1", "e2", "e3"}
    assert 60 - 47 < min(outcomes.values()) <= max(outcomes.values()) < 60 + 47


def raw(text: str) -> bytes:
    return b'{"model":"m1",' + text.encode() + b"}"


WORDS = 'Café "at" the\tharbour 😀 / \\\\ ' + TEXT


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
def test_equal_text_in_any_encoding_reaches_the_same_engine(api: Api, path: str) -> None:
    field = "messages" if path == CHAT else "input"
    plain = json.dumps(WORDS, ensure_ascii=False)
    escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 65536 else c for c in WORDS)
    bodies = [
        raw(f'"{field}":[{{"role":"user","content":{plain}}}]'),
        raw(f'"{field}":[{{"role":"user","content":{json.dumps(WORDS)}}}]'),
        raw(f'"{field}":[{{"role":"user","content":"{escaped}"}}]'),
        raw(f'"{field}" : [ {{ "name":"x", "content" : {plain} , "role" : "user" }} ] , "seed":1'),
        raw(f'"x":{{"{field}":[]}},"{field}":[{{"role":"system","content":"s"}},{{"role":"user","content":{plain}}}]'),
        raw(f'"\\u00{ord(field[0]):02x}{field[1:]}":[{{"role":"user","content":{plain}}}]'),
        raw(f'"{field}":[{{"role":"user","content":[{{"type":"text","text":{plain}}}]}}]'),
        raw(
            f'"{field}":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:"}}}},'
            f'{{"text":{json.dumps(WORDS[:7])},"type":"text"}},{{"type":"text","text":{json.dumps(WORDS[7:])}}}]}}]'
        ),
        raw(f'"{field}":[{{"role":"user","content":{plain[:-1]} and much more"}}]'),
    ]
    assert len({engine_of(api, body, path) for body in bodies}) == 1


def test_the_prompt_decides_in_every_form_that_has_one(api: Api) -> None:
    for number in range(6):
        text = f"{number} {TEXT}"
        chat = engine_of(api, user(text))
        assert engine_of(api, {"prompt": text}, "/v1/completions") == chat
        assert engine_of(api, {"prompt": [text, "other"]}, "/v1/completions") == chat
        assert engine_of(api, {"input": text}, "/v1/responses") == chat


def test_characters_count_not_bytes_and_only_the_first_ones(api: Api) -> None:
    wide = "ä" * 100
    assert len({engine_of(api, user(wide + str(number))) for number in range(8)}) == 1
    assert len({engine_of(api, user("ä" * 99 + chr(97 + number))) for number in range(16)}) > 1


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (CHAT, {"messages": [{"role": "system", "content": TEXT}]}),
        (CHAT, {"messages": [{"role": "user", "content": ""}]}),
        (CHAT, {"messages": [{"role": "user", "content": None}]}),
        (CHAT, {}),
        ("/v1/completions", {"prompt": [1, 2, 3]}),
        ("/v1/embeddings", {"input": TEXT}),
    ],
)
async def test_requests_without_a_prompt_go_where_there_is_least_to_do(
    hashed: Standalone, engines: list[Engine], path: str, more: dict[str, object]
) -> None:
    outcomes = await at_once(hashed, engines, path, {"model": "m1", **more}, 8)
    assert outcomes == {"e0": 2, "e1": 2, "e2": 2, "e3": 2}


async def at_once(
    gateway: Standalone, engines: list[Engine], path: str, body: dict[str, Any], count: int
) -> Counter[str]:
    """Engines that got requests: each is sent when the ones before are at work, and none ends before all are."""

    async def ask(session: aiohttp.ClientSession) -> str:
        async with session.post(gateway.url + path, json={**body, "x": {"held": True}}) as answer:
            assert answer.status == 200
            return answer.headers["x-engine"]

    def busy() -> int:
        return sum(engine.active for engine in engines)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks, before = [], busy()
        for number in range(count):
            tasks.append(asyncio.create_task(ask(session)))
            await asyncio.to_thread(wait_for, lambda number=number: busy() > before + number)
        for engine in engines:
            engine.release(engine.active)
        return Counter(await asyncio.gather(*tasks))


async def test_no_engine_exceeds_its_share_and_the_rest_spreads(hashed: Standalone, engines: list[Engine]) -> None:
    outcomes = await at_once(hashed, engines, CHAT, {"model": "m1", **user(TEXT)}, 40)
    assert len(outcomes) == 4
    # 125 percent of a mean of 10, and one more, as the bound is looked at before the request is counted.
    assert max(outcomes.values()) <= 14


async def test_few_requests_do_not_leave_a_warm_engine(hashed: Standalone, engines: list[Engine]) -> None:
    assert len(await at_once(hashed, engines, CHAT, {"model": "m1", **user(TEXT)}, 2)) == 1


def test_a_late_prompt_is_used_and_the_search_for_a_hidden_one_is_short(api: Api) -> None:
    long = [{"role": "system", "content": 'x"' * 100000}, {"role": "user", "content": TEXT}]
    assert engine_of(api, {"messages": long}) == engine_of(api, user(TEXT))
    many = [{"role": "system", "content": ""}] * 100000
    assert engine_of(api, {"messages": [*many, {"role": "user", "content": TEXT}]})
    assert api.post(CHAT, data=raw('"messages":[{"role":"user","content":"abc')).status_code == 400


def test_a_client_cannot_choose_the_endpoint(api: Api, engines: list[Engine]) -> None:
    for engine in engines:
        cookie = {"cookie": f"a=b; slipway-endpoint={engine.endpoint}"}
        answer = api.post(CHAT, json={"model": "m1", **user(TEXT)}, headers=cookie)
        assert answer.headers["x-engine"] == engine_of(api, user(TEXT))
        assert "set-cookie" not in answer.headers


def test_two_gateways_choose_the_same_endpoint_after_different_requests(
    hashed: Standalone, make_gateway: Callable[..., Standalone], engines: list[Engine], api: Api
) -> None:
    with make_gateway() as other:
        for count, order in ((2, engines[2:]), (3, engines[::-1][:3]), (4, engines)):
            other.route({"m1": prefix_hash(order, prefixCharLength=100)})
            settled(other, order[:count])
        with Api(other.url) as second:
            for number in range(30):
                body = user(f"{number} {TEXT}")
                assert engine_of(second, body) == engine_of(api, body)


def test_an_engine_that_goes_moves_only_its_own_conversations(
    make_gateway: Callable[..., Standalone], engines: list[Engine]
) -> None:
    with make_gateway() as gateway, Api(gateway.url) as api:
        gateway.route({"m1": prefix_hash(engines)})
        settled(gateway, engines)
        before = {number: engine_of(api, user(f"{number} {TEXT}")) for number in range(100)}
        gateway.route({"m1": prefix_hash(engines[:3])})
        settled(gateway, engines[:3])
        after = {number: engine_of(api, user(f"{number} {TEXT}")) for number in range(100)}
        assert {before[number] for number in before if before[number] != after[number]} == {"e3"}
        wait_for(lambda: engines[3].endpoint not in ask_haproxy(gateway, "show stat"))
        gateway.route({"m1": prefix_hash(engines)})
        settled(gateway, engines)
        assert {number: engine_of(api, user(f"{number} {TEXT}")) for number in range(100)} == before


async def test_a_changed_strategy_takes_effect_at_once_without_a_reload_or_a_lost_request(
    hashed: Standalone, engines: list[Engine]
) -> None:
    plain: dict[str, object] = {"endpoints": [engine.endpoint for engine in engines]}
    workers = hashed.haproxy_pids()
    body = {"model": "m2", **user(TEXT)}
    hashed.route({"m1": prefix_hash(engines, prefixCharLength=100), "m2": plain})
    await asyncio.to_thread(settle, hashed)
    assert len(await at_once(hashed, engines, CHAT, body, 4)) > 1
    over, outcomes = asyncio.Event(), Counter()

    async def ask(session: aiohttp.ClientSession) -> None:
        while not over.is_set():
            async with session.post(hashed.url + CHAT, json=body) as answer:
                outcomes[answer.status] += 1

    async with aiohttp.ClientSession() as session:
        tasks = [asyncio.create_task(ask(session)) for _unused in range(2)]
        for strategy, load in (
            (prefix_hash(engines), "125"),
            (plain, ""),
            (prefix_hash(engines, meanLoadFactor=400), "400"),
        ):
            hashed.route({"m1": prefix_hash(engines, prefixCharLength=100), "m2": strategy})
            await asyncio.to_thread(wait_for, lambda load=load: "".join(ring(hashed, "m2")[1:2]) == load)
            met = outcomes.total()
            await asyncio.to_thread(wait_for, lambda met=met: outcomes.total() > met + 10)
        over.set()
        await asyncio.gather(*tasks)
    assert set(outcomes) == {200}
    assert len(await at_once(hashed, engines, CHAT, body, 2)) == 1
    assert hashed.haproxy_pids() == workers


async def test_an_engine_that_dies_costs_nothing_and_its_conversations_go_to_others(
    hashed: Standalone, api: Api, engines: list[Engine]
) -> None:
    hashed.route({"m1": prefix_hash(engines, prefixCharLength=100)})
    await asyncio.to_thread(settled, hashed, engines)
    body = user(f"dying {TEXT}")
    chosen = next(engine for engine in engines if engine.name == engine_of(api, body))
    await asyncio.to_thread(chosen.kill)
    try:
        outcomes = await at_once(hashed, engines, CHAT, {"model": "m1", **body}, 20)
        assert chosen.name not in outcomes
    finally:
        await asyncio.to_thread(chosen.start)
    await asyncio.to_thread(wait_for, lambda: engine_of(api, body) == chosen.name)
