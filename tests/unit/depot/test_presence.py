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
        self.status, self.of = 0, "/manifests/"
        """What is answered to requests whose path has these words."""
        self.behind = {"Docker-Distribution-Api-Version": "registry/2.0"}
        registry.interfere = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.status and self.of in request.path:
            return web.Response(status=self.status)
        if request.path == "/v2/":
            return web.Response(headers=self.behind)
        digest = request.path.rpartition("/")[2]
        return web.Response(status=200 if digest in self.there else 404, headers=self.behind)

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


async def test_what_vanished_is_noted_once_when_it_is_missing_a_second_time(world):
    world.there = set()
    await world.presence.look()
    assert world.noted() is None
    await world.presence.look_again()
    await world.presence.look_again()
    await world.presence.look()
    assert world.noted() == DIGEST
    assert len([one for one in world.server.log if one.method == "PATCH"]) == 1


async def test_what_is_back_loses_the_note_without_a_look_at_all(world):
    world.there = set()
    await world.presence.look()
    await world.presence.look_again()
    world.there = {DIGEST}
    await world.presence.look_again()
    assert world.noted() is None
    world.registry.log.clear()
    await world.presence.look_again()
    assert world.registry.log == []


async def test_what_another_process_noted_is_looked_at_again(world):
    await world.server.put(
        PATH, metadata={"uid": UID, "annotations": {VANISHED: DIGEST}}, status={"artifact": {"digest": DIGEST}}
    )
    await world.presence.recall()
    await world.presence.look_again()
    assert world.noted() is None


async def test_what_was_missing_once_is_not_noted(world):
    world.there = set()
    await world.presence.look()
    world.there = {DIGEST}
    await world.presence.look_again()
    world.there = set()
    await world.presence.look()
    assert world.noted() is None


@pytest.mark.parametrize("status", [400, 401, 403, 416, 500, 503])
async def test_a_registry_that_does_not_say_lost_nothing(world, status):
    world.status = status
    await world.presence.look()
    await world.presence.look()
    assert world.noted() is None


@pytest.mark.parametrize("status", [0, 400, 401, 404, 503])
async def test_what_is_no_registry_lost_nothing(world, status):
    world.there, world.status, world.of = set(), status, "/v2/"
    if not status:
        world.behind = {}
    await world.presence.look()
    await world.presence.look()
    assert world.noted() is None


async def test_a_repository_that_may_not_be_asked_for_ends_no_look(world):
    await world.server.put(BOX, metadata={"uid": UID}, status={"artifact": {"digest": f"sha256:{'b' * 64}"}})
    world.status, world.of = 403, "/namespaced/"
    await world.presence.look()
    await world.presence.look()
    assert (world.noted(), world.noted(BOX)) == (None, f"sha256:{'b' * 64}")


async def test_a_model_that_is_gone_is_forgotten(world):
    world.there = set()
    await world.presence.look()
    world.server.objects.pop(PATH)
    await world.presence.look_again()
    world.registry.log.clear()
    await world.presence.look_again()
    assert world.registry.log == []


async def test_models_without_an_artifact_are_not_asked_for(world):
    await world.server.put(PATH, metadata={"uid": UID}, status={"artifact": "odd"})
    await world.server.put(BOX, metadata={"uid": UID}, status="odd")
    await world.presence.look()
    assert world.registry.log == []
