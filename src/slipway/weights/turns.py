"""Turns: which models may be published now, and how much room there is for them. Pure.

Nothing is kept of it: whoever asks gets the same answer from the models and Jobs that there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

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
from slipway.serving.job import works
from slipway.serving.watches import owned_by
from slipway.weights import publications
from slipway.weights.jobs import in_place, words_of

PENDING, PUBLISHING = "Pending", "Publishing"
"""Phases of models that wait for their turn, and of those that have it."""
PHASE, PUBLISHERS = "phase", "publishers"
"""Indexes: the phase of a model; Jobs that publish."""
UNKNOWN_SECONDS = 60.0
"""How long a model waits to hear how large those are that are published before it, where room is limited."""


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
    return ("yes",) if words_of(job)[1:2] == [publications.PUBLISH] else ()


def watches(kind: Kind, kinds: Sequence[Kind], at_once: int) -> tuple[Watch, ...]:
    """What models of one kind read of those that share their turns."""
    publishers: dict[str, IndexFunction] = {PUBLISHERS: by_publisher}
    phases: dict[str, IndexFunction] = {PHASE: by_phase}
    jobs = (msgspec.structs.replace(watch, indexes=publishers) for watch in owned_by(kind, JOB))
    return (*jobs, *(Watch(kind=one, enqueue=_next_ones(kind, at_once), indexes=phases) for one in kinds))


def has_turn(world: World, queue: Queue) -> bool:
    """Of those that wait the oldest go first, over all kinds."""
    busy, mine = _busy(world, queue), uid(world.resource)
    free = queue.at_once - len(busy - {mine})
    if mine in busy:
        return free > 0
    waiting = (one for kind in queue.kinds for one in world.list(kind, PHASE, PENDING) if not deleting(one))
    ahead = (one for one in waiting if age(one) < age(world.resource) and uid(one) not in busy)
    return free > 0 and sum(1 for _one in islice(filter(queue.wants, ahead), free)) < free


def room(world: World, queue: Queue) -> int | None:
    """Bytes that no other model has or is about to have; None: there is no limit. Raises LookupError while it is not
    known."""
    if not queue.capacity:
        return None
    free = math.floor(amount(queue.capacity))
    publishing = {owner.uid: job for job in _publishers(world, queue) if (owner := controller_owner(job))}
    for model in (one for kind in queue.kinds for one in world.list(kind)):
        if uid(model) == uid(world.resource):
            continue
        there = ((model.get("status") or {}).get("artifact") or {}).get("sizeBytes")
        job = publishing.get(uid(model))
        told = publications.read(annotations_of(model).get(queue.record)).total
        if not there and not told and job and world.now - created_unix(job) < UNKNOWN_SECONDS:
            raise LookupError(f"{model['kind']} {key(model)}")
        free -= there or (told if job else 0)
    return max(free, 0)


def may_begin(world: World, queue: Queue) -> bool:
    """Whether it is the resource's turn, and known how much room there is."""
    try:
        room(world, queue)
    except LookupError:
        return False
    return has_turn(world, queue)


def age(model: Object) -> tuple[str, ...]:
    """Orders models, the oldest first."""
    return (model["metadata"].get("creationTimestamp", ""), model["kind"], *key(model))


def _next_ones(kind: Kind, most: int) -> Enqueue:
    """The oldest models of this kind that wait, when a model of any kind is not published any more."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        before, after = (by_phase(one) if one else () for one in (change.old, change.new))
        if before != (PUBLISHING,) or before == after:
            return ()
        return [key(one) for one in sorted(listers.list(kind, PHASE, PENDING), key=age)[:most]]

    return enqueue


def _busy(world: World, queue: Queue) -> set[str]:
    """Models that have a place, by their uids."""
    jobs = (one for one in _publishers(world, queue) if works(one, world.now))
    at_work = {owner.uid for one in jobs if (owner := controller_owner(one))}
    begun = (one for kind in queue.kinds for one in world.list(kind, PHASE, PUBLISHING))
    return at_work | {uid(one) for one in begun if not deleting(one)}


def _publishers(world: World, queue: Queue) -> list[Object]:
    return [one for one in world.list(JOB, PUBLISHERS, "yes") if in_place(one, queue.kinds, queue.namespace)]
