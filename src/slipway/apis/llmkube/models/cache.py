"""The cache: a claim in each namespace that stores the weights of its Models, in one directory for each source. Pure.

Each directory has a record, which is created before the first byte is written and deleted after the last byte is
removed. The record contains the loader's report once the weights are complete, the last check of their source, and the
Model that is removing the directory. The state of the cache therefore does not depend on the Jobs.

A record is an annotation of one Model, its holder. Before the holder is deleted or changes its source, it hands the
record to another Model that uses the directory. If there is no such Model, the holder removes the directory. Claims of
earlier versions also have records, which are read and moved to Models.
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
"""Maximum size of a record in bytes. The loader's report, its largest part, has at most 3.5 KB."""
REMEMBERED_CHARACTERS = 4096
"""Maximum number of characters in a record that stays in memory after it has been decoded. Nearly all records are
shorter. Longer records are not kept, because authors control them."""
FOLDER, RECORDED, UID = "folder", "recorded", "uid"
"""Indexes of Models: by the cache directory for their source and files, whether or not they use it, by the directories
of their records, and by UID."""


class SourceCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The last check of a source. If ``etag`` and ``size`` are both missing, the source did not respond."""

    at: str
    etag: str = ""
    size: int = 0


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The record of one cache directory."""

    loaded: str = ""
    """Time at which the weights were complete; empty: they are not complete."""
    by: str = ""
    """Name of the Model whose loader downloaded the weights."""
    report: Report = Report()
    last_check: SourceCheck | None = msgspec.field(default=None, name="seen")
    evicted_by: str = ""
    """UID of the Model whose Job removes the directory; empty: no Job does."""
    evicted_at: str = ""
    """Time at which the removal of the directory began."""
    claim: str = ""
    """UID of the claim that contains the directory; empty in records that are stored on the claim, or were written
    before the claim existed."""

    @property
    def complete(self) -> bool:
        return bool(self.loaded) and not self.evicted_by

    @property
    def checked_at(self) -> float:
        """Unix time of the last check of the source, or else of the load. The record must have one of them."""
        return unix_time(self.last_check.at if self.last_check else self.loaded)

    @property
    def has_drifted(self) -> bool:
        """Whether the last check showed that the source's content has changed since the weights were loaded."""
        check = self.last_check
        if check is None or not (check.etag or check.size):
            return False
        if check.etag and self.report.etag:
            return check.etag != self.report.etag
        return bool(check.size and self.report.size and check.size != self.report.size)


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A directory in the cache of a namespace, with its records and users."""

    place: Place
    record: Record | None
    """The directory's record; None: the directory has no known files."""
    holder: Object | None
    """The Model that has the record; None: only the claim has a record, or there is none."""
    copies: Sequence[Object]
    """Other Models with a record of this directory. Their records are ignored."""
    on_claim: bool
    """Whether the claim has a record of this directory."""
    users: Sequence[Object]
    """The valid Models that need the directory in the cache and are not being deleted, oldest first."""

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
    """Return the PersistentVolumeClaim to create for the cache of a namespace, or for a dedicated claim ``name`` of a
    service."""
    spec: Object = {"accessModes": [cache.access_mode], "resources": {"requests": {"storage": cache.size}}}
    if cache.storage_class:
        spec["storageClassName"] = cache.storage_class
    return places.claim(places.claim_reference(namespace, name), spec, LABELS)


def folder(world: World, namespace: str, cache_key: str, claim: Object | None) -> Folder:
    """Return a directory of the cache with its users and its record. ``claim`` is the observed claim; None: there is
    none. A claim that is being deleted counts as missing."""
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
    """Return the records of a Model, or of the claim of an earlier version, by cache key. The result is empty if
    ``carrier`` is None."""
    return {name: _record(text) for name, text in places.records(carrier, names.LOADED).items() if KEY.fullmatch(name)}


def _recorded(holder: Object, where: Place, claim: Object | None) -> Record | None:
    """Return the holder's record, or None if there is no claim. A record for another claim only shows that the
    directory may contain files, and whether its removal has begun."""
    if claim is None:
        return None
    record = _record(annotations_of(holder)[where.annotation])
    return record if record.claim == uid(claim) else Record(evicted_by=record.evicted_by, evicted_at=record.evicted_at)


def _record(text: str) -> Record:
    """Parse a record. An invalid record is treated as an empty one, which only shows that the directory may contain
    files."""
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
    """Return the patch that writes a record to a Model, or deletes it if ``record`` is None. The record describes the
    directory ``where`` on ``claim``."""
    return where.recorded(Reference(KIND, *key(model)), encode_record(record, claim) if record else None)


def encode_record(record: Record, claim: Object | None) -> str:
    """Encode a record of a directory on ``claim`` for the annotation of a Model."""
    return msgspec.json.encode(msgspec.structs.replace(record, claim=uid(claim) if claim else "")).decode()


