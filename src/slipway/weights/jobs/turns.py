"""Turns: which models may be published now, and how much storage they may use. Pure.

Turns depend only on the status of models, which authors cannot write. Jobs do not count, because authors can forge
them. Each namespace has its own queue of models, oldest first. The first model of each queue waits for a turn together
with the first models of all other namespaces. Therefore the cost of checking one model does not depend on the number of
other authors' models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from slipway.kube.caches.store import Change, IndexFunction
from slipway.kube.objects import JOB, Key, Kind, Object, deleting, key, uid
from slipway.kube.schemas.conditions import find, timestamp
from slipway.kube.values.quantity import amount
from slipway.kube.values.times import unix_time
from slipway.serving.contract.api import Enqueue, Listers, Watch, World
from slipway.serving.contract.watches import owned_by

PENDING, PUBLISHING = "Pending", "Publishing"
"""Phases of models that wait for a turn, and of models that have a turn."""
TURN = "Turn"
"""Condition of a model: True if it has a turn, Unknown if it is the first of its namespace and next in line, and False
if it waits behind another model."""
HAS, NEXT, WAITS = "has", "next", "waits"
"""Values of the index ``TURN``: for models that have a turn; for the first model of each namespace, with and without
the namespace appended; and for all waiting models, with the namespace appended."""
SLICE_SECONDS = 3600.0
"""Seconds after which a model gives up its turn if a model of another namespace waits and no turn is free. The model
continues with its next turn."""
UNKNOWN_SECONDS = 60.0
"""Maximum seconds that a model waits for the size of models with a turn to become known, if storage is limited."""
_WOKEN = 4
"""Number of models to enqueue for each free turn, because some of them may not be able to start."""

Place = Literal["has", "next", "waits"]


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The models that share a number of turns, and their limits."""

    kinds: tuple[Kind, ...]
    at_once: int
    """Number of turns: the maximum number of models that are published at the same time."""
    capacity: str = ""
    """Maximum total size of all artifacts; empty: unlimited."""
    share: int = 100
    """Percentage of ``capacity`` that the models of one namespace may use."""
    copies: int = 1
    """Number of times that the registry stores the files of each artifact."""
    reserved: Callable[[Object], int] = lambda _model: 0
    """Function that returns the bytes of storage that the upload of a model uses or has reserved."""


def by_turn(model: Object) -> Iterable[str]:
    """Return the values of the index ``TURN`` for a model; none if the model neither waits nor has a turn. A model
    without conditions is new and counts as waiting."""
    status, namespace = model.get("status") or {}, key(model).namespace
    phase, turn = status.get("phase") or PENDING, find(model, TURN)
    if deleting(model) or phase not in (PENDING, PUBLISHING):
        return ()
    if phase == PUBLISHING:
        return (HAS,)
    if turn is None:
        return () if status.get("conditions") else (_of(WAITS, namespace),)
    first = turn.get("status") == "Unknown"
    return (NEXT, _of(NEXT, namespace), _of(WAITS, namespace)) if first else (_of(WAITS, namespace),)


def watches(kind: Kind, kinds: Sequence[Kind], at_once: int) -> tuple[Watch, ...]:
    """Return the watches with which a controller of ``kind`` notices that a model may get or lose a turn. The models of
    all ``kinds`` share the turns."""
    indexes: dict[str, IndexFunction] = {TURN: by_turn}
    enqueue = _enqueue_waiting(kind, kinds, at_once)
    return (*owned_by(kind, JOB), *(Watch(kind=one, enqueue=enqueue, indexes=indexes) for one in kinds))


def place(world: World, queue: Queue) -> Place:
    """Return the position of the resource: it has a turn according to its status (``has``), is the first of its
    namespace (``next``), or waits behind another model (``waits``)."""
    mine = world.resource
    namespace, now = key(mine).namespace, set(by_turn(mine))
    if HAS in now:
        return "has"
    if NEXT not in now and any(world.listers.count(kind, TURN, _of(NEXT, namespace)) for kind in queue.kinds):
        return "waits"
    rivals = _list_models(world.listers, queue.kinds, _of(NEXT if NEXT in now else WAITS, namespace))
    return "next" if all(age(mine) <= age(one) for one in rivals) else "waits"


