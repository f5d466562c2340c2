"""Cache: the weights of a namespace's Models on a shared claim, with one folder for each source. Pure.

Each folder has a record, which is created before the first byte is written and deleted after the last is removed. It
contains the loader's report once the weights are complete, the last check of their source, and the Model that is
removing them. So it does not depend on the Jobs.

A record is an annotation of one Model, its holder. Before the holder is deleted or changes its source, it hands the
record to another Model of the folder, or removes the folder if there is none. The claims of earlier versions have
records, too: they are read and moved to Models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.models.spec import Model, key_of, parse_model, place
from slipway.apis.llmkube.settings import ModelCache
from slipway.apis.llmkube.types.model import KIND
from slipway.artifacts.documents.report import Report
from slipway.decoding import decode_json
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Object, annotations_of, created_unix, deleting, key, uid
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.values.times import unix_time
from slipway.serving.contract.api import InvalidSpecError, Listers, MetadataPatch, Reference, World
from slipway.serving.contract.watches import NAMESPACE
from slipway.weights import place as places
from slipway.weights.place import Place

LABELS = {"app.kubernetes.io/name": "llmkube", "app.kubernetes.io/component": "model-cache"}
KEY = re.compile(r"[0-9a-f]{16}")
RECORD_BYTES = 16384
"""Maximum size of a folder's record; the loader's report, its largest part, has at most 3.5 KB."""
REMEMBERED_CHARACTERS = 4096
"""Maximum length of records whose decoded form is cached; nearly all are shorter. Longer texts are not kept in memory,
because authors control them."""
FOLDER, RECORDED, UID = "folder", "recorded", "uid"
"""Indexes of Models: the cache folder for their weights, the folders that they have records of, and their uid."""


class SourceCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The last check of a source. Without etag and size, the source did not answer."""

    at: str
    etag: str = ""
    size: int = 0


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The record of one folder."""

    loaded: str = ""
    """Time at which it was complete; empty: it is not."""
    by: str = ""
    """The Model whose loader downloaded it."""
    report: Report = Report()
    last_check: SourceCheck | None = msgspec.field(default=None, name="seen")
    evicted_by: str = ""
    """Uid of the Model whose Job removes it."""
    evicted_at: str = ""
    """Time at which the removal began."""
    claim: str = ""
    """Uid of the claim with the folder; empty in records on the claim itself."""

    @property
    def complete(self) -> bool:
        return bool(self.loaded) and not self.evicted_by

    @property
    def checked_at(self) -> float:
        """Unix time of the last check of the source."""
        return unix_time(self.last_check.at if self.last_check else self.loaded)

    @property
    def has_drifted(self) -> bool:
        """Whether the source's content has changed since the weights were loaded."""
        check = self.last_check
        if check is None or not (check.etag or check.size):
            return False
        if check.etag and self.report.etag:
            return check.etag != self.report.etag
        return bool(check.size and self.report.size and check.size != self.report.size)


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one folder of a namespace's cache."""

    place: Place
    record: Record | None
    """None: there are no known files."""
    holder: Object | None
    """The Model with the record; None: the claim has it, or there is none."""
    copies: Sequence[Object]
    """Other Models that also have a record, which does not count."""
    on_claim: bool
    """Whether the claim has a record."""
    users: Sequence[Object]
    """The Models that use the folder and are not being deleted, oldest first."""

    @property
    def key(self) -> str:
        return self.place.folder

    def used_by(self, model: Object) -> bool:
        return any(uid(user) == uid(model) for user in self.users)

    def held_by(self, model: Object) -> bool:
        return self.holder is not None and uid(self.holder) == uid(model)


def claim_reference(namespace: str) -> Reference:
    return places.claim_reference(namespace, names.CLAIM)


def claim(namespace: str, cache: ModelCache, name: str = names.CLAIM) -> Object:
    """Returns the claim to create for a namespace's cache, or for one service."""
    spec: Object = {"accessModes": [cache.access_mode], "resources": {"requests": {"storage": cache.size}}}
    if cache.storage_class:
        spec["storageClassName"] = cache.storage_class
    return places.claim(places.claim_reference(namespace, name), spec, LABELS)


def folder(world: World, namespace: str, cache_key: str, claim: Object | None) -> Folder:
    """Returns a folder of the cache with its users and its record. ``claim``: the claim as observed."""
    where, index = place(namespace, cache_key), usage.place(namespace, cache_key)
    having = [model for model in world.list(KIND, FOLDER, index) if not deleting(model)]
    users = sorted((model for model in having if _cacheable(model, world) and usage.wants_cache(world, model)), key=age)
    wanting = {uid(user) for user in users}
    holders = world.list(KIND, RECORDED, index)
    holder = min(holders, key=lambda model: (uid(model) not in wanting, age(model)), default=None)
    usable = claim if claim is not None and not deleting(claim) else None
    text = where.record(usable)
    return Folder(
        place=where,
        record=_recorded(holder, where, usable) if holder else _record(text) if text is not None else None,
        holder=holder,
        copies=[model for model in holders if model is not holder],
        on_claim=text is not None,
        users=users,
    )


def read_records(carrier: Object | None) -> dict[str, Record]:
    """Returns the records of a Model, or of the claim of an earlier version, by cache key."""
    return {name: _record(text) for name, text in places.records(carrier, names.LOADED).items() if KEY.fullmatch(name)}


def _recorded(holder: Object, where: Place, claim: Object | None) -> Record | None:
    """Returns the holder's record. A record for another claim only shows that something may be there. None if there is
    no claim."""
    if claim is None:
        return None
    record = _record(annotations_of(holder)[where.annotation])
    return record if record.claim == uid(claim) else Record(evicted_by=record.evicted_by, evicted_at=record.evicted_at)


