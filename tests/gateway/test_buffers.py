"""One address cannot use up HAProxy's buffers, however it combines hops, slow connections and HTTP/2."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from slipway.gateway import memory
from slipway.gateway.rules import connections
from slipway.gateway.settings import Settings
from tests.gateway.conftest import Engine, ask_haproxy, port_of, settle, wait_for
from tests.gateway.http2 import Connection
from tests.gateway.standalone import PATIENCE, Standalone
from tests.gateway.test_hops import CHAT, NEIGHBOUR, held, statuses

MIB = 1 << 20
SETTINGS = Settings(memory_bytes=128 * MIB, max_body_bytes=MIB, body_bytes=8 * MIB, threads=2)
SHARE = connections.address_limit(SETTINGS)
BEGIN = b'{"model":"second","p":"' + b"x" * 30_000
HELD = b'{"model":"second","x":{"held":true}}'
CONNECTIONS = 40
"""HTTP/2 connections of the address. Each request in them holds a buffer before its body comes."""
IN_HOPS = 60
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


def send_streams(gateway: Standalone, stack: ExitStack, address: str) -> None:
    """Sends as many requests as one HTTP/2 connection may have, which its engine holds. It closes with `stack`."""
    connection = Connection(port_of(gateway), PATIENCE, address)
    stack.callback(connection.close)
    for _unused in range(connection.limit):
        assert connection.send(connection.post(CHAT, len(HELD)), HELD, end=True) == len(HELD) or connection.ended
    connection.ping()


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


async def test_requests_of_several_addresses_that_wait_for_an_engine_leave_memory_to_others(
    gateway: Standalone, engine: Engine
) -> None:
    """HAProxy keeps a copy of each in a small buffer."""
    room = memory.max_buffers(SETTINGS.threads, SETTINGS.max_body_bytes, SETTINGS.memory_bytes)
    with ExitStack() as stack:
        for number in range(room // SHARE + 2):
            for _unused in range(SHARE // 32 + 1):
                with suppress(OSError):  # one too many
                    await asyncio.to_thread(send_streams, gateway, stack, f"127.0.0.{number + 3}")
        await asyncio.to_thread(wait_for, lambda: engine.active > SHARE)
        copies = re.search(r"Pool small_buffe.* (\d+) allocated", ask_haproxy(gateway, "show pools"))
        assert copies
        assert SHARE < int(copies[1]) <= room
    await asyncio.to_thread(wait_for, lambda: engine.active == 0)
    assert await statuses(gateway, ["second", "third"] * 5, NEIGHBOUR) == [200] * 10
