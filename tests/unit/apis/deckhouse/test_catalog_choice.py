"""A model of a catalog: which entry it is, and that it stays that one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.catalogs.choice import CHOOSING, Entry, Refused, Waiting, by_choosing, choice, watches
from slipway.apis.deckhouse.types import CatalogEntry
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings
from slipway.serving.wire import catalogs
from slipway.serving.wire.catalogs import Catalog, CatalogAddress

ADDRESS = CatalogAddress(url="https://catalog.example", credentials="catalog", refresh_seconds=600)
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
TINY = catalogs.Entry(name="tiny", version="1", digest=DIGEST, size=7)
READY = Catalog(address=ADDRESS, revision="one", entries=(TINY,), refreshed=1.0)
FROZEN = {"name": "tiny", "sourceName": "east", "version": "1", "catalogRevision": "one", "remoteDigest": DIGEST}


class Listing:
    """The existing ModelCatalogSources."""

    def __init__(self, *sources: str, leaving: str = "") -> None:
        self._sources = [{"metadata": {"name": name}} for name in sources]
        if leaving:
            self._sources.append({"metadata": {"name": leaving, "deletionTimestamp": "2026-01-01T00:00:00Z"}})

    def list(self, _kind: Kind, _index: str = "", _value: str = "") -> list[Object]:
        return self._sources


def model(catalog: Object | None = None, namespace: str = "team", **fields: Any) -> Object:
    status = {"status": {"source": {"catalog": catalog}}} if catalog else {}
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": "mine", "uid": "u1", **place}
    return {"metadata": metadata, "spec": {"source": {"catalog": {"name": "tiny"}}}, **status, **fields}


def world(resource: Object, is_known: dict[str, Catalog], listing: Listing | None = None) -> World:
    listers: Any = listing or Listing(*is_known)
    apis = {"deckhouse": {"depotUrl": "https://slipway-depot.system.svc:8443"}}
    settings = msgspec.convert({"apis": apis}, Settings)
    return World(
        resource=resource,
        children={},
        pods=(),
        routed=(),
        settings=settings,
        now=0.0,
        listers=listers,
        catalogs=is_known,
    )


def test_the_entry_of_the_only_source_is_chosen():
    entry = choice(world(model(), {"east": READY}), CatalogEntry(name="tiny"))
    assert entry == Entry(
        source_name="east",
        name="tiny",
        version="1",
        revision="one",
        digest=DIGEST,
        size=7,
        address="slipway-depot.system.svc:8443/v1/imports/team/mine/u1",
    )


def test_a_model_of_the_cluster_asks_the_depot_without_a_namespace():
    entry = choice(world(model(namespace=""), {"east": READY}), CatalogEntry(name="tiny"))
    assert isinstance(entry, Entry)
    assert entry.address == "slipway-depot.system.svc:8443/v1/imports/-/mine/u1"


def test_a_chosen_entry_stays_when_the_catalogs_change():
    moved = msgspec.structs.replace(READY, revision="two", entries=(msgspec.structs.replace(TINY, digest=OTHER),))
    for catalogs_by_name in ({"east": moved}, {"east": READY, "west": READY}, {}):
        entry = choice(world(model(FROZEN), catalogs_by_name, Listing()), CatalogEntry(name="tiny"))
        assert isinstance(entry, Entry)
        assert (entry.source_name, entry.digest, entry.revision, entry.version) == ("east", DIGEST, "one", "1")


def test_before_a_source_was_asked_nothing_is_chosen_of_the_others():
    listing = Listing("east", "west")
    outcome = choice(world(model(), {"east": READY}, listing), CatalogEntry(name="tiny"))
    assert outcome == Waiting("The catalog west has not been read yet.")


def test_a_source_that_is_being_deleted_is_not_chosen():
    catalogs_by_name = {"east": READY, "west": READY}
    entry = choice(world(model(), catalogs_by_name, Listing("east", leaving="west")), CatalogEntry(name="tiny"))
    assert isinstance(entry, Entry)
    assert entry.source_name == "east"


def test_ambiguous_input_is_rejected_with_the_valid_choices():
    two = msgspec.structs.replace(READY, entries=(TINY, msgspec.structs.replace(TINY, version="2")))
    refusal = choice(world(model(), {"east": two}), CatalogEntry(name="tiny"))
    text = "The catalog east has tiny in several versions: set version to one of 1, 2."
    assert refusal == Refused("UnsupportedSource", text)


@pytest.mark.parametrize(
    ("resource", "choosing"),
    [
        (model(), True),
        (model(FROZEN), False),
        (model({"name": "tiny", "sourceName": "east"}), True),
        ({"metadata": {"name": "x"}, "spec": {"source": {"url": "https://hf.co/a/b"}}}, False),
    ],
)
def test_models_choose_until_an_entry_is_frozen(resource, choosing):
    assert bool(by_choosing(resource)) is choosing


def test_a_catalog_that_was_read_concerns_the_models_that_choose():
    own, sources = watches(names.MODEL)
    assert (own.kind, sources.kind) == (names.MODEL, names.CATALOG_SOURCE)
    assert own.indexes == {CHOOSING: by_choosing}

    class Choosing:
        def list(self, kind: Kind, index: str, value: str) -> list[Object]:
            there = [model(), model(FROZEN, namespace="other")]
            return [one for one in there if kind == names.MODEL and value in own.indexes[index](one)]

    listers: Any = Choosing()
    change = Change(None, {"metadata": {"name": "east"}})
    assert list(sources.enqueue(change, listers)) == [Key("team", "mine")]
