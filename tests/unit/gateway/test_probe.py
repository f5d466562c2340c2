"""Endpoints are used once they listen."""

from __future__ import annotations

import asyncio

from slipway.gateway.control.probe import Prober
from slipway.gateway.routing.table import Backend, RoutingTable


def table(*endpoints: str) -> RoutingTable:
    return RoutingTable({"ns:m": Backend("ns", "m", endpoints)}, {}, {}, ())


def shown(prober: Prober, desired: RoutingTable) -> tuple[str, ...]:
    return prober.filter(desired).backends["ns:m"].endpoints


async def test_an_endpoint_is_shown_when_it_listens_and_told_of() -> None:
    changed = asyncio.Event()
    prober = Prober(changed.set)
    server = await asyncio.start_server(lambda *_unused: None, "127.0.0.1", 0, start_serving=False)
    endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert shown(prober, table(endpoint)) == ()
    await server.start_serving()
    await asyncio.wait_for(changed.wait(), 60)
    assert shown(prober, table(endpoint)) == (endpoint,)
    await prober.close()
    server.close()


async def test_what_is_in_use_is_not_tried_and_what_is_gone_is_forgotten() -> None:
    prober = Prober(lambda: None)
    prober.trust(["127.0.0.1:1"])
    assert shown(prober, table("127.0.0.1:1")) == ("127.0.0.1:1",)
    assert shown(prober, table()) == ()
    assert shown(prober, table("127.0.0.1:1")) == ()
    await prober.close()
