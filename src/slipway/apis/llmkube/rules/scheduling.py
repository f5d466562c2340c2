"""The priorities of services, and their order when there are not enough accelerators for all. Pure.

The Kubernetes scheduler decides. This module predicts its decision: by priority, then by age. Services that wait for
different resources do not block each other.
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
"""Indexes of the InferenceServices that wait for an accelerator: by accelerator, by accelerator and priority, and by
priority."""
VALUES: dict[Priority, int] = {"critical": 1000000, "high": 100000, "normal": 10000, "low": 1000, "batch": 100}
INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9._/-]*[A-Za-z0-9])")
"""Part of a message of the scheduler that names a resource of which nodes have too little."""
UNREACHABLE_VOLUME = re.compile(r"volume node affinity conflict")


def class_name(priority: Priority) -> str:
    return f"llmkube-{priority}"


def own_class(priority: Priority, *, preempts: bool) -> Object:
    """Return the PriorityClass to create for a priority. ``preempts`` lets its pods evict other pods, including pods of
    other teams, as in the original. Pods of the priority batch never evict others."""
    text = f"InferenceServices with priority {priority}."
    return priority_class(class_name(priority), VALUES[priority], text, preempts=preempts and priority != "batch")


class Scheduling(msgspec.Struct, frozen=True):
    """Why the scheduler finds no node for a pod."""

    status: str
    """InsufficientGPU, InsufficientResources, UnbindableModelCache, or the reason that the scheduler reports."""
    message: str
    """The scheduler's message."""
    resource: str = ""
    """The missing accelerator; empty: something else is missing."""


def scheduling_of_oldest(pods: Sequence[Object], resource: str) -> Scheduling | None:
    """Return why the scheduler finds no node for the oldest pending pod, or None if it has reported that for no pod.
    ``resource`` is the accelerator that the pods request; empty: none."""
    states = (scheduling_of(pod, resource) for pod in sorted(pods, key=created_unix))
    return next((one for one in states if one), None)


def scheduling_of(pod: Object, resource: str) -> Scheduling | None:
    """Return why the scheduler finds no node for a pod, or None if the scheduler has not reported that or the pod is
    being deleted. ``resource`` is the accelerator that the pod requests; empty: none."""
    conditions = pod.get("status", {}).get("conditions") or ()
    condition: Object = next((one for one in conditions if one["type"] == "PodScheduled"), {})
    if condition.get("status") != "False" or deleting(pod):
        return None
    return _classify(condition.get("message", ""), condition.get("reason") or "Unschedulable", resource)


def has_node(pod: Object) -> bool:
    """Whether the scheduler has assigned a pod to a node."""
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
    """The place of a service in a queue. Smaller places come first."""

    precedence: int
    """Negated value of the service's priority."""
    created: int
    namespace: str
    name: str


def place(resource: Object, priority: int) -> Place:
    return Place(-priority, created_unix(resource), *key(resource))


def position(world: World, priority: int, resource: str) -> int:
    """Return the position of a service among all services that wait for the same resource, counted from 1. The cost
    does not depend on the number of services."""
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
    """Yield the services whose position depends on a change of another service: the services behind it in a queue that
    it joins or leaves, or in which it moves. New accelerators need no event here, because the scheduler then updates
    the waiting pods."""
    before, after = (_queued(state) if state else {} for state in (change.old, change.new))
    if before == after:
        return
    for resource in before.keys() | after.keys():
        first = min(queue[resource] for queue in (before, after) if resource in queue)
        for other in listers.list(KIND, WAITS_FOR, resource):
            if place(other, priority_of(other)) > first and key(other) != change.key:
                yield key(other)


def _queued(service: Object) -> dict[str, Place]:
    """Return the place of a service in the queue of the resource that it waits for, by resource. The result is empty if
    the service does not wait or is being deleted."""
    if deleting(service):
        return {}
    return {resource: place(service, priority_of(service)) for resource in by_resource(service)}


def by_resource(service: Object) -> Iterable[str]:
    """Return the value of a service in the index :data:`WAITS_FOR`: the accelerator that it waits for, if any."""
    text = str((service.get("status") or {}).get("waitingFor", ""))
    return (text.partition(":")[0],) if text else ()


def by_rank(service: Object) -> Sequence[str]:
    """Return the value of a service in the index :data:`RANKED`: the accelerator that it waits for and its priority.
    The result is empty if the service does not wait or is being deleted."""
    return [_rank(resource, priority_of(service)) for resource in by_resource(service) if not deleting(service)]


def by_priority(service: Object) -> Iterable[str]:
    """Return the value of a service in the index :data:`PRIORITY`: its priority, if it waits for an accelerator."""
    return [str(priority_of(service)) for _resource in by_resource(service)]


def _rank(resource: str, priority: int) -> str:
    return f"{resource} {priority}"


def priority_of(service: Object) -> int:
    """Return the value of the priority in a service's status. If it is missing, return the value of the priority
    ``normal``."""
    return int((service.get("status") or {}).get("effectivePriority", VALUES["normal"]))


INDEXES: Mapping[str, IndexFunction] = {WAITS_FOR: by_resource, RANKED: by_rank, PRIORITY: by_priority}
