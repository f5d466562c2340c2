"""Resolve: a single pass that parses and checks a model and its records on the nodes. Pure except for the clock that
decides which namespaces are next."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from functools import cached_property

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.models import folders, storage, turns
from slipway.apis.ome.models.storage import KINDS, Stored
from slipway.apis.ome.models.volumes import ModelClaim, by_model, find_claims, names_in
from slipway.apis.ome.settings import ome
from slipway.kube.caches.store import Change, IndexFunction
from slipway.kube.objects import (
    JOB,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Key,
    Kind,
    Object,
    annotations_of,
    as_object,
    deleting,
    key,
    uid,
)
from slipway.kube.values.times import unix_time
from slipway.serving.containers.diagnosis import LONGEST_GRACE_SECONDS, LOST_AFTER_SECONDS, may_use_volumes
from slipway.serving.contract.api import USES, Enqueue, InvalidSpecError, Listers, Watch, World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import owned_by, stops
from slipway.weights import nodes
from slipway.weights.jobs.loads import is_late
from slipway.weights.nodes import Node, Record

MARK, CLAIM, USE, REPOSITORY = "mark", "claim", "use", "repository"
"""Indexes of models. MARK: the name of the model's node label without its prefix. CLAIM: the claim with the model's
files. USE: the hashed directory, as in the annotation of pods that read it. REPOSITORY: the model's namespace and
source, without the revision."""
OF_MODEL = "of-model"
"""Index of claims by the mark of the model that owns the claim's directory."""
MOUNTED = "mounted"
"""Index of pods by the node directories that they read, hashed as in their annotation."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A model, which may be invalid, with its nodes and claims."""

    world: World
    resource: Object
    stored: Stored | InvalidSpecError
    label: str
    """The model's node label."""
    nodes: tuple[Node, ...]
    """Nodes that should have the model, have a label or a record of it, or run one of its Jobs, sorted by name."""
    claims: tuple[ModelClaim, ...] = ()
    """Claims with the model's mark. A claim has an empty path if it is not for a directory that the model has, had or
    could have."""

    @property
    def is_deleted(self) -> bool:
        return deleting(self.resource)

    @property
    def job_namespace(self) -> str:
        """Namespace of the model's Jobs on nodes."""
        return ome(self.world.settings).namespace

    @property
    def jobs(self) -> list[Object]:
        """The model's Jobs in ``job_namespace``. Jobs in other namespaces are ignored, because authors may forge
        them."""
        children = self.world.children.items()
        return [job for (kind, name), job in children if kind == JOB and name.namespace == self.job_namespace]

    @property
    def writers(self) -> list[Object]:
        """The model's Jobs that may still write to a node directory. Versions before 0.5 created these Jobs in the
        model's own namespace."""
        places = (self.job_namespace, key(self.resource).namespace)
        jobs = (job for (kind, name), job in self.world.children.items() if kind == JOB and name.namespace in places)
        return [job for job in jobs if turns.still_writes(job, self.world.now)]

    @property
    def volumes(self) -> list[Object]:
        """The PersistentVolumes with which pods read the model's directories."""
        return [one for (kind, _name), one in self.world.children.items() if kind == PERSISTENT_VOLUME]

    @property
    def held_volumes(self) -> list[Object]:
        """The PersistentVolumes that pods may still use. A claim that a pod keeps for too long delays the model's
        deletion only for a limited time. The directory is still not available to other namespaces until its volume is
        deleted."""
        claims = {one.name: one.claim for one in self.claims}
        lost_before = self.world.now - LONGEST_GRACE_SECONDS - LOST_AFTER_SECONDS
        ends = {
            key(one).name: claims.get(key(one).name, one)["metadata"].get("deletionTimestamp") for one in self.volumes
        }
        return [one for one in self.volumes if (end := ends[key(one).name]) is None or unix_time(end) > lost_before]

    def is_read(self, path: str) -> bool:
        """Whether pods of services or benchmarks read a directory. The result is computed once for all claims and
        nodes, and only for directories that the model gives up, because any author can annotate pods as readers of a
        directory."""
        if path not in self._read_folders:
            self._read_folders[path] = self._has_readers(path, {one.name for one in self.claims if one.path == path})
        return self._read_folders[path]

    @cached_property
    def _read_folders(self) -> dict[str, bool]:
        return {}

    @cached_property
    def paths(self) -> frozenset[str]:
        """Directories that the model has, had or could have."""
        records = (self.record(node) for node in self.nodes)
        there = {path for record in records if record for path in record.readable_paths}
        return folders.possible_paths(self.resource, self.world.settings) | there

    def _has_readers(self, path: str, claims: Container[str]) -> bool:
        readers, use = (names.INFERENCE_SERVICE, names.BENCHMARK_JOB), storage.use_of(path)
        pods = (pod for kind in readers for pod in self.world.listers.pods_of(kind, MOUNTED, use))
        namespace, now = key(self.resource).namespace, self.world.now
        mine = (pod for pod in pods if namespace in ("", key(pod).namespace))
        return any(_mounts_folder(pod, path, claims) and may_use_volumes(pod, now) for pod in mine)

    @property
    def is_overdue(self) -> bool:
        """Whether the model's deletion has reached its time limit, so that it no longer waits for nodes."""
        return is_late(self.resource["metadata"].get("deletionTimestamp"), self.world.now)

    def valid(self) -> Stored:
        """Return the model's storage. Raise InvalidSpecError with the reason if the storage cannot be served."""
        if isinstance(self.stored, InvalidSpecError):
            raise self.stored
        return self.stored

    def is_for(self, node: Node) -> bool:
        usable = isinstance(self.stored, Stored) and self.stored.claim is None
        return usable and not self.is_deleted and self.valid().placement.admits(node)

    def record(self, node: Node) -> Record | None:
        return nodes.find_record(node, nodes.mark(self.label), uid(self.resource))


