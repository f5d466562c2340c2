"""Artifacts that were deleted from the registry are reported on their models, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from slipway.apis.deckhouse import names
from slipway.depot.storage import presence as presence_module
from slipway.depot.storage.presence import VANISHED, Presence
from slipway.depot.storage.registry import Registry

from .conftest import CLUSTER_THING, THING, settings_with
from .fake_registry import FakeRegistry, running

UID, DIGEST = "11111111-2222-3333-4444-555555555555", f"sha256:{'a' * 64}"
PATH, BOX = "/apis/toys.test/v1/namespaces/team/things/tiny", "/apis/toys.test/v1/boxes/tiny"


class World:
    def __init__(self, server: Any, registry: FakeRegistry, presence: Presence) -> None:
        self.server, self.registry, self.presence = server, registry, presence
        self.there = {DIGEST}
        self.status, self.of = 0, "/manifests/"
        """Status of the answers to requests whose path has these words; 0: the usual one."""
        self.behind = {"Docker-Distribution-Api-Version": "registry/2.0"}
        registry.interfere = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.status and self.of in request.path:
            return web.Response(status=self.status)
        if request.path == "/v2/":
            return web.Response(headers=self.behind)
        digest = request.path.rpartition("/")[2]
        return web.Response(status=200 if digest in self.there else 404, headers=self.behind)

    def annotation(self, path: str = PATH) -> str | None:
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


def test_the_controller_reads_the_same_annotation():
    assert names.VANISHED == VANISHED


async def test_a_present_artifact_costs_one_request_and_no_write(world):
    await world.presence.check()
    assert world.registry.log == [("HEAD", f"/v2/namespaced/team/tiny/{UID}/manifests/{DIGEST}")]
    assert not [one for one in world.server.log if one.method != "GET"]


async def test_an_artifact_that_is_missing_twice_is_reported_once(world):
    world.there = set()
    await world.presence.check()
    assert world.annotation() is None
    await world.presence.recheck()
    await world.presence.recheck()
    await world.presence.check()
    assert world.annotation() == DIGEST
    assert len([one for one in world.server.log if one.method == "PATCH"]) == 1


async def test_an_artifact_that_is_back_is_reported_by_the_next_recheck(world):
    world.there = set()
    await world.presence.check()
    await world.presence.recheck()
    world.there = {DIGEST}
    await world.presence.recheck()
    assert world.annotation() is None
    world.registry.log.clear()
    await world.presence.recheck()
    assert world.registry.log == []


async def test_a_new_process_rechecks_missing_artifacts(world):
    await world.server.put(
        PATH, metadata={"uid": UID, "annotations": {VANISHED: DIGEST}}, status={"artifact": {"digest": DIGEST}}
    )
    await world.presence.load()
    await world.presence.recheck()
    assert world.annotation() is None


async def test_an_artifact_that_is_missing_once_is_not_reported(world):
    world.there = set()
    await world.presence.check()
    world.there = {DIGEST}
    await world.presence.recheck()
    world.there = set()
    await world.presence.check()
    assert world.annotation() is None


@pytest.mark.parametrize("status", [400, 401, 403, 416, 500, 503])
async def test_an_error_of_the_registry_is_not_a_missing_artifact(world, status):
    world.status = status
    await world.presence.check()
    await world.presence.check()
    assert world.annotation() is None


@pytest.mark.parametrize("status", [0, 400, 401, 404, 503])
async def test_an_answer_of_another_server_is_not_a_missing_artifact(world, status):
    world.there, world.status, world.of = set(), status, "/v2/"
    if not status:
        world.behind = {}
    await world.presence.check()
    await world.presence.check()
    assert world.annotation() is None


async def test_a_refused_repository_does_not_end_the_check(world):
    await world.server.put(BOX, metadata={"uid": UID}, status={"artifact": {"digest": f"sha256:{'b' * 64}"}})
    world.status, world.of = 403, "/namespaced/"
    await world.presence.check()
    await world.presence.check()
    assert (world.annotation(), world.annotation(BOX)) == (None, f"sha256:{'b' * 64}")


async def test_an_artifact_that_the_registry_cannot_read_does_not_end_the_check(world):
    await world.server.put(BOX, metadata={"uid": UID}, status={"artifact": {"digest": f"sha256:{'b' * 64}"}})
    world.status, world.of = 503, "/namespaced/"
    await world.presence.check()
    await world.presence.check()
    assert (world.annotation(), world.annotation(BOX)) == (None, f"sha256:{'b' * 64}")


@pytest.mark.parametrize("one_answers", [False, True])
async def test_a_check_ends_after_three_requests_in_a_row_without_an_answer(world, one_answers):
    for number in range(6):
        path = f"/apis/toys.test/v1/namespaces/team/things/m{number}"
        await world.server.put(path, metadata={"uid": f"m{number}"}, status={"artifact": {"digest": DIGEST}})
    model_names: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        model_names.append(request.path.split("/")[4])
        return web.Response(status=200 if one_answers and len(model_names) == 3 else 503, headers=world.behind)

    world.registry.interfere = answer
    await world.presence.check()
    assert len(model_names) == (6 if one_answers else 3)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_the_first_check_comes_within_an_hour_of_the_start(world, monkeypatch, share):
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def check() -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(presence_module.asyncio, "sleep", sleep)
    monkeypatch.setattr(presence_module.random, "uniform", lambda low, high: low + share * (high - low))
    monkeypatch.setattr(world.presence, "check", check)
    with pytest.raises(asyncio.CancelledError):
        await world.presence.run()
    assert sum(pauses) == 3600 * share


async def test_a_deleted_model_is_not_checked_again(world):
    world.there = set()
    await world.presence.check()
    world.server.objects.pop(PATH)
    await world.presence.recheck()
    world.registry.log.clear()
    await world.presence.recheck()
    assert world.registry.log == []


async def test_models_without_an_artifact_cost_no_request(world):
    await world.server.put(PATH, metadata={"uid": UID}, status={"artifact": "odd"})
    await world.server.put(BOX, metadata={"uid": UID}, status="odd")
    await world.presence.check()
    assert world.registry.log == []


async def test_many_missing_artifacts_of_one_author_bound_a_recheck_and_all_have_their_turn(world, monkeypatch):
    monkeypatch.setattr(presence_module, "MOST_RECHECKED", 2)
    for number in range(4):
        path = f"/apis/toys.test/v1/namespaces/team/things/m{number}"
        await world.server.put(path, metadata={"uid": f"m{number}"}, status={"artifact": {"digest": DIGEST}})
    world.there = set()
    await world.presence.check()
    rounds = []
    for _unused in range(3):
        world.registry.log.clear()
        await world.presence.recheck()
        rounds.append({path for method, path in world.registry.log if method == "HEAD"})
    assert [len(paths) for paths in rounds] == [2, 2, 2]
    assert len(set.union(*rounds)) == 5
