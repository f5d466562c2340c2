"""Requests that come back into HAProxy take no connection that clients, other hops or other clients need."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.gateway.conftest import Engine, ask_haproxy, settle, wait_for
from tests.gateway.standalone import Standalone

CHAT = "/v1/chat/completions"
ROOM = 25
"""A quarter of the fewest connections that a gateway may have."""
SHARE = 21
"""What one address may have of it."""
HELD = {"x": {"held": True}}


@pytest.fixture(scope="module")
def gateway_of(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Callable[..., Standalone]]:
    """Makes gateways with room for 100 clients. `first` takes one hop, `static/second` another, `third` both, `second`
    none."""
    made: list[Standalone] = []

    def make(**settings: Any) -> Standalone:
        gateway = make_gateway(maxConnections=4 * ROOM, **settings)
        ends, fallback = {"endpoints": [engine.endpoint]}, {"service": "second", "order": 1}
        routes = {
            "first": {"models": ["first"], "targets": [{}, fallback]},
            "third": {"models": ["third"], "targets": [{"answerSeconds": 60}, fallback]},
            "second": {},
        }
        gateway.route({name: {**ends, "route": route} for name, route in routes.items()})
        made.append(gateway.__enter__())
        settle(gateway)
        return gateway

    yield make
    for gateway in made:
        gateway.__exit__(None, None, None)


async def ask(url: str, body: dict[str, Any], address: str) -> int:
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector) as session, session.post(url + CHAT, json=body) as answer:
        await answer.read()
        return answer.status


@asynccontextmanager
async def flooded(
    gateway: Standalone, engine: Engine, count: int, held: int, model: str = "first"
) -> AsyncIterator[None]:
    """While so many requests of one address take a hop, of which an engine holds some. All end in order."""
    body = {"model": model, **HELD}
    flood = [asyncio.create_task(ask(gateway.url, body, "127.0.0.1")) for _unused in range(count)]
    try:
        await asyncio.to_thread(wait_for, lambda: engine.active == held)
        yield
    finally:
        engine.release(count)
    assert set(await asyncio.gather(*flood)) == {200}


def retries(gateway: Standalone) -> int:
    """How many requests were sent to a further target."""
    rows = csv.DictReader(ask_haproxy(gateway, "show stat").removeprefix("# ").splitlines())
    return sum(int(row["wretr"]) for row in rows if (row["pxname"], row["svname"]) == ("turns", "BACKEND"))


async def test_a_full_hop_leaves_clients_and_other_hops_their_connections(
    gateway_of: Callable[..., Standalone], engine: Engine
) -> None:
    gateway = gateway_of(maxConnectionsPerAddress=0)
    async with flooded(gateway, engine, 2 * ROOM, ROOM):
        for model in ("second", "static/second"):
            assert await ask(gateway.url, {"model": model}, "127.0.0.2") == 200


async def test_one_client_leaves_others_room_in_a_hop(gateway_of: Callable[..., Standalone], engine: Engine) -> None:
    gateway = gateway_of()
    async with flooded(gateway, engine, SHARE, SHARE):
        assert await ask(gateway.url, {"model": "first"}, "127.0.0.1") == 429
        assert await ask(gateway.url, {"model": "first"}, "127.0.0.2") == 200


@pytest.mark.parametrize(("model", "held"), [("first", SHARE), ("third", SHARE // 2)])
async def test_a_client_that_has_its_share_of_a_hop_is_sent_to_no_further_target(
    gateway_of: Callable[..., Standalone], engine: Engine, model: str, held: int
) -> None:
    gateway = gateway_of()
    async with flooded(gateway, engine, held, held, model):
        assert await ask(gateway.url, {"model": model}, "127.0.0.1") == 429
        assert retries(gateway) == 0
