"""Scheduling: priorities of services, and their order when there are not enough accelerators for all. Pure.

The scheduler decides; this predicts its decision: by priority, then by age. Services that wait for different resources
do not block each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slipway.apis.llmkube.types.service import KIND, Priority
from slipway.kube.caches.store import Change, IndexFunction
from slipway.kube.objects import Key, Object, created_unix, deleting, key
from slipway.serving.contract.api import Listers, World
from slipway.serving.pods.policies import priority_class

WAITING = "WaitingForGPU"
WAITS_FOR, RANKED, PRIORITY = "waits", "ranked", "priority"
"""Indexes of waiting InferenceServices: the accelerator, the accelerator with their priority, and the priority."""
VALUES: dict[Priority, int] = {"critical": 1000000, "high": 100000, "normal": 10000, "low": 1000, "batch": 100}
INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9._/-]*[A-Za-z0-9])")
"""The scheduler's message for resources of which nodes have too little."""
UNREACHABLE_VOLUME = re.compile(r"volume node affinity conflict")


def class_name(priority: Priority) -> str:
    return f"llmkube-{priority}"


def own_class(priority: Priority, *, preempts: bool) -> Object:
    """Returns the cluster-scoped PriorityClass of a priority, to create if it is missing. ``preempts``: whether its
    pods may evict others, including those of other teams, as in the original; batch never does."""
    text = f"InferenceServices with priority {priority}."
    return priority_class(class_name(priority), VALUES[priority], text, preempts=preempts and priority != "batch")


class Scheduling(msgspec.Struct, frozen=True):
    """Why the scheduler finds no node."""

    status: str
    """The status: InsufficientGPU, InsufficientResources, UnbindableModelCache, or the scheduler's reason."""
    message: str
    """The scheduler's message."""
    resource: str = ""
    """The missing accelerator; empty: something else is missing."""


def scheduling_of_oldest(pods: Sequence[Object], resource: str) -> Scheduling | None:
    """Returns why the scheduler finds no node for the oldest pod for which it reports that; None if there is none.
    ``resource``: the accelerator that the pods request, if any."""
    states = (scheduling_of(pod, resource) for pod in sorted(pods, key=created_unix))
    return next((one for one in states if one), None)


def scheduling_of(pod: Object, resource: str) -> Scheduling | None:
    """Returns why the scheduler finds no node for a pod; None if it has not reported that, or the pod is being deleted.
    ``resource``: the accelerator that the pod requests, if any."""
    conditions = pod.get("status", {}).get("conditions") or ()
    condition: Object = next((one for one in conditions if one["type"] == "PodScheduled"), {})
    if condition.get("status") != "False" or deleting(pod):
        return None
    return _classify(condition.get("message", ""), condition.get("reason") or "Unschedulable", resource)


def has_node(pod: Object) -> bool:
    """Whether the pod is scheduled."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "True" for one in conditions)


def _classify(message: str, reason: str, resource: str) -> Scheduling:
    missing = INSUFFICIENT.findall(message)
    if resource and resource in missing:
        return Scheduling("InsufficientGPU", message, resource)
    if missing:
        return Scheduling("InsufficientResources", message)
    return Scheduling("UnbindableModelCache" if UNREACHABLE_VOLUME.search(message) else reason, message)


class Place(msgspec.Struct, frozen=True, order=True):
    """The position of a service in a queue: smaller comes first."""

    precedence: int
    """Its negated priority."""
    created: int
    namespace: str
    name: str


def place(resource: Object, priority: int) -> Place:
    return Place(-priority, created_unix(resource), *key(resource))


def position(world: World, priority: int, resource: str) -> int:
    """Returns the service's position among all that wait for the same resource, from 1. The cost does not depend on
    their number."""
    listers, before = world.listers, 0
    service = listers.get(KIND, key(world.resource))
    own = by_rank(service) if service else ()
    for other in map(int, listers.values(KIND, PRIORITY)):
        rank = _rank(resource, other)
        if other > priority:
            before += listers.count(KIND, RANKED, rank) - (rank in own)
        elif other == priority:
            before += listers.older(KIND, RANKED, rank, world.resource)
    return 1 + before


def enqueue_behind(change: Change, listers: Listers) -> Iterable[Key]:
    """Enqueues the services whose position depends on this change of a service: those behind it in a queue that it
    joins or leaves, or in which it moves. New accelerators need no event here, because the scheduler updates the
    waiting pods."""
    before, after = (_queued(state) if state else {} for state in (change.old, change.new))
    if before == after:
        return
    for resource in before.keys() | after.keys():
        first = min(queue[resource] for queue in (before, after) if resource in queue)
        for other in listers.list(KIND, WAITS_FOR, resource):
            if place(other, priority_of(other)) > first and key(other) != change.key:
                yield key(other)


def _queued(service: Object) -> dict[str, Place]:
    """Returns resource -> place in its queue; empty if the service does not wait, or is being deleted."""
    if deleting(service):
        return {}
    return {resource: place(service, priority_of(service)) for resource in by_resource(service)}


def by_resource(service: Object) -> Iterable[str]:
    """Index function for :data:`WAITS_FOR`."""
    text = str((service.get("status") or {}).get("waitingFor", ""))
    return (text.partition(":")[0],) if text else ()


def by_rank(service: Object) -> Sequence[str]:
    """Index function for :data:`RANKED`."""
    return [_rank(resource, priority_of(service)) for resource in by_resource(service) if not deleting(service)]


def by_priority(service: Object) -> Iterable[str]:
    """Index function for :data:`PRIORITY`."""
    return [str(priority_of(service)) for _resource in by_resource(service)]


def _rank(resource: str, priority: int) -> str:
    return f"{resource} {priority}"


def priority_of(service: Object) -> int:
    """Returns the priority in its status."""
    return int((service.get("status") or {}).get("effectivePriority", VALUES["normal"]))


INDEXES: Mapping[str, IndexFunction] = {WAITS_FOR: by_resource, RANKED: by_rank, PRIORITY: by_priority}
