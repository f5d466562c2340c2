"""The key set of an issuer, fetched over TLS from a server that answers correctly, incorrectly, or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from slipway.gateway.control.jwks_source import JwksSource
from slipway.gateway.rules import jwks
from slipway.gateway.rules.jwks import VerificationKey
from slipway.gateway.settings import Jwt, Settings
from tests.unit.certificates import Authority
from tests.unit.gateway.test_jwks import point, rsa_key, text


class World:
    """An issuer and the gateway's source of its keys."""

    def __init__(self, directory: Path, url: str, session: aiohttp.ClientSession) -> None:
        self.jwt = Jwt("https://issuer", "us", jwks_url=url)
        self.settings = Settings(run_directory=str(directory), jwt=self.jwt)
        self.session = session
        self.answer: Callable[[], web.StreamResponse] = lambda: web.Response(body=text(rsa_key()))
        self.received: list[list[str]] = []
        self.restart()

    def restart(self) -> None:
        self.registry = CollectorRegistry()
        self.source = JwksSource(self.settings, self.jwt, self.registry)

    def receive(self, keys: tuple[VerificationKey, ...]) -> None:
        self.received.append([key.kid for key in keys])

    async def refresh(self) -> bool:
        return await self.source.refresh(self.session, self.receive)

    def gauge(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"slipway_gateway_{name}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    application = web.Application()
    server = TestServer(application)

    async def keys(_unused: web.Request) -> web.StreamResponse:
        return world.answer()

    application.router.add_get("/keys", keys)
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        world = World(tmp_path, str(server.make_url("/keys")), session)
        yield world
    await server.close()


async def test_each_change_of_the_keys_is_published_once(world: World) -> None:
    assert await world.refresh()
    assert await world.refresh()
    world.answer = lambda: web.Response(body=text(rsa_key(), point()))
    assert await world.refresh()
    assert world.received == [["a"], ["a", "b"]]
    assert (world.gauge("jwt_keys"), world.gauge("jwks_up")) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=500),
        lambda: web.Response(body=b"<html>"),
        lambda: web.Response(body=text({"kty": "oct"})),
        lambda: web.Response(body=text(point()) + b" " * jwks.MOST_BYTES),
        lambda: web.Response(status=302, headers={"location": "/keys"}),
        lambda: web.Response(body=text(point())[:-1] + b', "x": "\xff"}'),
    ],
    ids=["status", "no JSON", "no key", "too large", "redirect", "no UTF-8"],
)
async def test_an_unusable_answer_keeps_the_last_good_keys_and_is_logged_once(
    world: World, answer: Callable[[], web.StreamResponse], caplog: pytest.LogCaptureFixture
) -> None:
    await world.refresh()
    world.answer = answer
    with caplog.at_level(logging.WARNING):
        assert [await world.refresh() for _unused in range(3)] == [False] * 3
    assert world.received == [["a"]]
    assert [record.getMessage().endswith("The gateway uses the last good one.") for record in caplog.records] == [True]
    assert (world.gauge("jwt_keys"), world.gauge("jwks_up")) == (1, 0)


async def test_each_outage_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = world.answer, lambda: web.Response(status=503)
    with caplog.at_level(logging.WARNING):
        for answer in (bad, good, bad):
            world.answer = answer
            await world.refresh()
    effects = [record.getMessage().rpartition(": status 503. ")[2] for record in caplog.records]
    assert effects == ["The gateway accepts no tokens.", "The gateway uses the last good one."]


async def test_the_log_contains_no_query_of_the_address(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.jwt = Jwt("https://issuer", "us", jwks_url=f"{world.jwt.jwks_url}?token=secret")
    world.restart()
    good, bad = lambda: web.Response(body=text(rsa_key(), {"kty": "oct"})), lambda: web.Response(status=503)
    with caplog.at_level(logging.INFO):
        for answer in (bad, good):
            world.answer = answer
            await world.refresh()
    messages = [one.getMessage() for one in caplog.records if one.name == "slipway.gateway.control.jwks_source"]
    assert len(messages) == 3
    assert not any("secret" in message for message in messages)


async def test_a_failed_first_request_publishes_no_keys_once(world: World) -> None:
    good, bad = world.answer, lambda: web.Response(status=503)
    for answer in (bad, bad, good, bad):
        world.answer = answer
        await world.refresh()
    assert world.received == [[], ["a"]]


async def test_a_restarted_source_has_the_last_good_keys(world: World) -> None:
    await world.refresh()
    world.restart()
    world.source.restore(world.receive)
    assert world.received == [["a"], ["a"]]


async def test_another_address_does_not_get_these_keys(world: World) -> None:
    await world.refresh()
    world.jwt = Jwt("https://issuer", "us", jwks_url="https://another")
    world.restart()
    world.source.restore(world.receive)
    assert world.received == [["a"]]


async def good(_unused: web.Request) -> web.Response:
    return web.Response(body=text(rsa_key()))


async def test_keys_come_from_a_server_with_a_trusted_certificate_only(tmp_path: Path) -> None:
    authority = Authority()
    application = web.Application()
    application.router.add_get("/keys", good)
    server = TestServer(application)
    await server.start_server(ssl=authority.context(tmp_path))
    for number, (ca, expected) in enumerate(((authority.pem, ["a"]), (Authority().pem, []), ("", []))):
        jwt = Jwt("https://issuer", "us", jwks_url=str(server.make_url("/keys")), ca=ca)
        directory = tmp_path / str(number)
        directory.mkdir()
        received: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        source = JwksSource(Settings(run_directory=str(directory), jwt=jwt), jwt, CollectorRegistry())
        running = asyncio.create_task(source.run(lambda keys, first=received: first.set_result([k.kid for k in keys])))
        assert await asyncio.wait_for(received, 60) == expected
        running.cancel()
    await server.close()
