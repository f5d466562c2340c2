"""One address cannot use up HAProxy's buffers, however it combines hops, slow connections and HTTP/2."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from slipway.gateway.rules import connections
from slipway.gateway.settings import Settings
from tests.gateway.conftest import Engine, port_of, settle
from tests.gateway.http2 import Connection
from tests.gateway.standalone import PATIENCE, Standalone
from tests.gateway.test_hops import CHAT, NEIGHBOUR, held, statuses

MIB = 1 << 20
SETTINGS = Settings(memory_bytes=128 * MIB, max_body_bytes=MIB, body_bytes=8 * MIB, threads=2)
SHARE = connections.address_limit(SETTINGS)
BEGIN = b'{"model":"second","p":"' + b"x" * 30_000
CONNECTIONS = 40
"""HTTP/2 connections of the address. Each request in them holds a buffer before its body comes."""
IN_HOPS = 72
"""Requests of the address that take two hops each."""


@pytest.fixture
def gateway(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    """Requests for `third` take two hops, those for `second` none."""
    fallback = {"service": "second", "order": 1}
    routes = {"third": {"models": ["third"], "targets": [{"answerSeconds": 600}, fallback]}, "second": {}}
    limited = make_gateway(
        threads=SETTINGS.threads,
        maxConnections=SETTINGS.max_connections,
        memoryBytes=SETTINGS.memory_bytes,
        maxBodyBytes=SETTINGS.max_body_bytes,
        bodyBytes=SETTINGS.body_bytes,
    )
    limited.route({name: {"endpoints": [engine.endpoint], "route": route} for name, route in routes.items()})
    with limited:
        settle(limited)
        yield limited


def begin(gateway: Standalone, stack: ExitStack) -> None:
    """Sends a request that fits a buffer and does not end. Its connection closes with `stack`."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(BEGIN) + 100}\r\n\r\n".encode()
    with suppress(OSError):  # one too many
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=PATIENCE))
        connection.sendall(head + BEGIN)


def begin_streams(gateway: Standalone, stack: ExitStack) -> None:
    """Begins as many requests as one HTTP/2 connection may have. It closes with `stack`."""
    connection = Connection(port_of(gateway), PATIENCE)
    stack.callback(connection.close)
    for _unused in range(connection.limit):
        connection.post(CHAT, len(BEGIN))
    connection.ping()


async def test_requests_in_hops_and_unfinished_bodies_of_one_address_leave_buffers_to_others(
    gateway: Standalone, engine: Engine
) -> None:
    with ExitStack() as stack:
        async with held(gateway, engine, IN_HOPS, "third", p="x" * 30_000):
            for _unused in range(2 * SHARE):
                await asyncio.to_thread(begin, gateway, stack)
            assert await statuses(gateway, ["second", "third"] * 5, NEIGHBOUR, p="x" * 30_000) == [200] * 10


async def test_unfinished_streams_of_one_address_leave_buffers_to_others(gateway: Standalone) -> None:
    with ExitStack() as stack:
        for _unused in range(CONNECTIONS):
            with suppress(OSError):  # one too many
                begin_streams(gateway, stack)
        assert await statuses(gateway, ["second", "third"] * 5, NEIGHBOUR, p="x" * 30_000) == [200] * 10
