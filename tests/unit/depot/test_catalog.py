"""The catalog door shows ready models to who has a credential, and opens one repository at a time."""

from __future__ import annotations

import json
import logging
from base64 import b64encode, urlsafe_b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.depot.handlers.catalog import Catalog, credentials, document, offers
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Object
from slipway.serving.wire.catalogs import VERSION, read_catalog

from ..kube.conftest import start
from .conftest import CLUSTER_THING, NOW, depot_client, settings_with

__all__ = ["start"]

EAST, WEST = "the-credential-of-east", "the-credential-of-west"
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


NOTES = ("name", "version", "active")


def model(called: str = "tiny", digest: str = DIGEST, created: str = "2026-01-01T00:00:00Z", **fields: Any) -> Object:
    """``fields`` of the status; name, version and active are annotations."""
    notes = {f"slipway.inference/catalog-{note}": fields.pop(note) for note in NOTES if note in fields}
    status = {
        "phase": "Ready",
        "artifact": {"kind": "OCI", "digest": digest, "mediaType": "application/vnd.example", "sizeBytes": 5},
        "source": {"resolvedRevision": "r1"},
        "resolved": {"format": "GGUF", "family": "llama"},
        **fields,
    }
    metadata = {"name": called, "uid": f"uid-{called}", "creationTimestamp": created, "annotations": notes}
    return {"metadata": metadata, "status": status}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "east").write_text(f"{EAST}\n")
    (tmp_path / "west").write_text(WEST)
    (tmp_path / "short").write_text("abc")
    (tmp_path / "empty").write_text("")
    (tmp_path / "..data").mkdir()
    return tmp_path


@pytest.fixture
async def informer(client, server, start, eventually) -> Informer:
    for name in ("tiny", "later"):
        await server.put(CLUSTER_THING.path("", name), **model(name))
    new_informer = Informer(client, CLUSTER_THING)
    start(new_informer.run())
    await eventually(new_informer.synced.is_set)
    return new_informer


@pytest.fixture
async def visitor(informer, signer, metrics, folder) -> AsyncIterator[Any]:
    settings = settings_with(catalog="public", catalogKeys=str(folder), catalogRegistry="registry.example:443")
    async with depot_client(metrics, Catalog(settings, signer, informer, lambda: NOW)) as client:
        yield client


def bearer(token: str = EAST, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **headers}


def basic(name: str, token: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{name}:{token}'.encode()).decode()}"}


async def test_a_valid_credential_lists_the_ready_models(visitor):
    answer = await visitor.get("/v1/catalog", headers=bearer())
    assert answer.status == 200
    catalog = read_catalog(await answer.read())
    assert [(one.name, one.version, one.digest, one.size, one.active) for one in catalog.entries] == [
        ("later", "r1", DIGEST, 5, True),
        ("tiny", "r1", DIGEST, 5, True),
    ]
    facts = (await answer.json())["entries"][0]["facts"]
    assert facts == {"format": "GGUF", "family": "llama"}
    assert answer.headers["ETag"] == f'"{catalog.revision}"'


async def test_unchanged_objects_are_not_sent_again(visitor, server, informer, eventually):
    tag = (await visitor.get("/v1/catalog", headers=bearer())).headers["ETag"]
    again = await visitor.get("/v1/catalog", headers=bearer(**{"If-None-Match": tag}))
    assert (again.status, await again.read()) == (304, b"")
    await server.put(CLUSTER_THING.path("", "tiny"), **model("tiny", OTHER))
    await eventually(lambda: any(one.entry.digest == OTHER for one in offers(informer.store.all())))
    changed = await visitor.get("/v1/catalog", headers=bearer(**{"If-None-Match": tag}))
    assert changed.status == 200
    assert changed.headers["ETag"] != tag


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("another"),
        bearer(f"{EAST}x"),
        bearer("abc"),
        bearer("east"),
        basic("east", WEST),
        basic("", EAST),
        {"Authorization": "Basic %%%"},
        {"Authorization": EAST},
        {"Authorization": f"Digest {EAST}"},
    ],
)
@pytest.mark.parametrize("path", ["catalog", "grants"])
async def test_without_a_credential_nothing_is_reported(visitor, headers, path):
    ask = visitor.get if path == "catalog" else visitor.post
    answer = await ask(f"/v1/{path}", headers=headers)
    assert answer.status == 401
    assert "tiny" not in await answer.text()


