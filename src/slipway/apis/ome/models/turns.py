"""Turns: the models that a node loads next. Pure except for a cache.

Each namespace has its own queue on each node, oldest model first. The namespace with the fewest loads on the node is
next, and namespaces with the same number of loads take turns. The cost of examining a model therefore does not depend
on the number of other authors' models. Cluster-scoped models, which belong to the operator, form one queue, and one of
them can load even if the loads of namespaces use all turns.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.models import folders, storage
from slipway.apis.ome.models.line import NodeLoads, OpenFolder, QueueHeads
from slipway.apis.ome.models.room import ROOM
from slipway.apis.ome.models.storage import KINDS, Stored
from slipway.apis.ome.settings import ome
from slipway.kube.caches.store import IndexFunction
from slipway.kube.objects import JOB, Key, Kind, Object, OwnerReference, controller_owner, deleting, key, uid
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import InvalidSpecError, Listers, World
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.job import PODLESS_SECONDS, ended
from slipway.weights import nodes
from slipway.weights.jobs.loads import arguments_of, in_place, is_late
from slipway.weights.jobs.turns import age
from slipway.weights.nodes import Node, Record

QUEUE = "queue"
"""Index of models that may be waiting, by namespace. The models of a namespace form a queue."""
PINNED, LOADERS = "pinned", "loaders"
"""Indexes of Jobs that load a model onto a node. PINNED: the node if the Job may still write, and the node with the
model's uid. LOADERS: the namespace of the model's authors if the Job has not ended."""
WORKING, NEW = "working", "new"
"""Indexes of Jobs that use a turn, by ``<node>/<namespace of the model's authors>``. NEW contains the Jobs that have
not had a pod yet, and WORKING contains all others."""
MOST_EXAMINED = 16
"""Number of models of one kind that are examined in a queue, oldest first, to find those that wait for a node. The
other models are examined one group of this size at a time, because the first models may not be for this node."""
WOKEN, MOST_WOKEN = 2, 16
"""Maximum number of models per queue, and of queues, that are examined again when the records of a node change."""
OF_NAMESPACES = tuple(kind for kind in KINDS.values() if kind.namespaced)
RECHECK_SECONDS = 30.0
FULL = "NodeFull"
"""Condition reason of models whose nodes have no space for another record."""
SLOT_SECONDS = 600
"""Seconds after which the order of namespaces with equal numbers of loads changes."""
HEADS = QueueHeads()


class Desired(NamedTuple):
    """The storage that a model should have on a node, and the node's record of the model."""

    stored: Stored
    record: Record | None

    def lacks_room(self, model: Object, node: Node) -> bool:
        """Whether the node has no space for the record, or for another directory in the existing record. Always False
        for a cluster-scoped model."""
        path = self.stored.path if self.stored.url else ""
        grows = self.record is None or (bool(path) and self.record.path != path)
        return grows and bool(key(model).namespace) and ROOM.is_full(node, nodes.mark(storage.node_label(model)))

    @property
    def failed(self) -> bool:
        """Whether an earlier load of the files in ``stored`` onto the node failed."""
        return self.record is not None and (self.record.state, self.record.digest) == ("Failed", self.stored.identity)


def desired_of(model: Object, node: Node, settings: Settings) -> Desired | None:
    """Return the storage that a model should have on a node and does not have yet. Return None if the model is
    complete, not for the node, rejected or being deleted."""
    if deleting(model) or _verdict(model, "Accepted") == "False":
        return None
    record = nodes.find_record(node, nodes.mark(storage.node_label(model)), uid(model))
    try:
        stored = storage.parse_storage(model, settings, record.paths if record else ())
    except InvalidSpecError:
        return None
    there = record is not None and record.has(stored.identity, node)
    return Desired(stored, record) if stored.root and not there and stored.placement.admits(node) else None


# Indexes


