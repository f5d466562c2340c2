"""The cache of parsed storage: bounded, whatever authors of models create and delete."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome.models import storage
from slipway.apis.ome.names import BASE_MODEL
from slipway.serving.contract.settings import Settings
from tests import worlds

from .cluster import APIS, Cluster

API = APIS[BASE_MODEL.kind]


def create(cluster: Cluster, namespace: str, *names: str, **fields: Any) -> None:
    for name in names:
        cluster.create(name, f"hf://{namespace}/{name}", "BaseModel", namespace, **fields)


def test_the_storage_of_a_model_is_parsed_once_for_each_of_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, parsed = Cluster("a", "b", "c", settings=Settings(apis={"ome": {"loadsAtOnce": 1}})), list[str]()
    create(cluster, "crowd", *(f"m{number}" for number in range(5)))
    create(cluster, "chat", "mine")
    cluster.reconcile("mine")
    original = storage._parse

    def count(model: Any, *rest: Any) -> storage.Stored:
        parsed.append(model["metadata"]["name"])
        return original(model, *rest)

    monkeypatch.setattr(storage, "_parse", count)
    world = cluster.world("mine")
    for _unused in range(3):
        worlds.plan(API, world)
    assert parsed == []
    cluster.change("mine", storageUri="hf://acme/other")
    worlds.plan(API, cluster.world("mine"))
    assert set(parsed) == {"mine"}


def test_storage_of_any_length_takes_bounded_memory() -> None:
    """Its authors create and delete models, and no event reports the deletions."""
    cache, cluster = storage.Cache(most=1 << 20), Cluster("a")
    for number in range(300):
        create(cluster, "crowd", "m", parameters={str(one): "x" * 40 for one in range(100)})
        cluster.models["m"]["metadata"]["name"] = f"m{number}"
        cache.get(cluster.models["m"], cluster.settings, ())
        assert 0 < cache.size <= 1 << 20


@pytest.mark.parametrize("parameters", [{"a": "x" * (1 << 20)}, {str(one): "x" for one in range(100_000)}])
def test_storage_that_is_too_long_is_refused_and_neither_parsed_nor_kept(
    parameters: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, cache = Cluster("a"), storage.Cache()
    monkeypatch.setattr(storage, "_CACHE", cache)
    monkeypatch.setattr(storage, "_parse", None)
    create(cluster, "crowd", "m", parameters=parameters)
    cluster.reconcile("m")
    assert cluster.reason("m", "Accepted") == "InvalidSpec"
    assert "larger than 64 KiB" in cluster.message("m")
    assert cache.size == 0


def test_the_storage_of_models_that_are_read_often_stays_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, cache, parsed = Cluster("a"), storage.Cache(most=1 << 18), 0
    create(cluster, "chat", "mine")
    original = storage._parse

    def count(model: Any, *rest: Any) -> storage.Stored:
        nonlocal parsed
        parsed += model["metadata"]["name"] == "mine"
        return original(model, *rest)

    monkeypatch.setattr(storage, "_parse", count)
    for number in range(1000):
        create(cluster, "crowd", f"m{number}")
        for name in (f"m{number}", "mine"):
            cache.get(cluster.models[name], cluster.settings, ())
    assert parsed == 1
