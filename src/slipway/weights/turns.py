"""Turns: which models may be published now, and how much room there is for them. Pure.

Namespaces have turns one after the other, and none has all of them, so that one tenant keeps nobody waiting. Nothing
is kept of it: whoever asks gets the same answer from the models that there are. A turn is what the status of a model
says, and before that its place in the line: no Job gives one, as tenants may forge Jobs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter

import msgspec

from slipway.kube.objects import (
    JOB,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_owner,
    created_unix,
    deleting,
    key,
    uid,
)
from slipway.kube.quantity import amount
from slipway.kube.store import Change, IndexFunction
from slipway.serving.api import Enqueue, Listers, Watch, World
from slipway.serving.watches import owned_by
from slipway.weights import checks, publications
from slipway.weights.jobs import words_of

PENDING, PUBLISHING = "Pending", "Publishing"
"""Phases of models that wait for their turn, and of those that have it."""
ENDED = ("Ready", "Failed")
"""Of those that had it."""
PHASE, PUBLISHERS = "phase", "publishers"
"""Indexes: the phase of a model; Jobs that publish, by the uid of their model."""
UNKNOWN_SECONDS = 60.0
"""How long a model waits to hear how large those are that are published before it, where room is limited."""

_WOKEN = 4
"""Models that are told of each turn, as some of them may not be able to begin."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Models that share their turns."""

    kinds: tuple[Kind, ...]
    at_once: int
    """Models that are published at a time."""
    record: str
    """Annotation of models: see :class:`slipway.weights.publications.Record`."""
    capacity: str = ""
    """What all artifacts may have together; empty: there is no limit."""
    wants: Callable[[Object], bool]
    """Whether a model that waits could begin."""
    namespace: str
    """Where models of the cluster have their Jobs."""


def by_phase(model: Object) -> Iterable[str]:
    """Index function for :data:`PHASE`."""
    return ((model.get("status") or {}).get("phase") or PENDING,)


def by_publisher(job: Object) -> Iterable[str]:
    """Index function for :data:`PUBLISHERS`."""
    owner = controller_owner(job)
    return (owner.uid,) if owner and words_of(job)[1:2] == [publications.PUBLISH] else ()


def watches(kind: Kind, kinds: Sequence[Kind], at_once: int, record: str) -> tuple[Watch, ...]:
    """What models of one kind read of those that share their turns. ``record``: as in :class:`Queue`."""
    publishers: dict[str, IndexFunction] = {PUBLISHERS: by_publisher}
    phases: dict[str, IndexFunction] = {PHASE: by_phase}
    jobs = (msgspec.structs.replace(watch, indexes=publishers) for watch in owned_by(kind, JOB))
    enqueue = _next_ones(kind, kinds, at_once, record)
    return (*jobs, *(Watch(kind=one, enqueue=enqueue, indexes=phases) for one in kinds))


def has_turn(world: World, queue: Queue) -> bool:
    """Whether the resource may be published now."""
    mine, begun = world.resource, _begun(world, queue)
    held = _held(one for one in begun if uid(one) != uid(mine))
    free = _free(held, queue.at_once)
    if free <= 0 or any(uid(one) == uid(mine) for one in begun):
        return free > 0
    if held[key(mine).namespace] >= _most_of_one(queue.at_once):
        return False
    return any(one is mine for one in _next(world, queue, begun))


def room(world: World, queue: Queue) -> int | None:
    """Bytes that no other model has or is about to have; None: there is no limit. Raises LookupError while it is not
    known."""
    if not queue.capacity:
        return None
    free = math.floor(amount(queue.capacity))
    begun = _begun(world, queue)
    publishing = {uid(one) for one in (*begun, *_next(world, queue, begun))}
    for model in (one for kind in queue.kinds for one in world.list(kind)):
        if uid(model) == uid(world.resource):
            continue
        there = ((model.get("status") or {}).get("artifact") or {}).get("sizeBytes")
        if not there and uid(model) in publishing:
            there = publications.read(annotations_of(model).get(queue.record)).total
            if not there and _is_new(world, queue, model):
                raise LookupError(f"{model['kind']} {key(model)}")
        free -= there or 0
    return max(free, 0)


def may_begin(world: World, queue: Queue) -> bool:
    """Whether it is the resource's turn, and known how much room there is."""
    if not has_turn(world, queue):
        return False
    try:
        room(world, queue)
    except LookupError:
        return False
    return True


def recheck_seconds(world: World, queue: Queue) -> float:
    """When a model that waits looks again: soon if it is its turn and only the room is not known; else whoever makes
    way tells those that are next."""
    if has_turn(world, queue):
        return checks.TURN_SECONDS
    return checks.turn_seconds(world.resource, sum(world.listers.count(kind, PHASE, PENDING) for kind in queue.kinds))