class ByQueue(msgspec.Struct, frozen=True):
    """Index function for :data:`QUEUE`: models that are loaded onto nodes and may be incomplete. A model without
    conditions is new, and therefore included."""

    settings: Settings

    def __call__(self, model: Object) -> Iterable[str]:
        moves = _verdict(model, "Progressing") in ("", "True") or _condition(model, "Available").get("reason") == FULL
        # A model whose Jobs are rejected by a quota does not block others.
        accepted = _verdict(model, "Accepted") in ("", "True")
        if deleting(model) or not moves or not accepted:
            return ()
        try:
            stored = storage.parse_storage(model, self.settings, folders.ANY_PATH)
        except InvalidSpecError:
            return ()
        return (key(model).namespace,) if stored.root and stored.scheme != "vendor" else ()


def _verdict(model: Object, condition: str) -> str:
    """Return the status of a model's condition, such as ``True``, or an empty string if the model does not have the
    condition."""
    return str(_condition(model, condition).get("status", ""))


def _condition(model: Object, condition: str) -> Object:
    conditions = (model.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == condition), {})


class ByNode(msgspec.Struct, frozen=True):
    """Index function for :data:`PINNED`. ``system`` is the namespace with the Jobs of all models."""

    system: str

    def __call__(self, job: Object) -> Iterable[str]:
        node, owner = _node_of(job), controller_owner(job)
        if not node or not owner or not in_place(job, KINDS.values(), self.system):
            return ()
        return (*((node,) if may_write(job) else ()), _place(node, owner.uid))


class ByLoader(msgspec.Struct, frozen=True):
    """Index function for :data:`LOADERS`. ``system`` is the namespace with the Jobs of all models."""

    system: str

    def __call__(self, job: Object) -> Iterable[str]:
        placed = _node_of(job) and in_place(job, KINDS.values(), self.system)
        return (_author(job),) if placed and not _is_over(job) else ()


class ByLoad(msgspec.Struct, frozen=True):
    """Index function for :data:`NEW` if ``new`` is set, otherwise for :data:`WORKING`. ``system`` is the namespace with
    the Jobs of all models."""

    system: str
    new: bool

    def __call__(self, job: Object) -> Iterable[str]:
        node, status = _node_of(job), job.get("status") or {}
        active, failed = status.get("active"), status.get("failed")
        idle = job["spec"].get("suspend") and not active
        if not node or _is_over(job) or idle or not in_place(job, KINDS.values(), self.system):
            return ()
        return (_place(node, _author(job)),) if self.new != bool(active or failed) else ()


def job_indexes(settings: Settings) -> dict[str, IndexFunction]:
    """Return the index functions for the Jobs of models, by index name."""
    system = ome(settings).namespace
    loads = {WORKING: ByLoad(system, new=False), NEW: ByLoad(system, new=True)}
    return {PINNED: ByNode(system), LOADERS: ByLoader(system), **loads}


def _node_of(job: Object) -> str:
    """Return the node on which a Job loads or inspects a model's files, or an empty string for other Jobs."""
    node, brings = nodes.node_of(job), arguments_of(job)[1:2] in (["stage"], ["inspect"])
    return node if brings and "/" not in node else ""


def _is_over(job: Object) -> bool:
    return ended(job, "Complete") is not None or ended(job, "Failed") is not None


def _place(*parts: str) -> str:
    return "/".join(parts)


# Turns


def has_turn(world: World, node: Node, desired: Desired) -> bool:
    """Whether the load of the world's model may start on a node now."""
    model, listers, slot = world.resource, world.listers, _slot(node, world.now)
    namespace, held = key(model).namespace, _count_node_loads(world, node)
    free = held.free_turns
    if (free <= 0 and namespace) or held.loads[namespace] >= held.max_turns(namespace):
        return False
    if not _position(world).is_examined or _is_folder_busy(world, held, model, desired.stored.path):
        return False
    mine = (desired.failed, age(model))
    position = sum((one.failed, age(other)) < mine for other, one in _find_ready(world, node, namespace, held))
    turn = held.loads[namespace] + position
    if not namespace and turn == 0:
        return True  # in addition to the turns of namespaces
    if turn >= held.max_turns(namespace):
        return False
    ahead, order, examined = position, _order(namespace, slot), dict[str, bool]()
    queues = HEADS.in_order(node.name, partial(_queues, listers))
    while ahead < free and (other := next(queues, None)) is not None:
        loads = held.loads.get(other, 0)
        if other == namespace or loads > turn:
            continue
        last = turn if _order(other, slot) < order else turn - 1
        if earlier := max(min(last + 1, held.max_turns(other)) - loads, 0):
            count = sum(1 for _one in islice(_find_ready(world, node, other, held), earlier))
            examined[other] = count > 0
            ahead += count
    HEADS.remember(node.name, examined, lambda one: (held.loads.get(one, 0), _order(one, slot)))
    return ahead < free