def resolve(world: World) -> ModelView:
    resource = world.resource
    stored, label = _resolve_storage(world), storage.node_label(resource)
    view = ModelView(world=world, resource=resource, stored=stored, label=label, nodes=())
    busy = set(map(nodes.node_of, view.jobs))
    all_nodes = (nodes.parse_node(node) for node in world.list(NODE))
    mine = [one for one in all_nodes if one.name in busy or _has_state(one, label) or view.is_for(one)]
    view = msgspec.structs.replace(view, nodes=tuple(sorted(mine, key=lambda one: one.name)))
    return msgspec.structs.replace(view, claims=_find_claims(view))


def _find_claims(view: ModelView) -> tuple[ModelClaim, ...]:
    claims = view.world.list(PERSISTENT_VOLUME_CLAIM, OF_MODEL, nodes.mark(view.label))
    return find_claims(claims, view.resource, sorted(view.paths)) if claims else ()


def _mounts_folder(pod: Object, path: str, claims: Container[str]) -> bool:
    """Whether a pod mounts a node directory, either through one of ``claims``, or directly as before version 0.5."""
    spec = pod.get("spec") or {}
    mounted = {str(as_object(one.get("hostPath")).get("path", "")).rstrip("/") for one in spec.get("volumes") or ()}
    return path in mounted or any(name in claims for name in names_in([spec]))


def _resolve_storage(world: World) -> Stored | InvalidSpecError:
    try:
        return folders.resolve_storage(world, world.resource)
    except InvalidSpecError as error:
        return error


def _has_state(node: Node, label: str) -> bool:
    return label in node.labels or f"{nodes.RECORDS}{nodes.mark(label)}" in node.records


# Watches and indexes


def watches(kind: Kind, settings: Settings) -> tuple[Watch, ...]:
    """Return the watches for a kind of model. They include the other kinds of models, which may request the same
    directory or a turn on the same node."""
    others = (one for one in KINDS.values() if one != kind)
    return (
        *(
            msgspec.structs.replace(watch, indexes=turns.job_indexes(settings))
            for watch in owned_by(kind, JOB, elsewhere=ome(settings).namespace)
        ),
        *(
            msgspec.structs.replace(watch, indexes={folders.FOLDER: folders.by_folder})
            for watch in owned_by(kind, PERSISTENT_VOLUME, elsewhere="")
        ),
        *(
            Watch(kind=one, enqueue=_enqueue_folder_rivals(kind, settings), indexes=_indexes(settings))
            for one in (kind, *others)
        ),
        Watch(kind=NODE, enqueue=_enqueue_models_of_node(kind, settings), trim=nodes.trim_node),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=_enqueue_models_of_claim(kind), indexes={OF_MODEL: by_model}),
        Watch(kind=POD, enqueue=_enqueue_models_of_reader(kind), indexes={MOUNTED: by_mounted}),
    )


