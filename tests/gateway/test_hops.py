"""Requests that pass HAProxy twice use no connections that clients, other hops or other addresses need."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.gateway.conftest import Engine, ask_haproxy, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone

CHAT, REALTIME = "/v1/chat/completions", "/v1/realtime?model=second"
ROOM = 25
"""Requests in one hop, if 100 clients may be connected."""
SHARE = 21
"""Requests of one address among them."""
WAITS = 7
"""Requests of one address that may wait for the first time because their engine died."""
HELD: dict[str, Any] = {"x": {"held": True}}
FLOODER, NEIGHBOUR = "127.0.0.1", "127.0.0.2"
EVERY_MODEL = ("second", "static/second", "first", "third")


@pytest.fixture(scope="module")
def start(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Callable[..., Standalone]]:
    """Starts gateways for 100 clients. Requests for the model `second` take no hop, for `static/second` one, for
    `first` another, and for `third` both."""
    running: list[Standalone] = []

    def start_gateway(**settings: Any) -> Standalone:
        gateway = make_gateway(maxConnections=4 * ROOM, **settings)
        fallback = {"service": "second", "order": 1}
        routes: dict[str, dict[str, Any]] = {
            "first": {"models": ["first"], "targets": [{}, fallback]},
            "third": {"models": ["third"], "targets": [{"answerSeconds": 600}, fallback]},
            "second": {},
        }
        gateway.route({name: {"endpoints": [engine.endpoint], "route": route} for name, route in routes.items()})
        running.append(gateway.__enter__())
        settle(gateway)
        return gateway

    yield start_gateway
    for gateway in running:
        gateway.__exit__(None, None, None)


@pytest.fixture(scope="module")
def gateway(start: Callable[..., Standalone]) -> Standalone:
    return start()


async def post(
    gateway: Standalone, model: str, address: str = FLOODER, path: str = CHAT, **options: Any
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Returns status, body and lower-case headers of the answer to a request on a new connection."""
    headers = options.pop("headers", {})
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.post(gateway.url + path, json={"model": model, **options}, headers=headers) as answer,
    ):
        return answer.status, await answer.json(), {name.lower(): value for name, value in answer.headers.items()}


async def statuses(gateway: Standalone, models: Sequence[str], address: str, **options: Any) -> list[int]:
    return [(await post(gateway, model, address, **options))[0] for model in models]


@asynccontextmanager
async def held(
    gateway: Standalone, engine: Engine, count: int, model: str = "first", **options: Any
) -> AsyncIterator[None]:
    """Holds so many requests of one address at the engine during the block. All of them succeed afterwards."""
    requests = [asyncio.create_task(post(gateway, model, **HELD, **options)) for _unused in range(count)]
    try:
        await asyncio.to_thread(wait_for, lambda: engine.active == count)
        yield
    finally:
        engine.release(count)
        assert {status for status, _body, _headers in await asyncio.gather(*requests)} == {200}


def retries(gateway: Standalone) -> int:
    """Requests that went to a further target."""
    rows = csv.DictReader(ask_haproxy(gateway, "show stat").removeprefix("# ").splitlines())
    return sum(int(row["wretr"]) for row in rows if (row["pxname"], row["svname"]) == ("turns", "BACKEND"))


async def test_a_flood_from_one_address_leaves_others_without_a_failed_request(
    gateway: Standalone, engine: Engine
) -> None:
    async with held(gateway, engine, SHARE):
        over = asyncio.Event()
        flood = [asyncio.create_task(post_until(over, gateway, "first")) for _unused in range(2 * ROOM)]
        assert await statuses(gateway, EVERY_MODEL * 10, NEIGHBOUR) == [200] * 40
        over.set()
        assert {status for outcome in await asyncio.gather(*flood) for status in outcome} == {429}


async def post_until(over: asyncio.Event, gateway: Standalone, model: str) -> set[int]:
    """Statuses of requests that follow each other."""
    outcome = set()
    while not over.is_set():
        outcome.update(await statuses(gateway, [model], FLOODER, **HELD))
    return outcome


async def test_a_full_hop_leaves_clients_and_other_hops_their_connections(
    start: Callable[..., Standalone], engine: Engine
) -> None:
    gateway = start(maxConnectionsPerAddress=0)
    async with held(gateway, engine, ROOM):
        pending = [asyncio.create_task(post(gateway, "first")) for _unused in range(ROOM)]
        assert await statuses(gateway, ("second", "static/second") * 5, NEIGHBOUR) == [200] * 10
        assert not any(one.done() for one in pending)
    assert {status for status, _body, _headers in await asyncio.gather(*pending)} == {200}