def recheck_seconds(world: World) -> float:
    """Return the seconds until a waiting model is examined again without a change. A model further back in its queue
    waits until its group is examined."""
    position = _position(world)
    rounds = (position.group - position.round) % position.groups or position.groups
    return RECHECK_SECONDS if position.is_first else rounds * RECHECK_SECONDS - world.now % RECHECK_SECONDS


def next_on(listers: Listers, settings: Settings, kind: Kind, node: Node, now: float) -> list[Key]:
    """Return the models of a kind that may load next on a node: the first models of the queues that are next."""
    woken: list[Object] = []
    loads, slot = _loads(listers, node, now), _slot(node, now)
    queues = sorted(_queues(listers), key=lambda one: (loads[one], _order(one, slot)))
    for namespace in queues[:MOST_WOKEN]:
        waiting = _find_waiting(listers, settings, node, namespace, now)
        woken += [model for model, _desired in islice(waiting, WOKEN)]
    return [key(one) for one in woken if one["kind"] == kind.kind]


def _count_node_loads(world: World, node: Node) -> NodeLoads:
    """Return the current loads onto a node. The node's records contain the directories to which the Jobs write."""
    listers, now, written = world.listers, world.now, list[OpenFolder]()
    for job in listers.list(JOB, PINNED, node.name):
        owner = controller_owner(job)
        if owner and still_writes(job, now) and (record := _record_of(node, owner)):
            written.append(OpenFolder(owner.uid, record.path))
    return NodeLoads(loads=_loads(listers, node, now), open_folders=written, at_once=ome(world.settings).loads_at_once)


def _loads(listers: Listers, node: Node, now: float) -> Counter[str]:
    """Return the number of Jobs that load onto a node, by the namespace of their authors. The empty namespace stands
    for the operator. The cost does not grow with the number of Jobs. A Job without pods only counts while it is new,
    because the cluster may reject its pods."""
    loads = Counter[str]()
    for namespace in {"", *_loaders(listers)}:
        place = _place(node.name, namespace)
        loads[namespace] = listers.count(JOB, WORKING, place)
        if new := listers.count(JOB, NEW, place):
            since = {"metadata": {"name": "", "creationTimestamp": timestamp(math.floor(now - PODLESS_SECONDS) + 1)}}
            loads[namespace] += new - listers.older(JOB, NEW, place, since)
    return loads


def _has_job(listers: Listers, node: Node, model: Object) -> bool:
    """Whether a Job, possibly an ended one, exists for loading or inspecting a model on a node."""
    return listers.count(JOB, PINNED, _place(node.name, uid(model))) > 0


def _find_ready(world: World, node: Node, namespace: str, node_loads: NodeLoads) -> Iterator[tuple[Object, Desired]]:
    """Yield the models of a queue that only wait for their turn on a node. The world's own model is left out."""
    for model, desired in _find_waiting(world.listers, world.settings, node, namespace, world.now):
        if uid(model) != uid(world.resource) and not _is_folder_busy(world, node_loads, model, desired.stored.path):
            yield model, desired


def _is_folder_busy(world: World, node_loads: NodeLoads, model: Object, path: str) -> bool:
    """Whether a directory cannot be written to now: the load of another model may still write to an overlapping
    directory, or pods of other authors may still read the existing files."""
    written = any(one.of != uid(model) and folders.overlap(one.path, path) for one in node_loads.open_folders)
    return written or folders.is_mounted_by_others(world.listers, model, path)


def _find_waiting(
    listers: Listers, settings: Settings, node: Node, namespace: str, now: float
) -> Iterator[tuple[Object, Desired]]:
    """Yield the models of a queue that a node should have but lacks, for whose record it has space, and that no Job
    loads. The order is that of :func:`_find_oldest`."""
    for model in _find_oldest(listers, namespace, now):
        desired = desired_of(model, node, settings)
        if desired and not desired.lacks_room(model, node) and not _has_job(listers, node, model):
            yield model, desired


