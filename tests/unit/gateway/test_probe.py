"""Endpoints are used once they listen."""

from __future__ import annotations

import asyncio

from slipway.gateway.control.probe import Prober
from slipway.gateway.routing.table import Backend, RoutingTable


def table(*endpoints: str) -> RoutingTable:
    return RoutingTable({"ns:m": Backend("ns", "m", endpoints)}, {}, {}, ())


def filtered(prober: Prober, desired: RoutingTable) -> tuple[str, ...]:
    return prober.filter(desired).backends["ns:m"].endpoints


async def test_an_endpoint_is_used_and_announced_when_it_listens() -> None:
    changed = asyncio.Event()
    prober = Prober(changed.set)
    server = await asyncio.start_server(lambda *_unused: None, "127.0.0.1", 0, start_serving=False)
    endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert filtered(prober, table(endpoint)) == ()
    await server.start_serving()
    await asyncio.wait_for(changed.wait(), 60)
    assert filtered(prober, table(endpoint)) == (endpoint,)
    await prober.close()
    server.close()


async def test_used_endpoints_are_not_tried_and_removed_ones_are_forgotten() -> None:
    prober = Prober(lambda: None)
    prober.trust(["127.0.0.1:1"])
    assert filtered(prober, table("127.0.0.1:1")) == ("127.0.0.1:1",)
    assert filtered(prober, table()) == ()
    assert filtered(prober, table("127.0.0.1:1")) == ()
    await prober.close()
