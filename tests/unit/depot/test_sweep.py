"""The sweep: what no model names goes, all that a model has stays."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib.util
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from slipway.depot.credentials import certificates
from slipway.depot.handlers import sweep as sweep_module
from slipway.depot.handlers.sweep import Sweeper, find_retained, in_order
from slipway.depot.handlers.tokens import Tokens
from slipway.depot.http.app import application
from slipway.depot.http.server import Certificate, serve
from slipway.depot.storage import registry as registry_module
from slipway.depot.storage.registry import Registry

from ...docs.pages import ROOT
from .conftest import CLUSTER_THING, KEY, NOW, SYSTEM, THING, depot_client, knows, settings_with
from .fake_registry import FakeRegistry, digest_of, running
from .test_tokens import BEARER

COLLECTOR = f"system:serviceaccount:{SYSTEM}:slipway-registry-collection"


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with running() as fake:
        yield fake


@pytest.fixture
async def visitor(registry, server, signer, client, metrics) -> AsyncIterator[Any]:
    settings = settings_with(registry=URL(registry.url).authority, registryPlain=True)
    connected = Registry.connect(settings, signer)
    tokens = Tokens(settings, signer, KEY, client, lambda: NOW)
    knows(server, COLLECTOR, "slipway-depot")
    async with depot_client(metrics, tokens, Sweeper(settings, tokens, client, connected)) as test_client:
        yield test_client
    await connected.close()


def push(registry: FakeRegistry, repository: str, *tags: str, text: str = "") -> str:
    """Digest of a manifest that is there now."""
    content = json.dumps({"layers": [], "of": text or tags}).encode()
    registry.manifests[repository, digest_of(content)] = content
    for tag in tags:
        registry.tags[repository, tag] = digest_of(content)
    return digest_of(content)


async def put(server: Any, name: str, uid: str, namespace: str = "team", **given: Any) -> None:
    kind = THING if namespace else CLUSTER_THING
    annotations = given.pop("annotations", {})
    metadata = {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations}
    await server.put(kind.path(namespace, name), metadata=metadata, **given)


async def sweep(visitor: Any) -> dict[str, Any]:
    answer = await visitor.post("/v1/sweep", headers=BEARER)
    assert answer.status == 200
    return await answer.json()


def ready(digest: str) -> dict[str, Any]:
    return {"phase": "Ready", "artifact": {"digest": digest, "sizeBytes": 1}}


async def test_a_sweep_removes_repositories_without_a_model(visitor, registry, server):
    for repository in (
        "namespaced/team/gone/1",
        "cluster/gone/2",
        "namespaced/team/never-was",
        "namespaced/team/a/b/c",
    ):
        push(registry, repository, "published", "other")
    push(registry, "namespaced/team/gone/1", "image", text="image")
    assert await sweep(visitor) == {"removed": 5, "complete": True}
    assert registry.manifests == {}
    assert await sweep(visitor) == {"removed": 0, "complete": True}


async def test_a_sweep_keeps_the_artifacts_of_models(visitor, registry, server):
    artifact = push(registry, "namespaced/team/there/1", "published")
    image = push(registry, "namespaced/team/there/1", "image", text="image")
    await put(server, "there", "1", status=ready(artifact), annotations={"slipway.inference/image": image})
    await put(server, "there", "2", "", status=ready(push(registry, "cluster/there/2", "published")))
    await put(server, "coming", "3", status={"phase": "Publishing"})
    for tag in ("session", "publishing", "published", "image"):
        push(registry, "namespaced/team/coming/3", tag)
    await put(server, "new", "4")
    push(registry, "namespaced/team/new/4", "session")
    before = dict(registry.tags)
    assert await sweep(visitor) == {"removed": 0, "complete": True}
    assert registry.tags == before


async def test_a_model_of_the_same_name_keeps_nothing_of_the_one_before(visitor, registry, server):
    push(registry, "namespaced/team/tiny/old", "published")
    mine = push(registry, "namespaced/team/tiny/new", "published")
    await put(server, "tiny", "new", status=ready(mine))
    assert (await sweep(visitor))["removed"] == 1
    assert set(registry.tags) == {("namespaced/team/tiny/new", "published")}


async def test_extra_manifests_next_to_an_artifact_are_removed(visitor, registry, server):
    repository = "namespaced/team/tiny/1"
    artifact = push(registry, repository, "published")
    for tag in ("junk", "session", "publishing", "image"):
        push(registry, repository, tag)
    registry.tags[repository, "also"] = artifact
    await put(server, "tiny", "1", status=ready(artifact))
    await put(server, "coming", "2", status={"phase": "Publishing"})
    push(registry, "namespaced/team/coming/2", "junk")
    assert (await sweep(visitor))["removed"] == 5
    assert set(registry.tags.values()) == {artifact}


async def test_a_model_that_failed_keeps_only_what_its_author_uploaded(visitor, registry, server):
    await put(server, "bad", "1", status={"phase": "Failed", "artifact": {"sizeBytes": 85}})
    for tag in ("session", "publishing", "published", "image"):
        push(registry, "namespaced/team/bad/1", tag)
    assert (await sweep(visitor))["removed"] == 3
    assert set(registry.tags) == {("namespaced/team/bad/1", "session")}


async def test_a_manifest_that_took_the_artifacts_tag_goes(visitor, registry, server):
    push(registry, "namespaced/team/tiny/1", "published", text="another")
    await put(server, "tiny", "1", status=ready(digest_of(b"artifact")))
    assert (await sweep(visitor))["removed"] == 1


async def test_a_sweep_keeps_foreign_repositories(visitor, registry, server):
    for repository in ("library/other", "clusters/a/1", "namespaced"):
        push(registry, repository, "latest")
    assert await sweep(visitor) == {"removed": 0, "complete": True}


async def test_a_model_that_is_created_meanwhile_keeps_its_repository(visitor, registry, server):
    async def create(request: web.Request) -> None:
        if request.path == "/v2/_catalog":
            push(registry, "namespaced/team/new/1", "session")
            await put(server, "new", "1")

    registry.interfere = create
    assert (await sweep(visitor))["removed"] == 0


@pytest.mark.parametrize("kind", ["things", "boxes"])
async def test_nothing_goes_while_the_models_cannot_be_listed(visitor, registry, server, script, kind):
    push(registry, "namespaced/team/gone/1", "published")
    server.fault("GET", f"/{kind}", script.refuse(404, "NotFound"), times=9)
    assert (await visitor.post("/v1/sweep", headers=BEARER)).status == 503
    assert registry.tags


async def test_a_registry_that_does_not_answer_is_503(visitor, registry):
    async def fail(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=503)

    registry.interfere = fail
    assert (await visitor.post("/v1/sweep", headers=BEARER)).status == 503


async def test_a_registry_that_is_read_only_is_left_for_later(visitor, registry):
    push(registry, "namespaced/team/gone/1", "published")

    async def fail(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=405) if request.method == "DELETE" else None

    registry.interfere = fail
    assert await sweep(visitor) == {"removed": 0, "complete": False}


async def test_all_pages_of_the_list_are_read(visitor, registry, monkeypatch):
    monkeypatch.setattr(registry_module, "PAGE", 2)
    for number in range(5):
        push(registry, f"namespaced/team/gone/{number}", "published")
    assert (await sweep(visitor))["removed"] == 5


async def test_all_pages_of_the_tags_are_read(visitor, registry, server, monkeypatch):
    monkeypatch.setattr(registry_module, "PAGE", 2)
    repository = "namespaced/team/tiny/1"
    for tag in ("a", "b", "c", "published", "z"):
        push(registry, repository, tag)
    await put(server, "tiny", "1", status=ready(registry.tags[repository, "published"]))
    assert await sweep(visitor) == {"removed": 4, "complete": True}
    assert set(registry.tags) == {(repository, "published")}


async def test_a_repository_that_takes_too_long_is_left_and_the_others_are_looked_at(visitor, registry, monkeypatch):
    names = [f"namespaced/team/gone/{number}" for number in range(3)]
    for name in names:
        push(registry, name, "a", "b")
    monkeypatch.setattr(sweep_module, "MOST_OF_ONE", -1.0)
    assert await sweep(visitor) == {"removed": 0, "complete": False}
    assert {f"/v2/{name}/tags/list" for name in names} <= {path for _method, path in registry.log}


def test_repositories_without_a_model_are_first_and_otherwise_in_another_order_each_time():
    names = [f"namespaced/team/m{number}/{number}" for number in range(40)]
    orders = [in_order(names, set(names[:20])) for _unused in range(2)]
    assert orders[0] != orders[1]
    assert all((set(order[:20]), set(order[20:])) == (set(names[20:]), set(names[:20])) for order in orders)


async def test_a_tag_that_is_moved_meanwhile_stays(visitor, registry, server):
    """A publisher moves it while the depot looks at the others."""
    repository = "namespaced/team/coming/1"
    push(registry, repository, "publishing", text="before")
    await put(server, "coming", "1", status={"phase": "Publishing"})

    async def move(request: web.Request) -> None:
        if request.path.endswith("/tags/list"):
            push(registry, repository, "publishing", text="after")

    registry.interfere = move
    await sweep(visitor)
    assert (repository, "publishing") in registry.tags


@pytest.mark.parametrize(
    "account",
    [
        f"system:serviceaccount:{SYSTEM}:default",
        "system:serviceaccount:team:slipway-registry-collection",
        f"system:serviceaccount:{SYSTEM}:slipway-registry-collection.x",
    ],
)
async def test_only_the_collector_may_do_it(visitor, registry, server, account):
    push(registry, "namespaced/team/gone/1", "published")
    server.faults.clear()
    knows(server, account, "slipway-depot")
    assert (await visitor.post("/v1/sweep", headers=BEARER)).status == 403
    assert (await visitor.post("/v1/sweep")).status == 401
    assert registry.tags


@pytest.mark.parametrize("status", [None, "odd", {"artifact": 5}, {"artifact": {"digest": 5}}, {"artifact": {}}])
def test_an_odd_status_keeps_what_a_publication_needs(status: Any):
    model = {"metadata": {"namespace": "team", "name": "a", "uid": "1"}, "status": status}
    [keep] = find_retained([model]).values()
    assert keep.keeps("published", "sha256:1")
    assert not keep.keeps("junk", "sha256:1")


async def test_the_collectors_program_calls_the_door(registry, server, signer, client, metrics, tmp_path):
    spec = importlib.util.spec_from_file_location("window", ROOT / "roles/model_registry/files/window.py")
    assert spec
    assert spec.loader
    window: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(window)
    issuer = certificates.authority(dt.datetime.now(dt.UTC), None)
    pair = certificates.server(issuer, ("127.0.0.1",), dt.datetime.now(dt.UTC))
    for name, content in (
        ("ca", issuer.certificate),
        ("crt", pair.certificate),
        ("key", pair.key),
        ("token", b"a.b.c"),
    ):
        (tmp_path / name).write_bytes(content)
    settings = settings_with(registry=URL(registry.url).authority, registryPlain=True)
    connected = Registry.connect(settings, signer)
    tokens = Tokens(settings, signer, KEY, client, lambda: NOW)
    app = application([Sweeper(settings, tokens, client, connected)], metrics, at_once=8)
    push(registry, "namespaced/team/gone/1", "published")
    knows(server, COLLECTOR, "slipway-depot")
    tls = Certificate(tmp_path / "crt", tmp_path / "key").context
    async with serve(app, "127.0.0.1:0", tls, connections=16) as bound:
        url = f"https://127.0.0.1:{bound.sockets[0].getsockname()[1]}/v1/sweep"
        depot = window.Depot({"url": url, "ca": str(tmp_path / "ca"), "token": str(tmp_path / "token")})
        assert await asyncio.to_thread(depot) == {"removed": 1, "complete": True}
        server.faults.clear()
        knows(server, f"system:serviceaccount:{SYSTEM}:default", "slipway-depot")
        with pytest.raises(OSError, match="403"):
            await asyncio.to_thread(depot)
    await connected.close()