def _find_oldest(listers: Listers, namespace: str, now: float) -> Iterator[Object]:
    """Yield the models of a queue that are examined now: the oldest ones, and then the current group of the others."""
    kinds = OF_NAMESPACES if namespace else folders.CLUSTER_KINDS
    yield from _merge([listers.oldest(kind, QUEUE, namespace, MOST_EXAMINED) for kind in kinds])
    later = []
    for kind in kinds:
        behind = listers.count(kind, QUEUE, namespace) - MOST_EXAMINED
        if behind > 0:
            skip = MOST_EXAMINED * (1 + _round(now) % math.ceil(behind / MOST_EXAMINED))
            later.append(listers.oldest(kind, QUEUE, namespace, MOST_EXAMINED, skip))
    yield from _merge(later)


def _merge(queues: Sequence[Sequence[Object]]) -> Iterable[Object]:
    return queues[0] if len(queues) == 1 else heapq.merge(*queues, key=age)


class Position(NamedTuple):
    """The position of a model in its queue, among the models of its kind."""

    group: int
    """Number of the model's group. -1 means that the model is one of the first models, which are always examined."""
    groups: int
    """Number of groups of the other models, which are examined one group at a time."""
    round: int

    @property
    def is_first(self) -> bool:
        return self.group < 0

    @property
    def is_examined(self) -> bool:
        return self.is_first or (self.group - self.round) % self.groups == 0


def _position(world: World) -> Position:
    kind, model = storage.kind_of(world.resource), world.resource
    older = world.listers.older(kind, QUEUE, key(model).namespace, model)
    behind = world.listers.count(kind, QUEUE, key(model).namespace) - MOST_EXAMINED
    groups = max(math.ceil(behind / MOST_EXAMINED), 1)
    return Position(older // MOST_EXAMINED - 1, groups, _round(world.now))


def _round(now: float) -> int:
    """Return the number of the current round of RECHECK_SECONDS. Each round examines the next group of each queue."""
    return int(now // RECHECK_SECONDS)


def _queues(listers: Listers) -> set[str]:
    """Return the namespaces with models that may be waiting. The empty string stands for cluster-scoped models."""
    return {one for kind in KINDS.values() for one in listers.values(kind, QUEUE)}


def _loaders(listers: Listers) -> Iterable[str]:
    """Return the namespaces whose models are being loaded onto any node."""
    return listers.values(JOB, LOADERS)


def _slot(node: Node, now: float) -> str:
    return f"{node.name}/{int(now // SLOT_SECONDS)}"


def _order(namespace: str, slot: str) -> int:
    """Return the sort key of a queue among queues with the same number of loads. The operator's queue comes first. The
    order of the others depends on ``slot``, which changes over time so that each namespace comes first at some
    point."""
    return 1 + zlib.crc32(f"{slot}/{namespace}".encode()) if namespace else 0


def _author(job: Object) -> str:
    """Return the namespace of a Job's model, or an empty string if the model is cluster-scoped."""
    owner = controller_owner(job)
    return owner.namespace if owner and KINDS[owner.kind].namespaced else ""


def still_writes(job: Object, now: float) -> bool:
    """Whether a Job may still write to a node directory. A deleted Job that remains, for example on a lost node, counts
    only for a limited time."""
    return may_write(job) and not is_late(job["metadata"].get("deletionTimestamp"), now)


def may_write(job: Object) -> bool:
    """Whether a Job may still write to a node directory: it loads files and has not ended."""
    return arguments_of(job)[1:2] == ["stage"] and not _is_over(job)


def _record_of(node: Node, owner: OwnerReference) -> Record | None:
    """Return a node's record of a Job's model, or None if there is no record with a directory."""
    kind = KINDS[owner.kind]
    label = names.node_label(kind, owner.namespace if kind.namespaced else "", owner.name)
    record = nodes.find_record(node, nodes.mark(label), owner.uid)
    return record if record and record.path else None
