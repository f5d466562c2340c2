"""The import door hands a publisher what opens its one entry, and never the catalog's credential."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from slipway.depot.handlers import imports as imports_module
from slipway.depot.handlers.imports import Imports
from slipway.kube.objects import SECRET, Kind
from slipway.weights.sources.catalogs import CatalogError

from ..catalog_server import ANYWHERE, DIGEST, OTHER, TOKEN, CatalogServer, data, grant
from ..certificates import Authority
from ..kube.conftest import refuse
from .conftest import CLUSTER_THING, SYSTEM, THING, depot_client, knows

SOURCE = Kind("toys.test", "v1", "Shop", "shops", namespaced=False)
CHOSEN = {"name": "tiny", "sourceName": "east", "version": "1", "remoteDigest": DIGEST}
SHOWN = {"Authorization": "Bearer a.b.c"}


@pytest.fixture(scope="module")
def trusted() -> Authority:
    return Authority()


@pytest.fixture
def remote() -> CatalogServer:
    return CatalogServer()


@pytest.fixture
async def cluster(server, remote, trusted, tmp_path) -> AsyncIterator[Any]:
    other = TestServer(remote.application())
    await other.start_server(ssl=trusted.context(tmp_path))
    spec = {"url": f"https://127.0.0.1:{other.port}/", "credentialsSecretName": "shop", "caSecretName": "shop-ca"}
    await server.put(SOURCE.path("", "east"), spec=spec)
    await server.put(SECRET.path(SYSTEM, "shop"), data=data(token=TOKEN))
    await server.put(SECRET.path(SYSTEM, "shop-ca"), data=data(ca_crt=trusted.pem))
    await put(server, CLUSTER_THING, "", "mine")
    await put(server, THING, "team", "mine")
    yield server
    await other.close()


async def put(server: Any, kind: Kind, namespace: str, name: str, chosen: Any = CHOSEN) -> None:
    status = {"source": {"catalog": chosen}} if chosen else {}
    await server.put(kind.path(namespace, name), metadata={"name": name, "uid": "u1"}, status=status)


@pytest.fixture
async def visitor(cluster, settings, tokens, client, metrics) -> AsyncIterator[Any]:
    knows(cluster, "system:serviceaccount:team:default", "slipway-depot")
    async with depot_client(metrics, Imports(settings, SOURCE, tokens, client, ANYWHERE)) as test_client:
        yield test_client


async def post(visitor: Any, path: str = "team/mine/u1", headers: Any = None) -> Any:
    return await visitor.post(f"/v1/imports/{path}", headers=SHOWN if headers is None else headers)


def identity(server: Any, kind: Kind, namespace: str) -> str:
    return str(server.objects[kind.path(namespace, "mine")]["metadata"]["uid"])


async def test_a_publisher_gets_a_grant_for_its_models_entry(visitor, server, remote, trusted, caplog):
    caplog.set_level(logging.DEBUG)
    answer = await post(visitor, f"team/mine/{identity(server, THING, 'team')}")
    assert answer.status == 200
    text = await answer.text()
    assert await answer.json() == {**grant(), "ca": trusted.pem.strip()}
    assert remote.bodies == [{"name": "tiny", "version": "1", "digest": DIGEST}]
    assert remote.credentials == [f"Bearer {TOKEN}"]
    assert TOKEN not in text
    assert TOKEN not in caplog.text
    assert "pull-token" not in caplog.text


async def test_models_of_the_cluster_are_the_system_namespaces(visitor, server):
    path = f"-/mine/{identity(server, CLUSTER_THING, '')}"
    assert (await post(visitor, path)).status == 403
    server.faults.clear()
    knows(server, f"system:serviceaccount:{SYSTEM}:default", "slipway-depot")
    assert (await post(visitor, path)).status == 200


async def test_no_caller_imports_for_another_namespace(visitor, server, remote):
    await put(server, THING, "others", "mine")
    answer = await post(visitor, f"others/mine/{identity(server, THING, 'others')}")
    assert answer.status == 403
    assert remote.bodies == []


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eDph"}, {"Authorization": "Bearer x"}])
async def test_only_service_accounts_are_answered(visitor, headers):
    assert (await post(visitor, headers=headers)).status == 401


async def test_a_model_that_was_made_again_is_another_one(visitor):
    assert (await post(visitor, "team/mine/another")).status == 404
    assert (await post(visitor, "team/none/u1")).status == 404


async def test_before_an_entry_was_chosen_a_publisher_asks_again(visitor, server):
    await put(server, THING, "team", "mine", chosen=None)
    answer = await post(visitor, f"team/mine/{identity(server, THING, 'team')}")
    assert (answer.status, answer.headers["Retry-After"]) == (409, "2")


@pytest.mark.parametrize(
    ("status", "given", "expected", "words"),
    [
        (503, grant(), 503, "Refused"),
        (401, grant(), 424, "Unauthorized"),
        (404, grant(), 424, "Refused"),
        (200, grant(OTHER), 424, "InvalidGrant"),
        (200, {}, 424, "InvalidGrant"),
    ],
)
async def test_errors_there_are_reported(visitor, server, remote, status, given, expected, words):
    remote.status, remote.grant = status, given
    answer = await post(visitor, f"team/mine/{identity(server, THING, 'team')}")
    text = await answer.text()
    assert (answer.status, text.split(":")[0]) == (expected, words)
    assert TOKEN not in text
    assert "pull-token" not in text


async def test_a_credential_that_may_not_be_read_is_reported(visitor, server, remote):
    path = f"team/mine/{identity(server, THING, 'team')}"
    server.fault("GET", "secrets/shop", refuse(403, "Forbidden"))
    answer = await post(visitor, path)
    assert (answer.status, (await answer.text()).split(":")[0]) == (424, "SecretForbidden")
    await server.remove(SECRET.path(SYSTEM, "shop"))
    assert (await (await post(visitor, path)).text()).startswith("SecretMissing")
    await server.remove(SOURCE.path("", "east"))
    assert (await (await post(visitor, path)).text()).startswith("SourceMissing")
    assert remote.bodies == []


async def test_one_namespace_leaves_places_to_others(visitor, server, remote, monkeypatch, eventually):
    reached, go = list[str](), asyncio.Event()

    async def hold(_self: Any, _chosen: Any) -> Any:
        reached.append("")
        await go.wait()
        raise CatalogError("Busy", "It is busy.", passing=True)

    monkeypatch.setattr(Imports, "_request_grant", hold)
    path = f"team/mine/{identity(server, THING, 'team')}"
    tasks = [asyncio.create_task(post(visitor, path)) for _unused in range(imports_module.WAITING_OF_ONE)]
    await eventually(lambda: len(reached) == len(tasks))
    assert (await post(visitor, path)).status == 503
    assert len(reached) == len(tasks)
    await put(server, THING, "other", "mine")
    server.faults.clear()
    knows(server, "system:serviceaccount:other:default", "slipway-depot")
    other = asyncio.create_task(
        post(visitor, f"other/mine/{server.objects[THING.path('other', 'mine')]['metadata']['uid']}")
    )
    go.set()
    assert {(await one).status for one in tasks} == {503}
    await other
    assert len(reached) == len(tasks) + 1
