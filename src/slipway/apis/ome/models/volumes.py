"""Volumes: how pods of any namespace read a folder of their node, without the right to mount one. Pure.

A service makes a claim, and the model that has the folder makes a volume for that claim alone. A label of nodes tells
which folders are a model's, and the volume is for these nodes. So the kubelet mounts nothing of a model that has lost
its folder, and the next model waits until the volumes are gone. Admission policies let pods mount such claims
read-only, and only the controller create them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.models.storage import Mount
from slipway.kube.objects import (
    MANAGED_BY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    Object,
    as_object,
    controller_owner,
    key,
    labels,
    uid,
)
from slipway.serving.containers.freedoms import templates
from slipway.serving.pods.workload import MANAGER
from slipway.weights.nodes import kept_label

PREFIX = "slipway.ome."
"""Beginning of the names of claims and volumes. No dash follows, so that no claim of a pod's ephemeral volume, which
Kubernetes names POD-VOLUME, has such a name. The admission policies of the role ``controller`` know it, too."""
SIZE = "1Mi"
"""What claims ask for: a folder of a node has no size, but claims and volumes need one."""
MODES = ["ReadOnlyMany"]


class Claimed(msgspec.Struct, frozen=True):
    """A claim for a folder of a model."""

    path: str
    claim: Object

    @property
    def name(self) -> str:
        return key(self.claim).name


def claim_name(of: str, path: str, namespace: str, owner: str) -> str:
    """Of the claim by which the resource with the uid ``owner`` reads a folder of the model with the uid ``of``, and of
    the claim's volume."""
    identity = f"{of}\0{path}\0{namespace}\0{owner}"
    return f"{PREFIX}{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def name_for(mount: Mount, resource: Object) -> str:
    """The name of a resource's claim for a model."""
    return claim_name(mount.uid, mount.path, key(resource).namespace, uid(resource))


def claim(name: str, namespace: str, mark: str) -> Object:
    """``mark``: of the model, as nodes have it."""
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
        "kind": PERSISTENT_VOLUME_CLAIM.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {names.VOLUME_OF_LABEL: mark}},
        "spec": {
            "accessModes": MODES,
            "resources": {"requests": {"storage": SIZE}},
            "storageClassName": "",
            "selector": {"matchLabels": {names.VOLUME_LABEL: name}},
        },
    }


def volume(of: str, claimed: Claimed) -> Object:
    """The volume of a claim. ``of``: uid of the model."""
    namespace, name = key(claimed.claim)
    belongs = {"key": kept_label(of, claimed.path), "operator": "Exists"}
    return {
        "apiVersion": PERSISTENT_VOLUME.api_version,
        "kind": PERSISTENT_VOLUME.kind,
        "metadata": {"name": name, "labels": {names.VOLUME_LABEL: name}},
        "spec": {
            "accessModes": MODES,
            "capacity": {"storage": SIZE},
            "claimRef": {
                "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
                "kind": PERSISTENT_VOLUME_CLAIM.kind,
                "namespace": namespace,
                "name": name,
                "uid": uid(claimed.claim),
            },
            "local": {"path": claimed.path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [belongs]}]}},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "volumeMode": "Filesystem",
        },
    }


def usable(volume: Object | None, claim: Object) -> bool:
    """Whether a volume that is there, if any, is or can be bound to this very claim, not to one of its name before."""
    bound = as_object(((volume or {}).get("spec") or {}).get("claimRef")).get("uid", "")
    phase = ((volume or {}).get("status") or {}).get("phase", "")
    return bound in ("", uid(claim)) and phase not in ("Released", "Failed")


def path_of(volume: Object) -> str:
    """The folder of the nodes that a volume has; empty: none."""
    return str(as_object((volume.get("spec") or {}).get("local")).get("path", ""))


# Claims


def by_model(claim: Object) -> Iterable[str]:
    """Index function of claims: the mark of the model that they are for."""
    mark = labels(claim).get(names.VOLUME_OF_LABEL, "")
    ours = labels(claim).get(MANAGED_BY) == MANAGER and key(claim).name.startswith(PREFIX)
    return (mark,) if mark and ours else ()


def claimed(claims: Iterable[Object], model: Object, paths: Collection[str]) -> tuple[Claimed, ...]:
    """The claims for these folders of a model, of namespaces whose services may use it."""
    result = list[Claimed]()
    for one in claims:
        (namespace, name), owner = key(one), controller_owner(one)
        if owner is None or key(model).namespace not in ("", namespace):
            continue
        expected = {claim_name(uid(model), path, namespace, owner.uid): path for path in paths}
        if path := expected.get(name, ""):
            result.append(Claimed(path, one))
    return tuple(result)


def names_in(specs: Iterable[Object]) -> frozenset[str]:
    """The claims for models that pods with these specs mount."""
    volumes = (volume for spec in specs for volume in spec.get("volumes") or ())
    claims = (str(as_object(one.get("persistentVolumeClaim")).get("claimName", "")) for one in volumes)
    return frozenset(one for one in claims if one.startswith(PREFIX))


def names_of(workloads: Iterable[Object]) -> frozenset[str]:
    """The claims for models that the pods of these workloads mount."""
    return names_in(pod.get("spec") or {} for workload in workloads for _place, pod in templates(workload))


def wanted(
    resource: Object,
    mounts: Iterable[Mount],
    workloads: Iterable[Object],
    observed: Iterable[Object],
    used: Collection[str],
) -> tuple[Object, ...]:
    """A resource's claims: those that its ``workloads`` mount, and of the ``observed`` ones those that are still
    ``used``, such as by pods of the spec before. A model that is being deleted gets none: what has its claim may end,
    and then it can go."""
    mounted, namespace = names_of(workloads), key(resource).namespace
    marks = {name_for(one, resource): (one.mark, one.leaving) for one in mounts if one.path and not one.claim}
    new = {name: mark for name, (mark, leaving) in marks.items() if name in mounted and not leaving}
    gone = {name for name, (_mark, leaving) in marks.items() if leaving}
    kept = {
        key(one).name: labels(one).get(names.VOLUME_OF_LABEL, "")
        for one in observed
        if key(one).name in used and key(one).name not in gone and "deletionTimestamp" not in one["metadata"]
    }
    return tuple(claim(name, namespace, mark) for name, mark in {**kept, **new}.items())
