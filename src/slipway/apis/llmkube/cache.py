"""Cache: the weights of a namespace's Models on a claim that they share, one folder for each source. Pure.

The claim's annotations are the inventory: one for each folder, made before the first byte comes and gone after the last
has left. It has the loader's report once the weights are complete, what their source was when it was asked last, or who
is about to remove them. So it does not matter what happens to Jobs, or to the Model that brought the weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from slipway.apis.llmkube import names, sources, uses
from slipway.apis.llmkube.weights import Model, read
from slipway.artifacts.report import Report
from slipway.decoding import decode_json
from slipway.kube.conditions import timestamp
from slipway.kube.objects import PERSISTENT_VOLUME_CLAIM, Object, created_unix, deleting, uid
from slipway.serving.plan import Invalid, Reference, World
from slipway.serving.settings import ModelCache
from slipway.serving.times import unix_time

LABELS = {"app.kubernetes.io/name": "llmkube", "app.kubernetes.io/component": "model-cache"}
KEY = re.compile(r"[0-9a-f]{16}")
RECORD_BYTES = 16384
"""Of what the inventory says of one folder; a loader's report, the largest part of it, has 3.5 KB at most."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a source was when it was asked last; without etag and size it did not answer."""

    at: str
    etag: str = ""
    size: int = 0


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the inventory says of one folder."""

    loaded: str = ""
    """When it was complete; empty: it is not."""
    by: str = ""
    """The Model whose loader brought it."""
    report: Report = Report()
    seen: Seen | None = None
    evicted_by: str = ""
    """uid of the Model whose Job removes it."""
    evicted_at: str = ""
    """When it began to do that."""

    @property
    def complete(self) -> bool:
        return bool(self.loaded) and not self.evicted_by

    @property
    def asked(self) -> float:
        """When its source was asked last, in Unix seconds."""
        return unix_time(self.seen.at if self.seen else self.loaded)

    @property
    def drifted(self) -> bool:
        """Whether its source has other bytes by now."""
        seen = self.seen
        if seen is None or not (seen.etag or seen.size):
            return False
        if seen.etag and self.report.etag:
            return seen.etag != self.report.etag
        return bool(seen.size and self.report.size and seen.size != self.report.size)


def claim_reference(namespace: str) -> Reference:
    return Reference(PERSISTENT_VOLUME_CLAIM, namespace, names.CLAIM)


def claim(namespace: str, cache: ModelCache) -> Object:
    """The cache of a namespace, as it is made where there is none."""
    spec: Object = {"accessModes": [cache.access_mode], "resources": {"requests": {"storage": cache.size}}}
    if cache.storage_class:
        spec["storageClassName"] = cache.storage_class
    kind = PERSISTENT_VOLUME_CLAIM
    metadata = {"name": names.CLAIM, "namespace": namespace, "labels": LABELS}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def inventory(found: Object | None) -> dict[str, Record]:
    """Key -> what a claim says of it; nothing where there is none, or it goes."""
    if found is None or deleting(found):
        return {}
    written = found["metadata"].get("annotations") or {}
    keys = {name.removeprefix(names.LOADED): text for name, text in written.items() if name.startswith(names.LOADED)}
    return {key: _record(text) for key, text in keys.items() if KEY.fullmatch(key)}


@lru_cache(maxsize=4096)
def _record(text: str) -> Record:
    """What cannot be read says that something is there, and no more."""
    try:
        record = decode_json(text, Record, most=RECORD_BYTES)
        for stamp in (record.loaded, record.seen.at if record.seen else "", record.evicted_at):
            unix_time(stamp or timestamp(0))
    except ValueError:
        return Record()
    return record


def noted(key: str, record: Record | None) -> dict[str, str | None]:
    """What a claim is to say of a folder; None: nothing."""
    return {f"{names.LOADED}{key}": msgspec.json.encode(record).decode() if record else None}


def loaded(model: Model, report: Report, at: float) -> Record:
    return Record(loaded=timestamp(at), by=model.name, report=report)


def asked(record: Record, report: Report | None, at: float) -> Record:
    """The record after its source was asked; without a report it did not answer."""
    told = report or Report()
    return msgspec.structs.replace(record, seen=Seen(at=timestamp(at), etag=told.etag, size=told.size))


def users(world: World, namespace: str) -> dict[str, list[Object]]:
    """Key -> the Models of the namespace that have it and stay, and are wanted in the cache."""
    found: dict[str, list[Object]] = {}
    asked = uses.demand(world)
    for model in world.kin:
        mine = model["metadata"]["namespace"] == namespace and not deleting(model)
        if mine and uses.wants_cache(model, asked):
            found.setdefault(sources.key_of(model), []).append(model)
    return found


def holders(world: World, found: Object | None) -> list[str]:
    """Names of the services because of which a Model that goes, and nobody else, keeps its weights in the cache."""
    metadata, own = world.resource["metadata"], sources.key_of(world.resource)
    record = inventory(found).get(own)
    if record is None or not record.complete or own in users(world, metadata["namespace"]):
        return []
    return uses.readers(world, metadata["name"], own)


def is_first(world: World, among: Iterable[Object], *, cached: bool = False) -> bool:
    """Whether the world's resource is the oldest of several, the one that does what is to be done once.

    A Model that is not valid does nothing, so it is passed over; with ``cached`` also one that has no weights in the
    cache.
    """
    for model in sorted(among, key=_age):
        if uid(model) == uid(world.resource):
            return True
        if _acts(model, world, cached=cached):
            return False
    return False


def _acts(model: Object, world: World, *, cached: bool) -> bool:
    try:
        return read(model, world.settings).cached or not cached
    except Invalid:
        return False


def to_evict(world: World, found: Object | None) -> str:
    """Key of the folder that this Model is to remove next; empty: none.

    Those that it began with come first; then those that nobody uses, if it is the oldest one of the namespace, or goes
    itself and no other one is left to do it, or had it itself.
    """
    me, namespace = uid(world.resource), world.resource["metadata"]["namespace"]
    records, used = inventory(found), users(world, namespace)
    mine = [key for key, record in sorted(records.items()) if record.evicted_by == me]
    if mine:
        return mine[0]
    idle = [key for key in sorted(records) if key not in used]
    if not idle:
        return ""
    present, read_yet = {uid(model) for model in world.kin}, _read(world, namespace)
    unused = [key for key in idle if records[key].evicted_by not in present and key not in read_yet]
    own = sources.key_of(world.resource)
    if own in unused or not unused:
        return own if unused else ""
    if deleting(world.resource):
        return "" if used else unused[0]
    return unused[0] if is_first(world, (model for models in used.values() for model in models)) else ""


def idle_but_read(world: World, found: Object | None) -> bool:
    """Whether there are folders that go as soon as no pod reads them any more."""
    namespace = world.resource["metadata"]["namespace"]
    used = users(world, namespace)
    idle = [key for key in inventory(found) if key not in used]
    return bool(idle) and not _read(world, namespace).isdisjoint(idle)


def _read(world: World, namespace: str) -> set[str]:
    """Keys of what pods of the namespace read, or are about to though their Model goes."""
    asked = uses.wanted_names(world)
    leaving = (model for model in world.kin if model["metadata"]["namespace"] == namespace and deleting(model))
    return uses.read_keys(world) | {sources.key_of(model) for model in leaving if model["metadata"]["name"] in asked}


def being_evicted(world: World, record: Record | None) -> bool:
    """Whether another Model removes the folder now; one that is gone removes nothing any more."""
    by = record.evicted_by if record else ""
    return bool(by) and by in {uid(model) for model in world.kin}


def _age(model: Object) -> tuple[int, str]:
    return created_unix(model), model["metadata"]["name"]
