"""Choice: the selection of the catalog entry that a model requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.settings import deckhouse
from slipway.apis.deckhouse.types import CatalogEntry
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, deleting, key, uid
from slipway.serving.contract.api import Listers, Watch, World
from slipway.serving.contract.watches import enqueue_nothing
from slipway.serving.wire.catalogs import IMPORTS, UndecidedError, choose_catalog, choose_entry

CHOOSING = "choosing"
"""Index of models from catalogs without a chosen entry. Its only value is ``yes``."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog entry to import."""

    source_name: str
    """Name of the ModelCatalogSource."""
    name: str
    version: str = ""
    revision: str = ""
    """Revision of the catalog."""
    digest: str
    """Digest of the artifact in the other cluster."""
    size: int = 0
    """Size in bytes. 0 if it is unknown, because the catalog has not been read or no longer contains a chosen entry."""
    address: str
    """``HOST:PORT/PATH`` of the depot from which the publisher requests a grant. The publisher thus gets a short-lived
    token for a single repository, and never the catalog's credentials."""


class Waiting(msgspec.Struct, frozen=True):
    """Result if no entry can be chosen yet. A later read of a catalog may allow a choice without a change of the
    model's spec."""

    message: str


class Refused(msgspec.Struct, frozen=True):
    """Result if no entry can be chosen until the model's spec or the catalog changes."""

    reason: str
    message: str


def choice(world: World, reference: CatalogEntry) -> Entry | Waiting | Refused:
    """Return the catalog entry for a reference, or the reason why none can be chosen. An entry in the model's status
    stays chosen, even if the catalog no longer contains it."""
    model, place = world.resource, key(world.resource)
    depot = urlsplit(deckhouse(world.settings).depot_url).netloc
    address = f"{depot}{IMPORTS}/{place.namespace or '-'}/{place.name}/{uid(model)}"
    frozen = _frozen(model)
    if frozen:
        source_catalog = world.catalogs.get(frozen["sourceName"])
        sizes = {one.digest: one.size for one in source_catalog.entries} if source_catalog else {}
        return Entry(
            source_name=frozen["sourceName"],
            name=frozen["name"],
            version=frozen.get("version", ""),
            revision=frozen.get("catalogRevision", ""),
            digest=frozen["remoteDigest"],
            size=sizes.get(frozen["remoteDigest"], 0),
            address=address,
        )
    there = [key(one).name for one in world.list(names.CATALOG_SOURCE) if not deleting(one)]
    try:
        source = choose_catalog({name: world.catalogs.get(name) for name in there}, reference.source_name)
        catalog = world.catalogs[source]
        entry = choose_entry(catalog, source, reference.name, reference.version)
    except UndecidedError as error:
        return Waiting(error.message) if error.passing else Refused("UnsupportedSource", error.message)
    return Entry(
        source_name=source,
        name=entry.name,
        version=entry.version,
        revision=catalog.revision,
        digest=entry.digest,
        size=entry.size,
        address=address,
    )


def _frozen(model: Object) -> Object:
    source: Object = (model.get("status") or {}).get("source") or {}
    catalog: Object = source.get("catalog") or {}
    return catalog if catalog.get("remoteDigest") else {}


def watches(kind: Kind) -> tuple[Watch, ...]:
    """Return the watches for models of a kind. They enqueue the models without a chosen entry whenever a
    ModelCatalogSource changes, including its status after each read."""

    def enqueue(_change: Change, listers: Listers) -> Iterable[Key]:
        return [key(model) for model in listers.list(kind, CHOOSING, "yes")]

    return (
        Watch(kind=kind, enqueue=enqueue_nothing, indexes={CHOOSING: by_choosing}),
        Watch(kind=names.CATALOG_SOURCE, enqueue=enqueue),
    )


def by_choosing(model: Object) -> Iterable[str]:
    """Return the values of a model in the index :data:`CHOOSING`."""
    source = (model.get("spec") or {}).get("source")
    return ("yes",) if isinstance(source, dict) and source.get("catalog") and not _frozen(model) else ()
