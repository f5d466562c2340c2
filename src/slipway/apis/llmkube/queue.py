"""Queue: how important services are, and whose turn it is where there are not accelerators for all. Pure.

The scheduler decides; this tells what it will do: by priority, of equals the oldest first. Services that wait for
different resources are in nobody's way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from slipway.apis.llmkube.service_types import Priority
from slipway.kube.objects import Object, created_unix, deleting, key
from slipway.serving.plan import World
from slipway.serving.policies import priority_class

WAITING = "WaitingForGPU"
RECHECK_SECONDS = 10.0
"""How often a service that waits looks at the others: no event tells it that one of them has gone."""
VALUES: dict[Priority, int] = {"critical": 1000000, "high": 100000, "normal": 10000, "low": 1000, "batch": 100}
INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9._/-]*[A-Za-z0-9])")
"""As the scheduler says that nodes have too little of something."""
UNREACHABLE_VOLUME = re.compile(r"volume node affinity conflict")


def class_name(priority: Priority) -> str:
    return f"llmkube-{priority}"


def own_class(priority: Priority, *, preempts: bool) -> Object:
    """The class of the whole cluster for a priority, made where it is missing. ``preempts``: whether its pods may put
    others off their nodes, those of other teams too, as the original's do; batch never does."""
    text = f"InferenceServices with priority {priority}."
    return priority_class(class_name(priority), VALUES[priority], text, preempts=preempts and priority != "batch")


class Scheduling(msgspec.Struct, frozen=True):
    """Why the scheduler finds no node."""

    status: str
    """One word: InsufficientGPU, InsufficientResources, UnbindableModelCache, or the scheduler's own."""
    message: str
    """The scheduler's."""
    resource: str = ""
    """The accelerator that is missing; empty: it is something else."""


def scheduling(pods: Sequence[Object], resource: str) -> Scheduling | None:
    """What the oldest pod that has no node is told; ``resource``: the accelerator that the pods ask for, if any."""
    found = (scheduling_of(pod, resource) for pod in sorted(pods, key=created_unix))
    return next((one for one in found if one), None)


def scheduling_of(pod: Object, resource: str) -> Scheduling | None:
    """The same of one pod."""
    conditions = pod.get("status", {}).get("conditions") or ()
    told: Object = next((one for one in conditions if one["type"] == "PodScheduled"), {})
    if told.get("status") != "False" or deleting(pod):
        return None
    return _judged(told.get("message", ""), told.get("reason") or "Unschedulable", resource)


def _judged(message: str, reason: str, resource: str) -> Scheduling:
    missing = INSUFFICIENT.findall(message)
    if resource and resource in missing:
        return Scheduling("InsufficientGPU", message, resource)
    if missing:
        return Scheduling("InsufficientResources", message)
    return Scheduling("UnbindableModelCache" if UNREACHABLE_VOLUME.search(message) else reason, message)


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a service stands: smaller comes first."""

    precedence: int
    """Its priority, negative."""
    created: int
    namespace: str
    name: str


def place(resource: Object, priority: int) -> Place:
    return Place(-priority, created_unix(resource), *key(resource))


def position(world: World, priority: int, resource: str) -> int:
    """The service's place among all that wait for the same resource, from 1."""
    own = place(world.resource, priority)
    others = (other for other in world.kin if key(other) != key(world.resource))
    return 1 + sum(other < own for other in _waiting(others, resource))


def _waiting(services: Iterable[Object], resource: str) -> Iterable[Place]:
    for service in services:
        status = service.get("status") or {}
        if str(status.get("waitingFor", "")).partition(":")[0] == resource and not deleting(service):
            yield place(service, int(status.get("effectivePriority", VALUES["normal"])))
