"""A model of another cluster's catalog, from the choice of an entry to the Job that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from slipway.apis.deckhouse import names
from slipway.kube.objects import Kind, Object
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Sources
from slipway.serving.wire import catalogs
from slipway.serving.wire.catalogs import Catalog, CatalogAddress
from slipway.weights.jobs.loads import arguments_of

from .cluster import Cluster

ADDRESS = CatalogAddress(url="https://catalog.example", credentials="catalog", refresh_seconds=600)
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
TINY = catalogs.Entry(name="tiny", version="1", digest=DIGEST, size=7)
READY = Catalog(address=ADDRESS, revision="one", entries=(TINY,), refreshed=1.0)


class Listers:
    """Those of a cluster, and ModelCatalogSources."""

    def __init__(self, listers: Any, sources: Sequence[str]) -> None:
        self._listers, self._sources = listers, [{"metadata": {"name": name}} for name in sources]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listers, name)

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        if kind == names.CATALOG_SOURCE:
            return self._sources
        objects: Sequence[Object] = self._listers.list(kind, index, value)
        return objects


class Importing(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.catalogs = {"east": READY}

    def world(self, name: str) -> World:
        world, catalogs = super().world(name), self.catalogs
        listers: Any = Listers(world.listers, list(catalogs))
        return msgspec.structs.replace(world, catalogs=catalogs, listers=listers)


def source(cluster: Cluster) -> str:
    return arguments_of(cluster.job("mine"))[2]


def test_an_import_asks_the_depot_and_its_provenance_stays() -> None:
    cluster = Importing()
    cluster.create("mine", catalog={"name": "tiny"})
    cluster.reconcile("mine")
    depot = "slipway-depot.slipway-system.svc:8443"
    assert source(cluster) == f"catalog://{depot}/v1/imports/chat/mine/uid-mine@{DIGEST}"
    provenance = cluster.models["mine"]["status"]["source"]["catalog"]
    assert provenance == {
        "name": "tiny",
        "sourceName": "east",
        "version": "1",
        "catalogRevision": "one",
        "remoteDigest": DIGEST,
    }
    moved = msgspec.structs.replace(TINY, digest=OTHER)
    cluster.catalogs = {"east": msgspec.structs.replace(READY, revision="two", entries=(moved,)), "west": READY}
    cluster.reconcile("mine")
    assert source(cluster).endswith(DIGEST)
    assert cluster.models["mine"]["status"]["source"]["catalog"] == provenance


def test_no_secret_is_written_for_an_import() -> None:
    cluster = Importing()
    cluster.create("mine", catalog={"name": "tiny"})
    cluster.reconcile("mine")
    assert (cluster.secrets, cluster.write_only) == ({}, 0)


def test_without_a_catalog_that_is_ready_an_import_waits_and_says_for_what() -> None:
    cluster = Importing()
    cluster.catalogs = {"east": READY, "west": READY}
    cluster.create("mine", catalog={"name": "tiny"})
    cluster.reconcile("mine")
    assert (cluster.phase("mine"), cluster.condition("mine")) == ("Pending", ("False", "Pending"))
    assert "set sourceName to one of east, west" in cluster.message("mine")
    cluster.catalogs = {"east": READY}
    cluster.reconcile("mine")
    assert cluster.phase("mine") == "Publishing"


def test_ambiguous_specs_fail_with_the_valid_choices() -> None:
    cluster = Importing()
    several = (TINY, msgspec.structs.replace(TINY, version="2", digest=OTHER))
    cluster.catalogs = {"east": msgspec.structs.replace(READY, entries=several)}
    cluster.create("mine", catalog={"name": "tiny"})
    cluster.create("named", catalog={"name": "tiny", "version": "2"})
    cluster.reconcile_all()
    assert cluster.phase("named") == "Publishing"
    assert cluster.phase("mine") == "Failed"
    assert cluster.condition("mine", "ArtifactResolved") == ("False", "UnsupportedSource")
    assert "set version to one of 1, 2" in cluster.message("mine")


def test_an_import_gets_the_addresses_that_the_operator_blocks() -> None:
    cluster = Importing()
    cluster.settings = msgspec.structs.replace(cluster.settings, sources=Sources(blocked_networks=("10.9.0.0/16",)))
    cluster.create("mine", catalog={"name": "tiny"})
    cluster.reconcile("mine")
    words = arguments_of(cluster.job("mine"))
    assert "--guard" in words
    for network in ("127.0.0.0/8", "169.254.169.254", "10.9.0.0/16"):
        assert f"--block-network={network}" in words


def test_other_sources_get_no_address_rules() -> None:
    cluster = Cluster()
    cluster.create("mine")
    cluster.reconcile("mine")
    assert "--guard" not in arguments_of(cluster.job("mine"))
