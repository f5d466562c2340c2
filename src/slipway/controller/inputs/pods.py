"""The fields of pods that the caches keep, the workloads that created the pods, and pods that outlive their
workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from slipway.kube.caches.store import Change
from slipway.kube.objects import (
    DEPLOYMENT,
    JOB,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_owner,
    key,
    labels,
    uid,
)
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.contract.api import USES
from slipway.serving.pods.groups import LEADER_WORKER_SET, owner_name
from slipway.serving.routing.route import bounded


class _PodController(NamedTuple):
    """The kind of workload to which a controller of pods, such as a ReplicaSet, belongs."""

    workload: Kind
    name: Callable[[str, Object], str]
    """Function that returns the workload's name from the name of the pod's controller and the pod. The value is empty
    if there is no workload."""


def _of_replica_set(name: str, pod: Object) -> str:
    """Return the name of a ReplicaSet's Deployment, or an empty string. A ReplicaSet is named after its Deployment and
    the hash of its template, which its pods have as a label."""
    template = labels(pod).get("pod-template-hash", "")
    return name.removesuffix(f"-{template}") if template else ""


POD_CONTROLLERS: Mapping[tuple[str, str], _PodController] = {
    ("apps", "ReplicaSet"): _PodController(DEPLOYMENT, _of_replica_set),
    ("apps", "StatefulSet"): _PodController(LEADER_WORKER_SET, lambda name, pod: owner_name(name, labels(pod))),
    ("batch", "Job"): _PodController(JOB, lambda name, _pod: name),
}
"""Map of group and kind of a pod's controller to the workload. To support another kind of workload, add an entry."""
WORKLOADS = frozenset(controller.workload for controller in POD_CONTROLLERS.values())
"""Kinds of children that create pods."""


def workload_of(pod: Object) -> tuple[Kind, Key] | None:
    """Return kind and key of the workload that created a pod, or None if no workload of a supported kind did."""
    owner = controller_owner(pod)
    controller = POD_CONTROLLERS.get((owner.api_version.rpartition("/")[0], owner.kind)) if owner else None
    name = controller.name(owner.name, pod) if owner and controller else ""
    return (controller.workload, Key(key(pod).namespace, name)) if controller and name else None


def by_workload(pod: Object) -> Iterable[str]:
    reference = workload_of(pod)
    return (text_of(*reference),) if reference else ()


def text_of(kind: Kind, name: Key) -> str:
    return f"{kind.api_version} {kind.kind} {name}"


def trim_pod(pod: Object) -> Object | None:
    """Return the pod without foreign annotations. Its spec keeps only devices and, if the pod has the annotation
    ``USES``, volumes with files.

    Return None for a pod that neither belongs to a workload nor has the annotation.
    """
    annotations = annotations_of(pod)
    annotations_left = {name: bounded(annotations[name]) for name in (TEMPLATE, USES) if name in annotations}
    if USES not in annotations_left and workload_of(pod) is None:
        return None
    metadata = {**pod["metadata"], "annotations": annotations_left}
    held = _devices(pod.get("spec") or {}) | (_files(pod.get("spec") or {}) if USES in annotations_left else {})
    kept_spec = {"spec": held} if held else {}
    return {**{field: value for field, value in pod.items() if field != "spec"}, "metadata": metadata, **kept_spec}


def _devices(spec: Object) -> Object:
    """Return the devices in a pod's spec: claims, and limits of extended resources, whose names have a domain prefix.
    The result is empty if the pod has none."""
    limits = [(one.get("resources") or {}).get("limits") or {} for one in spec.get("containers") or ()]
    extended = [{name: amount for name, amount in each.items() if "/" in name} for each in limits]
    claims = [{"name": claim["name"]} for claim in spec.get("resourceClaims") or ()]
    containers = [{"resources": {"limits": each}} for each in extended if each]
    return {field: values for field, values in (("containers", containers), ("resourceClaims", claims)) if values}


def _files(spec: Object) -> Object:
    """Return the node directories and PVCs in a pod's spec. The result is empty if the pod has none."""
    volumes = [
        {kind: one[kind]}
        for one in spec.get("volumes") or ()
        for kind in ("hostPath", "persistentVolumeClaim")
        if one.get(kind)
    ]
    return {"volumes": volumes} if volumes else {}


def mounts_files(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("volumes"))


class Orphans:
    """Terminating pods whose workload no longer exists, and the kind of the workload's owner."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, str] | None] = {}

    def note(self, pods: Iterable[Object], workload: Object) -> None:
        """Record the pods of a deleted workload."""
        controller = controller_owner(workload)
        owner = (controller.api_version.partition("/")[0], controller.kind) if controller else None
        self._owners |= {uid(pod): owner for pod in pods}

    def forget(self, change: Change) -> None:
        """Forget a pod when it is deleted. The informer of Pods calls this handler for each change."""
        if change.new is None and change.old is not None:
            self._owners.pop(uid(change.old), None)

    def is_of(self, owner: Kind, pod: Object) -> bool:
        """Whether a resource of the kind ``owner`` owned the workload of a terminating pod. If the workload was deleted
        before the controller started, every pod that mounts files counts."""
        if uid(pod) in self._owners:
            return self._owners[uid(pod)] == (owner.group, owner.kind)
        return mounts_files(pod)