async def test_the_refusal_is_an_error_in_the_shape_of_its_path(gateway: Standalone, engine: Engine) -> None:
    async with held(gateway, engine, SHARE):
        for model in ("first", "static/second", "third"):
            status, body, headers = await post(gateway, model)
            assert (status, headers["content-type"], headers["retry-after"]) == (429, "application/json", "5")
            assert body["error"]["type"] == "rate_limit_error"
            assert body["error"]["code"] == "too_many_requests"
            assert body["error"]["message"] == "Too many concurrent requests from your address."
            assert headers["x-request-id"]
        status, body, _headers = await post(gateway, "first", path="/v1/messages")
    assert (status, body["type"], body["error"]["type"]) == (429, "error", "rate_limit_error")


@pytest.mark.parametrize(("model", "answered"), [("first", SHARE), ("third", SHARE // 2)])
async def test_a_refused_request_goes_to_no_further_target(
    gateway: Standalone, engine: Engine, model: str, answered: int
) -> None:
    before, bodies = retries(gateway), len(engine.bodies)
    async with held(gateway, engine, answered, model):
        for _unused in range(3):
            assert await statuses(gateway, [model], FLOODER) == [429]
        assert retries(gateway) == before
        assert len(engine.bodies) == bodies + answered


@pytest.mark.parametrize(("model", "count"), [("static/second", SHARE), ("first", SHARE), ("third", SHARE // 2)])
async def test_requests_that_ended_take_no_room(gateway: Standalone, engine: Engine, model: str, count: int) -> None:
    """HAProxy would keep as many idle connections to a hop as were in use at once."""
    for _unused in range(3):
        async with held(gateway, engine, count, model):
            assert await statuses(gateway, [model], NEIGHBOUR) == [200]


async def test_behind_a_trusted_proxy_the_reported_addresses_are_counted(
    start: Callable[..., Standalone], engine: Engine
) -> None:
    gateway = start(trustedProxies=["127.0.0.1/32"])
    flooder: dict[str, Any] = {"headers": {"x-forwarded-for": "192.0.2.1"}}
    neighbour: dict[str, Any] = {"headers": {"x-forwarded-for": "192.0.2.2"}}
    async with held(gateway, engine, SHARE, **flooder):
        assert await statuses(gateway, EVERY_MODEL, FLOODER, **flooder) == [200, 429, 429, 429]
        assert await statuses(gateway, EVERY_MODEL, FLOODER, **neighbour) == [200] * 4


async def test_sessions_of_one_address_leave_room_for_those_of_others(gateway: Standalone) -> None:
    async with AsyncExitStack() as stack:
        flooder, neighbour = [
            await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0), limit=0))
            )
            for address in (FLOODER, NEIGHBOUR)
        ]
        for _unused in range(SHARE):
            await stack.enter_async_context(flooder.ws_connect(gateway.url + REALTIME))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await flooder.ws_connect(gateway.url + REALTIME)
        assert refusal.value.status == 429
        session = await stack.enter_async_context(neighbour.ws_connect(gateway.url + REALTIME))
        await session.send_str("hello")
        assert await session.receive_str(timeout=PATIENCE) == "first: hello"
        assert await statuses(gateway, EVERY_MODEL, NEIGHBOUR) == [200] * 4


async def test_requests_whose_engine_died_wait_although_those_of_another_address_do(
    start: Callable[..., Standalone], make_engine: Callable[..., Engine]
) -> None:
    """A third of the hop's requests may wait for the first time, seven of these eight for one address."""
    gateway = start(threads=2, holdSeconds=PATIENCE)
    first, second = make_engine("first one"), make_engine("second one")
    gateway.route({"flood": [first.endpoint], "neighbour": [second.endpoint]})
    settle(gateway)
    flood = [asyncio.create_task(post(gateway, "flood", **HELD)) for _unused in range(SHARE)]
    await asyncio.to_thread(wait_for, lambda: first.active == SHARE)
    await asyncio.to_thread(first.kill)
    await asyncio.to_thread(wait_for, lambda: waiting(gateway) == WAITS)
    await asyncio.to_thread(wait_for, lambda: sum(one.done() for one in flood) == SHARE - WAITS)
    other = asyncio.create_task(post(gateway, "neighbour", NEIGHBOUR, **HELD))
    await asyncio.to_thread(wait_for, lambda: second.active == 1)
    await asyncio.to_thread(second.kill)
    await asyncio.to_thread(wait_for, lambda: waiting(gateway) == WAITS + 1)
    for engine in (first, second):
        engine.release(SHARE)
        await asyncio.to_thread(engine.start)
    assert (await other)[0] == 200
    assert sorted(status for status, _body, _headers in await asyncio.gather(*flood)) == (
        [200] * WAITS + [503] * (SHARE - WAITS)
    )