def has_turn(world: World, queue: Queue) -> bool:
    """Whether the resource may be published now. If storage is limited, only one publication may start at a time: the
    size of a new publication is unknown at first, so a namespace that repeatedly starts publications would otherwise
    keep all others waiting."""
    at = place(world, queue)
    if at != "next":
        return at == "has"
    mine = world.resource
    held = _count_turns(_list_models(world.listers, queue.kinds, HAS))
    line = [one for one in _list_models(world.listers, queue.kinds, NEXT) if uid(one) != uid(mine)]
    most = min(_free(held, queue.at_once), 1 if queue.capacity else queue.at_once)
    first = _in_line([*line, mine], held, queue.at_once, timestamp(world.now))[: max(most, 0)]
    return any(one is mine for one in first)


def must_yield(world: World, queue: Queue) -> bool:
    """Whether the resource has had its turn for so long that it must give way to a waiting model of another namespace.
    False if it has no turn, or if a turn is free."""
    mine, running = world.resource, _list_models(world.listers, queue.kinds, HAS)
    held = _count_turns(running)
    if _since(mine) is None or _free(held, queue.at_once) > 0 or place(world, queue) != "has":
        return False
    own, most = key(mine).namespace, _most_of_one(queue.at_once)
    waiting = [key(one).namespace for one in _list_models(world.listers, queue.kinds, NEXT)]
    others = sum(one != own and held[one] < most for one in waiting)
    expired = [one for one in running if remaining_slice(one, world) <= 0]
    expired.sort(key=lambda one: (-held[key(one).namespace], _since(one) or 0.0, age(one)))
    return any(uid(one) == uid(mine) for one in expired[:others])


def remaining_slice(model: Object, world: World) -> float:
    """Return the seconds for which a model is certain to keep its turn; negative if that time is over. Return
    ``SLICE_SECONDS`` if the model has no turn."""
    since = _since(model)
    return SLICE_SECONDS - (world.now - since) if since is not None else SLICE_SECONDS


def room(world: World, queue: Queue) -> int | None:
    """Return the bytes of storage that the resource may use, given what all other models use and the share of its
    namespace, or None if storage is unlimited. Raise LookupError while the size of another model is unknown."""
    if not queue.capacity:
        return None
    limit, namespace = math.floor(amount(queue.capacity)), key(world.resource).namespace
    share = limit * queue.share // 100
    used, reported = Counter[str](), Counter[str]()
    for model in (one for kind in queue.kinds for one in world.list(kind) if uid(one) != uid(world.resource)):
        if is_published(model):
            used[key(model).namespace] += queue.copies * size_of(model)
            continue
        used[key(model).namespace] += queue.reserved(model)
        if HAS in by_turn(model):
            reported[key(model).namespace] += _size_in_turn(model, world, limit)
        else:  # an ended attempt: the data that it sent may still be stored
            reported[key(model).namespace] += min(size_of(model), limit)
    claims = {one: max(min(size, (share if one else limit) - used[one]), 0) for one, size in reported.items()}
    free = limit - used.total() - sum(claims.values())
    own = (share if namespace else limit) - used[namespace] - claims.get(namespace, 0)
    return max(min(free, own), 0)


def is_published(model: Object) -> bool:
    """Whether a model has an artifact. If not, the size in its status is only what its publisher reported."""
    return bool(((model.get("status") or {}).get("artifact") or {}).get("digest"))


def size_of(model: Object) -> int:
    """Return the size in bytes in a model's status, either of its artifact or as its publisher reported it, or 0 if it
    is unknown."""
    size = ((model.get("status") or {}).get("artifact") or {}).get("sizeBytes")
    return max(size, 0) if isinstance(size, int) else 0