def record_source_check(record: Record, report: Report | None, at: float) -> Record:
    """Return a record with the result of a check of its source at the Unix time ``at``. ``report`` is None if the
    source did not respond."""
    answer = report or Report()
    return msgspec.structs.replace(record, last_check=SourceCheck(at=timestamp(at), etag=answer.etag, size=answer.size))


def being_evicted(world: World, record: Record | None) -> bool:
    """Whether an existing Model is removing the directory of a record. False if ``record`` is None."""
    return record is not None and bool(record.evicted_by) and bool(world.list(KIND, UID, record.evicted_by))


def is_read(world: World, namespace: str, cache_key: str) -> bool:
    """Whether pods read a cache directory, or will read it although its Model is being deleted."""
    leaving = (model for model in world.list(KIND, FOLDER, usage.place(namespace, cache_key)) if deleting(model))
    pods = usage.pods_that_read(world, namespace, cache_key)
    return bool(pods) or any(usage.is_needed_by_pods(world, model) for model in leaving)


def find_heir(world: World, folder: Folder) -> Object | None:
    """Return the Model that takes over a record that only the claim has: the Model that began to remove the directory,
    or else the oldest one that uses it, or else the oldest one with the source and files of the directory. Models that
    are being deleted come last. Return None if there is no such Model that is valid or being deleted; the oldest Model
    of the namespace then takes over the record."""
    by, namespace = folder.record.evicted_by if folder.record else "", folder.place.claim.namespace
    removing = [model for model in world.list(KIND, UID, by) if key(model).namespace == namespace] if by else []
    having = world.list(KIND, FOLDER, usage.place(namespace, folder.key))
    for models in (removing, folder.users, having):
        for model in sorted(models, key=_rank):
            if _able(model, world):
                return model
    return None


def is_eldest(world: World, model: Object) -> bool:
    """Whether ``model`` is the oldest Model in its namespace that can take over a record. Models that are being deleted
    come last."""
    namespace, own = key(model).namespace, _rank(model)
    others = world.list(KIND, NAMESPACE, namespace)
    return _able(model, world) and not any(_rank(other) < own and _able(other, world) for other in others)


def _rank(model: Object) -> tuple[bool, tuple[int, str]]:
    """Return a sort key by which the oldest Model comes first, and Models that are being deleted come last."""
    return deleting(model), age(model)


def _able(model: Object, world: World) -> bool:
    """Whether a Model can take over a record: it is valid or being deleted."""
    return deleting(model) or _readable(model, world) is not None


def _cacheable(model: Object, world: World) -> bool:
    parsed = _readable(model, world)
    return parsed is not None and parsed.cacheable


def _readable(model: Object, world: World) -> Model | None:
    """Return the parsed Model, or None if it is invalid. The plan of an invalid Model fails before it handles a
    cache."""
    try:
        return parse_model(model, world.settings)
    except InvalidSpecError:
        return None


def age(model: Object) -> tuple[int, str]:
    return created_unix(model), model["metadata"]["name"]


def by_folder(model: Object) -> Iterable[str]:
    """Return the value of a Model in the index :data:`FOLDER`, as ``namespace/directory``."""
    return (usage.place(key(model).namespace, key_of(model)),)


def by_record(model: Object) -> Iterable[str]:
    """Return the values of a Model in the index :data:`RECORDED`, each as ``namespace/directory``."""
    keys = (name for name in places.records(model, names.LOADED) if KEY.fullmatch(name))
    return (usage.place(key(model).namespace, name) for name in keys)


def by_uid(model: Object) -> Iterable[str]:
    """Return the value of a Model in the index :data:`UID`."""
    return (uid(model),)


def enqueue_folder_users(change: Change, listers: Listers) -> set[Key]:
    """Return the changed Model, if it exists, and the Models that share cache directories with it. Changes that affect
    neither its existence nor its spec, records or finalizers are ignored."""
    states = [state for state in (change.old, change.new) if state is not None]
    if len(states) == 2 and _shared_facts(states[0]) == _shared_facts(states[1]):
        return set()
    folders = {place for state in states for place in (*by_folder(state), *by_record(state))}
    return find_models_of(folders, listers)


def of_namespace(namespace: str, listers: Listers) -> list[Key]:
    """Return the keys of all Models in a namespace."""
    return [key(model) for model in listers.list(KIND, NAMESPACE, namespace)]


def find_models_of(folders: Iterable[str], listers: Listers) -> set[Key]:
    """Return the keys of the Models whose source and files belong in one of ``folders``, which are cache directories as
    ``namespace/directory``, or that have records of them."""
    return {key(model) for one in folders for index in (FOLDER, RECORDED) for model in listers.list(KIND, index, one)}


def _shared_facts(model: Object) -> tuple[object, ...]:
    metadata = model["metadata"]
    records = places.records(model, names.LOADED)
    return metadata.get("generation"), deleting(model), records, metadata.get("finalizers")
