"""Artifacts that somebody deleted from the registry are noted on their models, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from slipway.apis.deckhouse import names
from slipway.depot import presence as presence_module
from slipway.depot.presence import VANISHED, Presence
from slipway.depot.registry import Registry

from .conftest import CLUSTER_THING, THING, settings_with
from .fake_registry import FakeRegistry, running

UID, DIGEST = "11111111-2222-3333-4444-555555555555", f"sha256:{'a' * 64}"
PATH, BOX = "/apis/toys.test/v1/namespaces/team/things/tiny", "/apis/toys.test/v1/boxes/tiny"


class World:
    def __init__(self, server: Any, registry: FakeRegistry, presence: Presence) -> None:
        self.server, self.registry, self.presence = server, registry, presence
        self.there = {DIGEST}
        self.status = 0
        registry.interfere = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        digest = request.path.rpartition("/")[2]
        return web.Response(status=self.status or (200 if digest in self.there else 404))

    def noted(self, path: str = PATH) -> str | None:
        return (self.server.objects[path]["metadata"].get("annotations") or {}).get(VANISHED)


@pytest.fixture
async def world(server: Any, client: Any, signer: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(presence_module, "PAUSE_SECONDS", 0.0)
    async with running() as registry:
        settings = settings_with(registry=URL(registry.url).authority, registryPlain=True)
        connected = Registry.connect(settings, signer)
        await server.put(PATH, metadata={"uid": UID}, status={"artifact": {"digest": DIGEST}})
        yield World(server, registry, Presence(client, connected, (THING, CLUSTER_THING)))
        await connected.close()


def test_the_controller_reads_what_is_noted():
    assert names.VANISHED == VANISHED


async def test_what_is_there_costs_one_question_and_no_write(world):
    await world.presence.look()
    assert world.registry.log == [("HEAD", f"/v2/namespaced/team/tiny/{UID}/manifests/{DIGEST}")]
    assert not [one for one in world.server.log if one.method != "GET"]


async def test_what_vanished_is_noted_once_and_forgotten_when_it_is_back(world):
    world.there = set()
    await world.presence.look()
    await world.presence.look()
    assert world.noted() == DIGEST
    assert len([one for one in world.server.log if one.method == "PATCH"]) == 1
    world.there = {DIGEST}
    await world.presence.look()
    assert world.noted() is None


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_registry_that_does_not_say_lost_nothing(world, status):
    world.status = status
    await world.presence.look()
    assert world.noted() is None


async def test_models_without_an_artifact_are_not_asked_for(world):
    await world.server.put(PATH, metadata={"uid": UID}, status={"artifact": "odd"})
    await world.server.put(BOX, metadata={"uid": UID}, status="odd")
    await world.presence.look()
    assert world.registry.log == []