def _size_in_turn(model: Object, world: World, limit: int) -> int:
    """Return the size in bytes that the publisher of a model with a turn reports, at most ``limit``. While the size is
    unknown, raise LookupError in the first ``UNKNOWN_SECONDS`` of the turn, and then return 0."""
    size, since = size_of(model), _since(model)
    if not size and (since is None or world.now - since < UNKNOWN_SECONDS):
        raise LookupError(f"{model['kind']} {key(model)}")
    return min(size, limit)


def may_begin(world: World, queue: Queue) -> bool:
    """Whether the resource may be published now and the storage that it may use is known."""
    if not has_turn(world, queue):
        return False
    try:
        room(world, queue)
    except LookupError:
        return False
    return True


def age(model: Object) -> tuple[str, ...]:
    """Return the sort key that puts older models first."""
    return (model["metadata"].get("creationTimestamp", ""), model["kind"], *key(model))


def _of(value: str, namespace: str) -> str:
    return f"{value}/{namespace}"


def _list_models(listers: Listers, kinds: Iterable[Kind], value: str) -> list[Object]:
    return [one for kind in kinds for one in listers.list(kind, TURN, value)]


def _count_turns(models: Iterable[Object]) -> Counter[str]:
    """Return the number of turns that each namespace has. Cluster-scoped models count as one namespace."""
    return Counter(key(one).namespace for one in models)


def _most_of_one(at_once: int) -> int:
    """Return the maximum number of turns of one namespace, which leaves at least one turn to others if there is more
    than one."""
    return max(at_once - 1, 1)


def _free(held: Mapping[str, int], at_once: int) -> int:
    return at_once - sum(min(count, _most_of_one(at_once)) for count in held.values())


def _since(model: Object) -> float | None:
    """Return the Unix time at which a model got its turn, or None if it has no turn."""
    turn = find(model, TURN) or {}
    return unix_time(turn["lastTransitionTime"]) if turn.get("status") == "True" else None


def _in_line(first: Iterable[Object], held: Mapping[str, int], at_once: int, now: str) -> list[Object]:
    """Return the models in the order in which they get a turn: first those whose namespace has the fewest turns and,
    among these, the one that has been the first of its namespace for the longest time. ``first`` contains the first
    models of the namespaces, and ``held`` the number of turns of each namespace. Models whose namespace has the maximum
    number of turns are left out."""

    def since(model: Object) -> str:
        turn = find(model, TURN) or {}
        return str(turn.get("lastTransitionTime") or now) if turn.get("status") == "Unknown" else now

    turns, ranked = Counter(held), []
    for model in sorted(first, key=lambda one: (since(one), age(one))):
        namespace = key(model).namespace
        if turns[namespace] < _most_of_one(at_once):
            ranked.append((turns[namespace], since(model), age(model), model))
            turns[namespace] += 1
    return [model for *_rank, model in sorted(ranked, key=lambda one: one[:3])]


def _enqueue_waiting(kind: Kind, kinds: Sequence[Kind], at_once: int) -> Enqueue:
    """Return a map function for the models of ``kind``. When a model of any of the ``kinds`` changes, the function
    enqueues the models that may get or lose a turn."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        before, after = (set(by_turn(one)) if one else set() for one in (change.old, change.new))
        if before == after:
            return ()
        namespace, models = change.key.namespace, list[Object]()
        departed = {_of(NEXT, namespace), _of(WAITS, namespace)} & (before - after)  # a new model enqueues itself
        if departed and not any(listers.count(one, TURN, _of(NEXT, namespace)) for one in kinds):
            oldest = min(_list_models(listers, kinds, _of(WAITS, namespace)), key=age, default=None)
            models += [oldest] if oldest else []
        if {HAS, NEXT} & (before ^ after):
            running = _list_models(listers, kinds, HAS)
            line = _in_line(_list_models(listers, kinds, NEXT), _count_turns(running), at_once, "9")
            models += line[: _WOKEN * at_once] + (running if NEXT in after else [])
        return [key(one) for one in models if one["kind"] == kind.kind]

    return enqueue
