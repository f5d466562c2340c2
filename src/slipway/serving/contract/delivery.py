"""Delivery: the contract between the controller and an API that brings models into workloads of strangers.

The controller watches the metadata of these workloads, and keeps of it what the API's watch says. For one that asks for
models, or has something of an earlier delivery, it reads the whole object and makes a :class:`DeliveryWorld` of it;
``Delivery.deliver`` says what the workload, and what is made for it, ought to be. All but the reading and the writing
is pure.

A workload belongs to its author, who goes on applying it. So it is written by a JSON patch that names the version which
was read, and never by server-side apply. After a patch the API server counts as ours exactly what it changed: single
variables, mounts and volumes. By server-side apply we would own the containers, too, that have them: an author who
drops one of those by an apply of his own is then refused, as what is left of it has no image. What is there already
stays where it is in its list, so that an apply that changes nothing, and a second delivery of the same, replace no pod.
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
"""What models are delivered to. The template of a Job can never be changed, and Pods and ReplicaSets are of others."""
OBSERVED = tuple(metadata_of(kind) for kind in WORKLOADS)
"""The same as they are watched."""
ROLLOUT_SECONDS = 10.0
"""After which a workload is looked at again whose pods are being replaced: its status is not watched."""


class DeliveryWorld(msgspec.Struct, frozen=True, kw_only=True):
    """All that a delivery may depend on."""

    kind: Kind
    workload: Object
    """As the API server has it now."""
    claims: Mapping[str, Object]
    """Name -> claim that was made for a delivery in the workload's namespace."""
    jobs: Mapping[str, Object]
    """Name -> Job that was made for a delivery there."""
    pods: Callable[[str], Sequence[Object]]
    """The pods of one of these Jobs."""
    listers: Listers
    """The kinds that the API watches, and its own."""
    settings: Settings
    now: float
    """Unix seconds."""
    file: Callable[[str], bytes] = lambda _path: b""
    """Content of a file of the controller's own; empty where there is none."""


class Blocked(NamedTuple):
    """Why a workload does not get what it requests. It stays unchanged, and waiting pods continue to wait."""

    reason: str
    message: str
    waiting: bool = False
    """Whether this passes by itself, so that its Event is no warning."""


class NotDeliverableError(Exception):
    """A workload does not get its models; see :class:`Blocked`."""

    def __init__(self, reason: str, message: str, *, waiting: bool = False) -> None:
        super().__init__(message)
        self.blocked = Blocked(reason, message, waiting)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state."""

    workload: Object
    """As it ought to be; equal to the one that was read where it is so already."""
    claims: tuple[Object, ...] = ()
    """Those that it reads or waits for, each complete. What else it shares is given up."""
    jobs: tuple[Object, ...] = ()
    """Those that fill its claims: made where there are none of their names, never changed."""
    finished_jobs: tuple[Object, ...] = ()
    """Those that are of no more use."""
    secrets: tuple[Object, ...] = ()
    """Written without being read."""
    blocked: Blocked | None = None
    recheck_seconds: float | None = None
    """When it may be otherwise without any object changing."""


class Delivery(Protocol):
    """How an API delivers its models to workloads."""

    @property
    def name(self) -> str:
        """The API's, as settings use it."""

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
        """Annotations of a workload with the reason and the message for which it gets nothing."""

    def offered(self, model: Object) -> object:
        """Returns the fields of a model that matter to its readers: equal while none of them changes."""

    def deliver(self, world: DeliveryWorld) -> Outcome:
        """Returns what a workload gets. Raises nothing: problems are part of the outcome."""


# Workloads


def template_path(kind: Kind) -> tuple[str, ...]:
    """Returns the path of a workload's pod template."""
    return ("spec", "jobTemplate", "spec", "template") if kind == CRON_JOB else ("spec", "template")


def template_of(kind: Kind, workload: Object) -> Object:
    """Its pod template."""
    part = workload
    for field in template_path(kind):
        part = part[field]
    return part


def with_template(kind: Kind, workload: Object, template: Object) -> Object:
    """The workload with another pod template."""
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
    """Returns the JSON patch that gives a workload its desired state if nothing changed it meanwhile; empty: it has
    it."""
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


# Claims, which several workloads share


def owner(kind: Kind, workload: Object) -> Object:
    """Returns the owner reference with which a claim is deleted together with its last workload."""
    name = workload["metadata"]["name"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid(workload)}


def owners(obj: Object) -> list[Object]:
    """The owner references of an object."""
    return list(obj["metadata"].get("ownerReferences") or ())


def owned_by(obj: Object, workload: Object) -> bool:
    """Whether a workload is among those that share an object."""
    return any(one.get("uid") == uid(workload) for one in owners(obj))


def sharers(obj: Object, kind: Kind) -> Iterable[Key]:
    """The workloads of a kind that share an object."""
    namespace = obj["metadata"].get("namespace", "")
    for one in owners(obj):
        if (one.get("apiVersion"), one.get("kind")) == (kind.api_version, kind.kind):
            yield Key(namespace, str(one.get("name", "")))