def _begun(world: World, queue: Queue) -> list[Object]:
    """Models that have a turn, by their status, which no tenant writes."""
    begun = (one for kind in queue.kinds for one in world.list(kind, PHASE, PUBLISHING))
    return [one for one in begun if not deleting(one)]


def _held(begun: Iterable[Object]) -> Counter[str]:
    """How many turns each namespace has."""
    return Counter(key(one).namespace for one in begun)


def _free(held: Mapping[str, int], at_once: int) -> int:
    return at_once - sum(min(count, _most_of_one(at_once)) for count in held.values())


def _next(world: World, queue: Queue, begun: Sequence[Object]) -> list[Object]:
    """Models whose turn it is and that have not begun, by their status; the resource counts as one that waits."""
    held, mine = _held(begun), world.resource
    free = _free(held, queue.at_once)
    if free <= 0:
        return []
    others = (one for kind in queue.kinds for one in world.list(kind, PHASE, PENDING))
    waiting = [one for one in others if uid(one) != uid(mine) and not deleting(one)]
    waiting += [] if any(uid(one) == uid(mine) for one in begun) else [mine]
    ended = (one for kind in queue.kinds for phase in ENDED for one in world.list(kind, PHASE, phase))
    last_turns = _last_turns(chain(ended, _tried(waiting, queue.record)))
    line = _in_line(waiting, held, last_turns, queue.at_once, lambda one: one is mine or queue.wants(one))
    return line[:free]


def _is_new(world: World, queue: Queue, model: Object) -> bool:
    """Whether a model is published for so short a time that it may yet tell how large it is."""
    home, jobs = key(model).namespace or queue.namespace, world.list(JOB, PUBLISHERS, uid(model))
    made = [created_unix(one) for one in jobs if key(one).namespace == home]
    return bool(made) and world.now - min(made) < UNKNOWN_SECONDS


def _most_of_one(at_once: int) -> int:
    """How many turns one namespace may have: one is left for the others."""
    return max(at_once - 1, 1)


def _in_line(
    waiting: Iterable[Object],
    held: Mapping[str, int],
    last_turns: Mapping[str, str],
    at_once: int,
    wants: Callable[[Object], bool],
) -> list[Object]:
    """Those that may be next: first those of the namespace that has the fewest turns (``held``), of equals of the one
    whose last turn is the longest ago, and of one namespace the oldest. Models of the cluster count as one
    namespace. One that had no turn, or has deleted what had it, counts from its model's creation."""
    had, ranked = Counter(held), []
    for model in sorted(waiting, key=age):
        namespace = key(model).namespace
        if had[namespace] < _most_of_one(at_once) and wants(model):
            last = last_turns.get(namespace) or model["metadata"].get("creationTimestamp", "")
            ranked.append((had[namespace], last, age(model), model))
            had[namespace] += 1
    return [model for *_rank, model in sorted(ranked, key=itemgetter(0, 1, 2))]


def _tried(waiting: Iterable[Object], record: str) -> Iterable[Object]:
    """Those that failed and wait for another turn: they had one, as those that ended."""
    return (one for one in waiting if publications.read(annotations_of(one).get(record)).attempt > 1)


def _last_turns(had: Iterable[Object]) -> dict[str, str]:
    """When each namespace had its last one, by the status of its models that had theirs, which no tenant writes."""
    found: dict[str, str] = {}
    for model in had:
        conditions = (model.get("status") or {}).get("conditions") or ()
        times = [one.get("lastTransitionTime") or "" for one in conditions]
        namespace = key(model).namespace
        found[namespace] = max(found.get(namespace, ""), *times, "")
    return found


def age(model: Object) -> tuple[str, ...]:
    """Orders models, the oldest first."""
    return (model["metadata"].get("creationTimestamp", ""), model["kind"], *key(model))


def _next_ones(kind: Kind, kinds: Sequence[Kind], at_once: int, record: str) -> Enqueue:
    """Models of this kind that may be next, when a model of any kind is not published any more, or waits no more for
    it."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        before, after = (by_phase(one) if one else () for one in (change.old, change.new))
        made_way = before == (PUBLISHING,) or (before == (PENDING,) and after != (PUBLISHING,))
        if not made_way or before == after:
            return ()
        waiting, begun, ended = (
            [one for of in kinds for phase in phases for one in listers.list(of, PHASE, phase)]
            for phases in ((PENDING,), (PUBLISHING,), ENDED)
        )
        held = _held(begun)
        if _free(held, at_once) <= 0:
            return ()
        last_turns = _last_turns(chain(ended, _tried(waiting, record)))
        line = _in_line(waiting, held, last_turns, at_once, lambda _one: True)
        return [key(one) for one in line[: _WOKEN * at_once] if one["kind"] == kind.kind]

    return enqueue
