"""Delivery: the contract between the controller and an API that adds models to workloads of other owners.

The controller watches the metadata of these workloads, reduced by the API's watch. If a workload requests models, or
still has parts of an earlier delivery, the controller reads the whole object into a :class:`DeliveryWorld`.
``Delivery.deliver`` returns the desired state of the workload and of the objects created for it. Everything except the
reading and writing is pure.

A workload belongs to its author, who continues to apply it. So it is changed by a JSON patch that names the version
which was read, never by server-side apply. After a patch, the API server records exactly the changed variables, mounts
and volumes as ours. With server-side apply we would also own their containers, and an author who removes such a
container would get an error, because the rest of it has no image. Existing list items keep their position, so that an
apply without changes, or a second delivery of the same models, replaces no pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from slipway.kube.objects import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    STATEFUL_SET,
    Key,
    Kind,
    Object,
    generation,
    metadata_of,
    resource_version,
    uid,
)
from slipway.serving.contract.api import Listers
from slipway.serving.contract.settings import Settings

WORKLOADS = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET, CRON_JOB)
"""Kinds that models are delivered to. The template of a Job cannot be changed, and Pods and ReplicaSets belong to
controllers."""
OBSERVED = tuple(metadata_of(kind) for kind in WORKLOADS)
"""The kinds in :data:`WORKLOADS`, watched as metadata only."""
ROLLOUT_SECONDS = 10.0
"""Interval at which a workload is checked while its pods are replaced, because its status is not watched."""


class DeliveryWorld(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a delivery may depend on."""

    kind: Kind
    workload: Object
    """The current object on the API server."""
    claims: Mapping[str, Object]
    """Name -> claim created for a delivery in the workload's namespace."""
    jobs: Mapping[str, Object]
    """Name -> Job created for a delivery in this namespace."""
    pods: Callable[[str], Sequence[Object]]
    """Returns the pods of the Job in ``jobs`` with this name."""
    listers: Listers
    """Reads the kinds that the API watches, and its own."""
    settings: Settings
    now: float
    """Unix seconds."""
    file: Callable[[str], bytes] = lambda _path: b""
    """Reads a file of the controller; empty if it does not exist."""


class Blocked(NamedTuple):
    """Why a workload does not get the models that it requests. It stays unchanged, and waiting pods continue to
    wait."""

    reason: str
    message: str
    waiting: bool = False
    """Whether this resolves itself, so that its Event is not a warning."""


class NotDeliverableError(Exception):
    """A workload does not get its models; see :class:`Blocked`."""

    def __init__(self, reason: str, message: str, *, waiting: bool = False) -> None:
        super().__init__(message)
        self.blocked = Blocked(reason, message, waiting)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state."""

    workload: Object
    """The desired workload; equal to the one that was read if nothing must change."""
    claims: tuple[Object, ...] = ()
    """Claims that it reads or waits for, each complete. It is removed from the owners of all others."""
    jobs: tuple[Object, ...] = ()
    """Jobs that fill its claims: created if missing, never changed."""
    finished_jobs: tuple[Object, ...] = ()
    """Jobs that are no longer needed."""
    secrets: tuple[Object, ...] = ()
    """Secrets, written without being read."""
    blocked: Blocked | None = None
    recheck_seconds: float | None = None
    """When the outcome may change without a change of any object."""


class Delivery(Protocol):
    """How an API delivers its models to workloads."""

    @property
    def name(self) -> str:
        """The API's name in settings."""

    @property
    def models(self) -> tuple[Kind, ...]:
        """The kinds of its models. The API watches OBSERVED, with the index ``users``."""

    @property
    def users(self) -> str:
        """Name of the index of workloads by the models that they request: ``namespace/name``, or ``/name`` of a model
        without a namespace."""

    @property
    def label(self) -> str:
        """The label of claims and Jobs that are created for deliveries."""

    @property
    def gate(self) -> str:
        """Scheduling gate of pods that wait for a delivery."""

    @property
    def blocked(self) -> tuple[str, str]:
        """Annotations of a workload that is blocked: their names for the reason and the message."""

    def offered(self, model: Object) -> object:
        """Returns the fields of a model that affect its readers. Equal values mean no relevant change."""

    def deliver(self, world: DeliveryWorld) -> Outcome:
        """Returns the desired state of a workload. Never raises: problems are part of the outcome."""


# Workloads


def template_path(kind: Kind) -> tuple[str, ...]:
    """Returns the path of a workload's pod template."""
    return ("spec", "jobTemplate", "spec", "template") if kind == CRON_JOB else ("spec", "template")


def template_of(kind: Kind, workload: Object) -> Object:
    """Returns the workload's pod template."""
    part = workload
    for field in template_path(kind):
        part = part[field]
    return part


def with_template(kind: Kind, workload: Object, template: Object) -> Object:
    """Returns the workload with another pod template."""
    return _replaced(workload, template_path(kind), template)


def is_rolled_out(kind: Kind, workload: Object) -> bool:
    """Whether no pod of an earlier template remains, according to the workload's status."""
    status: Mapping[str, Any] = workload.get("status") or {}
    if kind == CRON_JOB:
        return not status.get("active")
    if int(status.get("observedGeneration", 0)) < generation(workload):
        return False
    if kind == DAEMON_SET:
        return int(status.get("updatedNumberScheduled", 0)) >= int(status.get("desiredNumberScheduled", 0))
    return int(status.get("updatedReplicas", 0)) >= int(status.get("replicas", 0))


def operations(kind: Kind, before: Object, after: Object) -> list[Object]:
    """Returns the JSON patch that gives a workload its desired state if it has not changed since; empty: nothing to
    change."""
    patch: list[Object] = []
    annotations = before["metadata"].get("annotations"), after["metadata"].get("annotations")
    if (annotations[0] or {}) != (annotations[1] or {}):
        patch.append(_operation("/metadata/annotations", *annotations))
    templates = template_of(kind, before), template_of(kind, after)
    if templates[0] != templates[1]:
        patch.append(_operation("/" + "/".join(template_path(kind)), *templates))
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version(before)}
    return [version, *patch] if patch else []


def _operation(path: str, before: Any, after: Any) -> Object:
    if not after:
        return {"op": "remove", "path": path}
    return {"op": "replace" if before is not None else "add", "path": path, "value": after}


def _replaced(obj: Object, path: Sequence[str], value: Any) -> Object:
    first, *rest = path
    return {**obj, first: _replaced(obj[first], rest, value) if rest else value}


# Claims shared by several workloads


def owner(kind: Kind, workload: Object) -> Object:
    """Returns the owner reference with which a claim is deleted together with its last workload."""
    name = workload["metadata"]["name"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid(workload)}


def owners(obj: Object) -> list[Object]:
    """Returns the owner references of an object."""
    return list(obj["metadata"].get("ownerReferences") or ())


def owned_by(obj: Object, workload: Object) -> bool:
    """Whether a workload is among the owners of a shared object."""
    return any(one.get("uid") == uid(workload) for one in owners(obj))


def sharers(obj: Object, kind: Kind) -> Iterable[Key]:
    """Returns the workloads of a kind that share an object."""
    namespace = obj["metadata"].get("namespace", "")
    for one in owners(obj):
        if (one.get("apiVersion"), one.get("kind")) == (kind.api_version, kind.kind):
            yield Key(namespace, str(one.get("name", "")))