class _ByStorage(msgspec.Struct, frozen=True):
    """Index function for CLAIM, USE or REPOSITORY, which parses a model's storage. Two instances with equal settings
    are equal."""

    index: str
    settings: Settings

    def __call__(self, model: Object) -> Iterable[str]:
        if self.index == USE:
            return [storage.use_of(path) for path in folders.possible_paths(model, self.settings)]
        try:
            stored = storage.parse_storage(model, self.settings, folders.ANY_PATH)
        except InvalidSpecError:
            return ()
        if self.index == REPOSITORY:
            return (repository_of(key(model).namespace, stored.url),) if stored.url else ()
        return (_place(stored.claim.namespace, stored.claim.name),) if stored.claim else ()


def _indexes(settings: Settings) -> dict[str, IndexFunction]:
    own = {index: _ByStorage(index, settings) for index in (CLAIM, USE, REPOSITORY)}
    return {MARK: by_mark, turns.QUEUE: turns.ByQueue(settings), **own, **folders.indexes(settings)}


def by_mark(model: Object) -> Iterable[str]:
    """Return the values of a model in the index :data:`MARK`."""
    return (nodes.mark(storage.node_label(model)),)


def by_mounted(pod: Object) -> Iterable[str]:
    """Return the values of a pod in the index :data:`MOUNTED`."""
    return [part for part in annotations_of(pod).get(USES, "").split() if part.startswith(storage.USED)]


def repository_of(namespace: str, url: str) -> str:
    """Return the value of the index :data:`REPOSITORY` for a namespace and a source URL. The URL's revision does not
    matter."""
    scheme, _separator, rest = url.partition("://")
    return f"{namespace} {scheme}://{rest.partition('@')[0]}"


def _place(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _enqueue_folder_rivals(kind: Kind, settings: Settings) -> Enqueue:
    """Return a function that enqueues the models of a kind when a model with an overlapping directory is created,
    deleted or moved to another directory.

    A model that may not use its directory blocks no other model, so its changes enqueue none. Its deletion still
    enqueues the models whose directories only a node record allows, because a record may have allowed its own directory
    until then.
    """

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        old, new = change.old, change.new
        if old and new and deleting(old) == deleting(new) and old["spec"].get("storage") == new["spec"].get("storage"):
            return ()
        woken: set[Key] = set()
        for model in filter(None, (old, new)):
            for path in folders.possible_paths(model, settings):
                may_use = folders.may_use_folder(listers, settings, model, path)
                among = (folders.PATH, folders.FORMER) if may_use else (folders.FORMER,) if new is None else ()
                woken |= {key(one.model) for one in folders.find_overlapping(listers, settings, path, (kind,), among)}
        return woken - {change.key}

    return enqueue


def _enqueue_models_of_claim(kind: Kind) -> Enqueue:
    """Return a function that enqueues the models of a kind that have files on a changed claim, or own the directory of
    a changed claim."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        marks = {mark for claim in (change.old, change.new) if claim for mark in by_model(claim)}
        models = (one for mark in marks for one in listers.list(kind, MARK, mark))
        return {key(one) for one in (*models, *listers.list(kind, CLAIM, _place(*change.key)))}

    return enqueue


def _enqueue_models_of_reader(kind: Kind) -> Enqueue:
    """Return a function that enqueues the models of a kind that may be waiting for a pod to stop reading their
    directory."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        used = by_mounted(change.old) if change.old and stops(change) else ()
        return {key(one) for use in used for one in listers.list(kind, USE, use)}

    return enqueue


def _enqueue_models_of_node(kind: Kind, settings: Settings) -> Enqueue:
    """Return a function that enqueues the models of a kind that a change of a node affects. A new, deleted or rebooted
    node, and a change of its readiness or of labels that do not describe models, affect the models that the node should
    have or has. A change of the labels or records of models affects these models, and the models that may load next on
    the node."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        changed = nodes.difference(change.old, change.new, names.NODE_LABEL)
        if not changed.concerns_all and not changed.marks:
            return ()
        states = [nodes.parse_node(one) for one in (change.old, change.new) if one is not None]
        if changed.concerns_all:
            return [key(one) for one in listers.list(kind) if _is_affected(one, states, settings)]
        marked = [key(one) for mark in changed.marks for one in listers.list(kind, MARK, mark)]
        return [*marked, *turns.next_on(listers, settings, kind, states[-1], time.time())]

    return enqueue


def _is_affected(model: Object, states: Iterable[Node], settings: Settings) -> bool:
    label = storage.node_label(model)
    return any(_has_state(node, label) or turns.desired_of(model, node, settings) for node in states)
