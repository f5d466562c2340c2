"""The contract between the controller and an API that adds models to workloads of other owners.

The controller watches the metadata of these workloads, reduced by the API's watch. If a workload requests models, or
still has parts of an earlier delivery, the controller reads the whole object into a :class:`DeliveryWorld`.
``Delivery.deliver`` returns the desired state of the workload and of the objects created for it. Everything except
reading and writing is pure.

A workload belongs to its author, who continues to apply it. The controller therefore sends a JSON patch with the
version that it read, and never uses server-side apply. After a patch, the API server records exactly the changed
environment variables, mounts and volumes as ours. With server-side apply, we would also own the containers that have
them, and the API server would reject an author's removal of such a container, because the remaining part has no image.
Existing list items keep their position, so that an apply without changes, or a second delivery of the same models,
replaces no pod.
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
"""Kinds of workloads that models can be delivered to. The template of a Job is immutable, and Pods and ReplicaSets
belong to controllers, so these kinds are missing."""
OBSERVED = tuple(metadata_of(kind) for kind in WORKLOADS)
"""The kinds in :data:`WORKLOADS`, watched as metadata only."""
ROLLOUT_SECONDS = 10.0
"""Seconds between two checks of a workload while its pods are replaced. The controller does not watch its status."""


class DeliveryWorld(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the delivery to one workload may depend on."""

    kind: Kind
    workload: Object
    """The complete object as the API server returned it."""
    claims: Mapping[str, Object]
    """Claims that were created for deliveries in the workload's namespace, by name."""
    jobs: Mapping[str, Object]
    """Jobs that were created for deliveries in the workload's namespace, by name."""
    pods: Callable[[str], Sequence[Object]]
    """Function that returns the pods of a Job. Its argument is a key of ``jobs``."""
    listers: Listers
    """Read access to the API's own kinds and the kinds that it watches."""
    settings: Settings
    now: float
    """The current time in Unix seconds."""
    file: Callable[[str], bytes] = lambda _path: b""
    """Function that returns the content of a file in the controller's container. It returns empty bytes if the file is
    missing or cannot be read."""


class Blocked(NamedTuple):
    """Why a workload does not get the models that it requests. The workload's pod template stays unchanged, and its
    waiting pods continue to wait."""

    reason: str
    message: str
    waiting: bool = False
    """Whether the problem resolves itself, so that its Event is not a warning."""


class NotDeliverableError(Exception):
    """A workload cannot get its models. ``blocked`` has the reason and the message."""

    def __init__(self, reason: str, message: str, *, waiting: bool = False) -> None:
        super().__init__(message)
        self.blocked = Blocked(reason, message, waiting)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a delivery: the desired workload and the objects created for it."""

    workload: Object
    """The desired workload, equal to the observed workload if nothing must change."""
    claims: tuple[Object, ...] = ()
    """The complete claims that the workload reads or waits for. The workload is removed from the owners of its other
    claims, and claims without owners are deleted."""
    jobs: tuple[Object, ...] = ()
    """Jobs that fill the claims. Missing Jobs are created, and existing Jobs are never changed."""
    finished_jobs: tuple[Object, ...] = ()
    """Jobs to delete because they are no longer needed."""
    secrets: tuple[Object, ...] = ()
    """Secrets that are written without being read."""
    blocked: Blocked | None = None
    recheck_seconds: float | None = None
    """Seconds until the outcome may change even if no object changes. The value is None if only a change of an object
    affects it."""


class Delivery(Protocol):
    """How an API delivers its models to workloads."""

    @property
    def name(self) -> str:
        """The API's name in the settings."""

    @property
    def models(self) -> tuple[Kind, ...]:
        """The kinds of the API's models. The API watches OBSERVED with an index of the name in ``users``."""

    @property
    def users(self) -> str:
        """Name of the index of workloads by requested model. The index values are ``namespace/name``, or ``/name`` for
        a cluster-scoped model."""

    @property
    def label(self) -> str:
        """Name of the label of claims and Jobs that are created for deliveries. Its value is ``true``."""

    @property
    def gate(self) -> str:
        """Name of the scheduling gate that keeps pods waiting for a delivery."""

    @property
    def blocked(self) -> tuple[str, str]:
        """Names of the annotations for the reason and the message of a blocked workload."""

    def offered(self, model: Object) -> object:
        """Return the fields of a model that affect the workloads that use it. Equal values mean that no workload must
        be checked again."""

    def deliver(self, world: DeliveryWorld) -> Outcome:
        """Return the desired state of a workload. This function never raises an error: problems are part of the
        outcome."""


# Workloads


def template_path(kind: Kind) -> tuple[str, ...]:
    """Return the field names that lead to a workload's pod template."""
    return ("spec", "jobTemplate", "spec", "template") if kind == CRON_JOB else ("spec", "template")


def template_of(kind: Kind, workload: Object) -> Object:
    """Return the pod template of a workload."""
    part = workload
    for field in template_path(kind):
        part = part[field]
    return part


def with_template(kind: Kind, workload: Object, template: Object) -> Object:
    """Return a copy of the workload with another pod template."""
    return _replaced(workload, template_path(kind), template)


def is_rolled_out(kind: Kind, workload: Object) -> bool:
    """Whether no pod of an earlier template remains, according to the workload's status. For a CronJob, whether none of
    its Jobs is running."""
    status: Mapping[str, Any] = workload.get("status") or {}
    if kind == CRON_JOB:
        return not status.get("active")
    if int(status.get("observedGeneration", 0)) < generation(workload):
        return False
    if kind == DAEMON_SET:
        return int(status.get("updatedNumberScheduled", 0)) >= int(status.get("desiredNumberScheduled", 0))
    return int(status.get("updatedReplicas", 0)) >= int(status.get("replicas", 0))


def operations(kind: Kind, before: Object, after: Object) -> list[Object]:
    """Return the JSON patch that gives ``before`` the annotations and the pod template of ``after``. The result is
    empty if they are equal. The API server rejects the patch if the workload has changed since it was read."""
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
    """Return the reference that makes a workload one of the owners of a claim. Kubernetes deletes the claim together
    with its last owner."""
    name = workload["metadata"]["name"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid(workload)}


def owners(obj: Object) -> list[Object]:
    """Return the owner references of an object. The result is empty if it has none."""
    return list(obj["metadata"].get("ownerReferences") or ())


def owned_by(obj: Object, workload: Object) -> bool:
    """Whether a workload is among the owners of a shared object."""
    return any(one.get("uid") == uid(workload) for one in owners(obj))


def sharers(obj: Object, kind: Kind) -> Iterable[Key]:
    """Yield the keys of the workloads of a kind that are among the owners of an object."""
    namespace = obj["metadata"].get("namespace", "")
    for one in owners(obj):
        if (one.get("apiVersion"), one.get("kind")) == (kind.api_version, kind.kind):
            yield Key(namespace, str(one.get("name", "")))