async def test_a_credential_has_a_name_in_basic_authentication(visitor):
    assert (await visitor.get("/v1/catalog", headers=basic("west", WEST))).status == 200


async def test_a_credential_that_is_taken_away_is_worth_nothing_at_once(visitor, folder):
    (folder / "east").unlink()
    assert (await visitor.get("/v1/catalog", headers=bearer())).status == 401
    (folder / "east").write_text("another-credential-of-east")
    assert (await visitor.get("/v1/catalog", headers=bearer("another-credential-of-east"))).status == 200


def test_a_folder_that_is_not_there_has_no_credentials(tmp_path):
    assert credentials(tmp_path / "missing") == {}


async def test_a_grant_opens_one_repository_for_five_minutes(visitor, caplog):
    caplog.set_level(logging.INFO)
    answer = await visitor.post("/v1/grants", headers=bearer(), json={"name": "tiny", "digest": DIGEST})
    assert answer.status == 200
    given = await answer.json()
    token = given.pop("token")
    assert given == {
        "apiVersion": VERSION,
        "registry": "registry.example:443",
        "repository": "cluster/tiny/uid-tiny",
        "digest": DIGEST,
        "expiresAt": "2027-01-15T08:05:00Z",
    }
    claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["access"] == [{"type": "repository", "name": "cluster/tiny/uid-tiny", "actions": ["pull"]}]
    assert (claims["sub"], claims["exp"]) == ("catalog:east", NOW + 300)
    assert token not in caplog.text
    assert EAST not in caplog.text


@pytest.mark.parametrize(
    ("asked_for", "status"),
    [
        ({"name": "tiny", "digest": OTHER}, 404),
        ({"name": "other", "digest": DIGEST}, 404),
        ({"name": "tiny", "digest": DIGEST, "version": "r2"}, 404),
        ({"name": "tiny", "digest": DIGEST, "version": "r1"}, 200),
        ({"name": "tiny"}, 400),
        ({"name": "../tiny", "digest": DIGEST}, 400),
        ([], 400),
    ],
)
async def test_a_grant_requires_an_entry_of_the_catalog(visitor, asked_for, status):
    answer = await visitor.post("/v1/grants", headers=bearer(), json=asked_for)
    assert answer.status == status


async def test_before_the_models_are_known_there_is_no_catalog(client, signer, metrics, folder):
    settings = settings_with(catalog="public", catalogKeys=str(folder))
    async with depot_client(metrics, Catalog(settings, signer, Informer(client, CLUSTER_THING))) as visitor:
        assert (await visitor.get("/v1/catalog", headers=bearer())).status == 503


@pytest.mark.parametrize(
    "hidden",
    [
        model(phase="Publishing"),
        model(artifact={}),
        model(digest="sha256:short"),
        model() | {"metadata": {"name": "x", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"name": "x", "uid": "u"}},
    ],
    ids=["publishing", "none", "digest", "deleted", "new"],
)
def test_models_that_are_not_ready_are_hidden(hidden):
    assert offers([hidden]) == []


def test_annotations_say_name_version_and_whether_it_is_for_new_imports():
    (offer,) = offers([model("tiny-2", name="tiny", version="2", active="false")])
    assert (offer.entry.name, offer.entry.version, offer.entry.active) == ("tiny", "2", False)
    assert offer.repository == "cluster/tiny-2/uid-tiny-2"


def test_an_imported_model_keeps_its_version():
    (offer,) = offers([model(source={"resolvedRevision": DIGEST, "catalog": {"version": "7"}})])
    assert offer.entry.version == "7"


def test_the_older_of_two_with_one_name_and_version_counts():
    younger = model("a", OTHER, "2026-02-01T00:00:00Z", name="tiny")
    assert [one.entry.digest for one in offers([younger, model()])] == [DIGEST]


def test_the_order_of_models_does_not_matter_to_the_revision():
    two = [model("a"), model("b")]
    assert document(offers(two)) == document(offers(two[::-1]))


def test_a_catalog_never_gets_longer_than_readers_take():
    long = [model(f"m{number}", resolved={"family": "x" * 10_000}) for number in range(2000)]
    _revision, text = document(offers(long))
    catalog = read_catalog(text)
    assert len(catalog.entries) == 2000
    assert b"facts" not in text
    assert msgspec.json.decode(text)["entries"][0]["name"] == "m0"
