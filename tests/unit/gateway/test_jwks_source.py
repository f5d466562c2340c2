"""Where an issuer's keys come from: an address that answers well, badly, or not at all."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from slipway.gateway import jwks
from slipway.gateway.jwks import VerificationKey
from slipway.gateway.jwks_source import AccountKeySource, JwksSource
from slipway.gateway.settings import Jwt, Settings
from tests.unit.gateway.test_jwks import point, rsa_key, text


class World:
    """An issuer, a source that asks it, and what the source said."""

    def __init__(self, directory: Path, url: str, session: aiohttp.ClientSession) -> None:
        self.jwt = Jwt("https://issuer", "us", jwks_url=url, allow_http=True)
        self.settings = Settings(run_directory=str(directory), jwt=self.jwt)
        self.session = session
        self.answer: Callable[[], web.StreamResponse] = lambda: web.Response(body=text(rsa_key()))
        self.found: list[list[str]] = []
        self.told: list[str] = []
        self.source = self.anew()

    def anew(self) -> JwksSource:
        self.registry = CollectorRegistry()
        return JwksSource(self.settings, self.jwt, self.registry, self.told.append)

    def take(self, keys: tuple[VerificationKey, ...]) -> None:
        self.found.append([key.kid for key in keys])

    async def refresh(self) -> bool:
        return await self.source.refresh(self.session, self.take)

    def gauge(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"slipway_gateway_{name}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    application = web.Application()
    server = TestServer(application)

    async def keys(_unused: web.Request) -> web.StreamResponse:
        return made.answer()

    application.router.add_get("/keys", keys)
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        made = World(tmp_path, str(server.make_url("/keys")), session)
        yield made
    await server.close()


async def test_keys_are_handed_on_once_for_each_change(world: World) -> None:
    assert await world.refresh()
    assert await world.refresh()
    world.answer = lambda: web.Response(body=text(rsa_key(), point()))
    assert await world.refresh()
    assert world.found == [["a"], ["a", "b"]]
    assert (world.gauge("jwt_keys"), world.gauge("jwks_up")) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=500),
        lambda: web.Response(body=b"<html>"),
        lambda: web.Response(body=text({"kty": "oct"})),
        lambda: web.Response(body=text(point()) + b" " * jwks.MOST_BYTES),
        lambda: web.Response(status=302, headers={"location": "/keys"}),
    ],
    ids=["status", "no JSON", "no key", "too large", "redirect"],
)
async def test_the_last_good_keys_stay_and_it_is_told_once(
    world: World, answer: Callable[[], web.StreamResponse], caplog: pytest.LogCaptureFixture
) -> None:
    await world.refresh()
    world.answer = answer
    with caplog.at_level(logging.WARNING):
        assert [await world.refresh() for _unused in range(3)] == [False] * 3
    assert world.found == [["a"]]
    assert len(world.told) == len(caplog.records) == 1
    assert "the last good one is used" in world.told[0]
    assert (world.gauge("jwt_keys"), world.gauge("jwks_up")) == (1, 0)


async def test_an_outage_after_a_good_answer_is_told_anew(world: World) -> None:
    good, bad = world.answer, lambda: web.Response(status=503)
    for answer in (bad, good, bad):
        world.answer = answer
        await world.refresh()
    assert len(world.told) == 2
    assert "no token is accepted" in world.told[0]


async def test_an_issuer_that_is_down_is_told_once_as_having_no_keys_yet(world: World) -> None:
    good, bad = world.answer, lambda: web.Response(status=503)
    for answer in (bad, bad, good, bad):
        world.answer = answer
        await world.refresh()
    assert world.found == [[], ["a"]]


async def test_a_source_that_is_started_anew_remembers(world: World) -> None:
    await world.refresh()
    world.source = world.anew()
    world.source.remember(world.take)
    assert world.found == [["a"], ["a"]]


async def test_what_is_remembered_is_of_the_same_address(world: World) -> None:
    await world.refresh()
    world.jwt = Jwt("https://issuer", "us", jwks_url="https://another")
    world.source = world.anew()
    world.source.remember(world.take)
    assert world.found == [["a"]]


async def test_keys_in_the_settings_are_asked_of_nobody(world: World) -> None:
    world.jwt = Jwt("https://issuer", "us", jwks=json.loads(text(point())))
    await world.anew().run(world.take)
    assert world.found == [["b"]]


async def test_keys_of_service_accounts_outlive_the_control_process_while_the_api_server_is_away(
    tmp_path: Path,
) -> None:
    answers: list[bytes] = [text(rsa_key())]

    async def ask() -> bytes:
        if not answers:
            raise jwks.JwksError("away")
        return answers.pop()

    for reported in ([], ["Could not get the JWKS at the API server: away; the last good one is used"]):
        found, told, asked = list[str](), list[str](), asyncio.Event()

        async def once(asked: asyncio.Event = asked) -> bytes:
            asked.set()
            return await ask()

        settings = Settings(run_directory=str(tmp_path))
        source = AccountKeySource(settings, once, CollectorRegistry(), told.append)
        running = asyncio.create_task(source.run(lambda keys, found=found: found.extend(key.kid for key in keys)))
        await asyncio.wait_for(asked.wait(), 60)
        for _unused in range(5):
            await asyncio.sleep(0)
        running.cancel()
        assert (found, told) == (["a"], reported)
