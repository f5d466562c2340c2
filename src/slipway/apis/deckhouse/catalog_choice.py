"""The entry of a catalog that a model asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.settings import deckhouse
from slipway.apis.deckhouse.types import CatalogEntry, CatalogProvenance
from slipway.kube.objects import Key, Kind, Object, deleting, key, uid
from slipway.kube.store import Change
from slipway.serving.api import Listers, Watch, World
from slipway.serving.catalogs import IMPORTS, choose_catalog, choose_entry
from slipway.serving.watches import nobody

CHOOSING = "choosing"
"""Index: models of catalogs that no entry was chosen for yet."""


def choice(world: World, wanted: CatalogEntry) -> CatalogProvenance:
    """What the status says was chosen stays so, whatever the catalog says now. Raises UndecidedError."""
    if frozen := _frozen(world.resource):
        return msgspec.convert(frozen, CatalogProvenance)
    there = [key(one).name for one in world.list(names.CATALOG_SOURCE) if not deleting(one)]
    source = choose_catalog({name: world.catalogs.get(name) for name in there}, wanted.source_name)
    catalog = world.catalogs[source]
    found = choose_entry(catalog, source, wanted.name, wanted.version)
    return CatalogProvenance(
        name=found.name,
        source_name=source,
        version=found.version or UNSET,
        catalog_revision=catalog.revision or UNSET,
        remote_digest=found.digest,
    )


def source_of(world: World, entry: CatalogProvenance) -> str:
    """As the loader takes it: it asks our depot for a grant. So it learns of a token of a few minutes for one
    repository, and never of the catalog's credential."""
    depot, place = urlsplit(deckhouse(world.settings).depot_url).netloc, key(world.resource)
    model = f"{place.namespace or '-'}/{place.name}/{uid(world.resource)}"
    return f"catalog://{depot}{IMPORTS}/{model}@{entry.remote_digest}"


def _frozen(model: Object) -> Object:
    source: Object = (model.get("status") or {}).get("source") or {}
    found: Object = source.get("catalog") or {}
    return found if found.get("remoteDigest") else {}


def watches(kind: Kind) -> tuple[Watch, ...]:
    """Of models of this kind: a catalog that was read anew concerns those that choose."""

    def enqueue(_change: Change, listers: Listers) -> Iterable[Key]:
        return [key(model) for model in listers.list(kind, CHOOSING, "yes")]

    return (
        Watch(kind=kind, enqueue=nobody, indexes={CHOOSING: by_choosing}),
        Watch(kind=names.CATALOG_SOURCE, enqueue=enqueue),
    )


def by_choosing(model: Object) -> Iterable[str]:
    """Index function for :data:`CHOOSING`."""
    source = (model.get("spec") or {}).get("source")
    return ("yes",) if isinstance(source, dict) and source.get("catalog") and not _frozen(model) else ()