def _record(text: str) -> Record:
    """Parses a record. An invalid one only shows that something is there."""
    return (_remembered if len(text) <= REMEMBERED_CHARACTERS else _decoded)(text)


def _decoded(text: str) -> Record:
    try:
        record = decode_json(text, Record, most=RECORD_BYTES)
        for stamp in (record.loaded, record.last_check.at if record.last_check else "", record.evicted_at):
            unix_time(stamp or timestamp(0))
    except ValueError:
        return Record()
    return record


_remembered = lru_cache(maxsize=8192)(_decoded)


def patch_record(model: Object, where: Place, record: Record | None, claim: Object | None) -> MetadataPatch:
    """Returns the patch that writes a record of a folder of ``claim`` to a Model; None removes it."""
    return where.recorded(Reference(KIND, *key(model)), encode_record(record, claim) if record else None)


def encode_record(record: Record, claim: Object | None) -> str:
    """Encodes a record for the annotation of a Model."""
    return msgspec.json.encode(msgspec.structs.replace(record, claim=uid(claim) if claim else "")).decode()


def record_source_check(record: Record, report: Report | None, at: float) -> Record:
    """Returns the record after a check of its source. Without a report, the source did not answer."""
    answer = report or Report()
    return msgspec.structs.replace(record, last_check=SourceCheck(at=timestamp(at), etag=answer.etag, size=answer.size))


def being_evicted(world: World, record: Record | None) -> bool:
    """Whether a Model is removing the folder now. A deleted Model no longer removes anything."""
    return record is not None and bool(record.evicted_by) and bool(world.list(KIND, UID, record.evicted_by))


def is_read(world: World, namespace: str, cache_key: str) -> bool:
    """Whether pods read a folder, or will do so although its Model is being deleted."""
    leaving = (model for model in world.list(KIND, FOLDER, usage.place(namespace, cache_key)) if deleting(model))
    pods = usage.pods_that_read(world, namespace, cache_key)
    return bool(pods) or any(usage.is_needed_by_pods(world, model) for model in leaving)


def find_heir(world: World, folder: Folder) -> Object | None:
    """Returns the Model that takes over a record that only the claim has: the one that began to remove the folder, or
    else one that uses or used it. Models that are being deleted come last. None: the oldest Model of the namespace
    takes it."""
    by, namespace = folder.record.evicted_by if folder.record else "", folder.place.claim.namespace
    removing = [model for model in world.list(KIND, UID, by) if key(model).namespace == namespace] if by else []
    having = world.list(KIND, FOLDER, usage.place(namespace, folder.key))
    for models in (removing, folder.users, having):
        for model in sorted(models, key=_rank):
            if _able(model, world):
                return model
    return None


def is_eldest(world: World, model: Object) -> bool:
    """Whether this is the oldest Model of its namespace that can take over a record."""
    namespace, own = key(model).namespace, _rank(model)
    others = world.list(KIND, NAMESPACE, namespace)
    return _able(model, world) and not any(_rank(other) < own and _able(other, world) for other in others)


def _rank(model: Object) -> tuple[bool, tuple[int, str]]:
    """Sort key: oldest first, and Models that are being deleted last."""
    return deleting(model), age(model)


def _able(model: Object, world: World) -> bool:
    """Whether a Model can take over a record."""
    return deleting(model) or _readable(model, world) is not None


def _cacheable(model: Object, world: World) -> bool:
    parsed = _readable(model, world)
    return parsed is not None and parsed.cacheable


def _readable(model: Object, world: World) -> Model | None:
    """Parses a Model. None: it is invalid, so its plan fails before it handles a cache."""
    try:
        return parse_model(model, world.settings)
    except InvalidSpecError:
        return None


def age(model: Object) -> tuple[int, str]:
    return created_unix(model), model["metadata"]["name"]


def by_folder(model: Object) -> Iterable[str]:
    """Index function for :data:`FOLDER`."""
    return (usage.place(key(model).namespace, key_of(model)),)


def by_record(model: Object) -> Iterable[str]:
    """Index function for :data:`RECORDED`."""
    keys = (name for name in places.records(model, names.LOADED) if KEY.fullmatch(name))
    return (usage.place(key(model).namespace, name) for name in keys)


def by_uid(model: Object) -> Iterable[str]:
    """Index function for :data:`UID`."""
    return (uid(model),)


def enqueue_folder_users(change: Change, listers: Listers) -> set[Key]:
    """Enqueues the Models that share folders with a changed Model: after a change of its spec, its records or its
    finalizers, or its creation or deletion, but not after a change of its status."""
    states = [state for state in (change.old, change.new) if state is not None]
    if len(states) == 2 and _shared_facts(states[0]) == _shared_facts(states[1]):
        return set()
    folders = {place for state in states for place in (*by_folder(state), *by_record(state))}
    return find_models_of(folders, listers)


def of_namespace(namespace: str, listers: Listers) -> list[Key]:
    """Returns all Models of a namespace."""
    return [key(model) for model in listers.list(KIND, NAMESPACE, namespace)]


def find_models_of(folders: Iterable[str], listers: Listers) -> set[Key]:
    """Returns the keys of the Models that use these folders or have records of them."""
    return {key(model) for one in folders for index in (FOLDER, RECORDED) for model in listers.list(KIND, index, one)}


def _shared_facts(model: Object) -> tuple[object, ...]:
    metadata = model["metadata"]
    records = places.records(model, names.LOADED)
    return metadata.get("generation"), deleting(model), records, metadata.get("finalizers")
