"""Volumes: read access for pods in any namespace to a model directory of their node, without the permission to mount
host paths. Pure.

All services of a namespace share one claim per model, so the number of claims does not grow with the number of
services. The model that owns the directory creates a volume for that claim alone, and deletes the claim when no pod of
the namespace needs it. A node label shows that a directory belongs to a model, and the volume is limited to nodes with
that label. The kubelet therefore does not mount the directory of a model that has lost it, and the next model waits
until the volumes are deleted. Admission policies allow pods to mount such claims only read-only, and allow only the
controller to create them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.models.storage import Mount
from slipway.kube.caches.store import Change
from slipway.kube.objects import (
    MANAGED_BY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    Key,
    Kind,
    Object,
    as_object,
    key,
    labels,
    uid,
)
from slipway.serving.containers.freedoms import templates
from slipway.serving.contract.api import InvalidSpecError, Listers, Reference, World
from slipway.serving.contract.watches import NAMESPACE
from slipway.serving.pods.workload import MANAGER
from slipway.weights.nodes import folder_label

PREFIX = "slipway.ome."
"""Prefix of the names of claims and volumes. Kubernetes names the claims of ephemeral volumes POD-VOLUME. The prefix
does not end with a dash, so that no such claim has this prefix. The admission policies of the role ``controller`` also
contain the prefix."""
SIZE = "1Mi"
"""Size of claims and volumes. A node directory has no size, but Kubernetes requires one."""
MODES = ["ReadOnlyMany"]


class ModelClaim(msgspec.Struct, frozen=True):
    """A claim, and the model directory that pods read through the claim. The path is empty if they must not read any,
    see :func:`find_claims`."""

    path: str
    claim: Object

    @property
    def name(self) -> str:
        return key(self.claim).name


def claim_name(of: str, path: str, namespace: str) -> str:
    """Return the name of the claim with which pods of a namespace read the directory ``path`` of the model with the uid
    ``of``. The claim's volume has the same name."""
    identity = f"{of}\0{path}\0{namespace}"
    return f"{PREFIX}{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def name_for(mount: Mount, resource: Object) -> str:
    """Return the name of the claim for a model's mount in the namespace of ``resource``."""
    return claim_name(mount.uid, mount.path, key(resource).namespace)


def build_claim(name: str, namespace: str, mark: str) -> Object:
    """Build the claim ``name``, which selects the volume of the same name. ``mark``: the name of the model's node label
    without its prefix."""
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


def build_volume(of: str, model_claim: ModelClaim) -> Object:
    """Build the volume through which a claim reads its directory on nodes. ``of``: the uid of the model."""
    namespace, name = key(model_claim.claim)
    belongs = {"key": folder_label(of, model_claim.path), "operator": "Exists"}
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
                "uid": uid(model_claim.claim),
            },
            "local": {"path": model_claim.path},
            "mountOptions": ["ro"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [belongs]}]}},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "volumeMode": "Filesystem",
        },
    }


def check_free(world: World, claims: Iterable[Object]) -> None:
    """Raise InvalidSpecError if one of ``claims`` has the name of an existing claim that the controller did not create.
    Admission policies prevent such claims only while the policies are installed, and such a claim does not contain the
    model's files."""
    for one in claims:
        place = key(one)
        observed = world.get(Reference(PERSISTENT_VOLUME_CLAIM, *place))
        if observed is not None and not _is_ours(observed, one):
            text = f"The PersistentVolumeClaim {place} does not belong to Slipway, but has the name of a model's claim."
            raise InvalidSpecError("NameTaken", f"{text} Delete it.")


def _is_ours(observed: Object, planned: Object) -> bool:
    """Whether a claim can only be bound to the volume that the controller creates for the claim."""
    spec, expected = observed.get("spec") or {}, planned["spec"]
    same = all(spec.get(field) == expected[field] for field in ("accessModes", "selector", "storageClassName"))
    return same and spec.get("volumeName", "") in ("", key(planned).name)


def is_usable(volume: Object | None, claim: Object) -> bool:
    """Whether the volume for a claim can be created or kept. False if the existing volume has been released, has
    failed, or is bound to an earlier claim with the same name."""
    if volume is None:
        return True
    bound = as_object((volume.get("spec") or {}).get("claimRef")).get("uid", "")
    phase = (volume.get("status") or {}).get("phase", "")
    return bound == uid(claim) and phase not in ("Released", "Failed")


def path_of(volume: Object) -> str:
    """Return the node directory of a volume, or an empty string if it has none."""
    return str(as_object((volume.get("spec") or {}).get("local")).get("path", ""))


# Claims


def by_model(claim: Object) -> Iterable[str]:
    """Return the mark of a claim's model, for an index of claims. Empty for claims that do not belong to the
    controller."""
    mark = labels(claim).get(names.VOLUME_OF_LABEL, "")
    ours = labels(claim).get(MANAGED_BY) == MANAGER and key(claim).name.startswith(PREFIX)
    return (mark,) if mark and ours else ()


def find_claims(claims: Iterable[Object], model: Object, paths: Collection[str]) -> tuple[ModelClaim, ...]:
    """Return the given claims with their directories, which are among ``paths``. A claim has an empty path if it is for
    another directory, if its namespace may not use the model, or if it was created for an earlier model with the same
    name."""
    result = list[ModelClaim]()
    for one in claims:
        namespace, name = key(one)
        allowed = paths if key(model).namespace in ("", namespace) else ()
        expected = {claim_name(uid(model), path, namespace): path for path in allowed}
        result.append(ModelClaim(expected.get(name, ""), one))
    return tuple(result)


def names_in(specs: Iterable[Object]) -> frozenset[str]:
    """Return the names of the model claims that pods with the given specs mount."""
    volumes = (volume for spec in specs for volume in spec.get("volumes") or ())
    claims = (str(as_object(one.get("persistentVolumeClaim")).get("claimName", "")) for one in volumes)
    return frozenset(one for one in claims if one.startswith(PREFIX))


def names_of(workloads: Iterable[Object]) -> frozenset[str]:
    """Return the names of the model claims that the pods of the given workloads mount."""
    return names_in(pod.get("spec") or {} for workload in workloads for _place, pod in templates(workload))


def build_claims(resource: Object, mounts: Iterable[Mount], workloads: Iterable[Object]) -> tuple[Object, ...]:
    """Build the claims that a resource's ``workloads`` mount. A model that is being deleted gets no claim, so that the
    pods that use it can end and the model can be removed."""
    mounted, namespace = names_of(workloads), key(resource).namespace
    read = (one for one in mounts if one.path and not one.claim and not one.is_deleted)
    marks = {name_for(one, resource): one.mark for one in read}
    return tuple(build_claim(name, namespace, mark) for name, mark in marks.items() if name in mounted)


def enqueue_users_of_claim(change: Change, listers: Listers, kind: Kind) -> Iterable[Key]:
    """Return the resources of a kind that may need a claim again after the claim was deleted, or was created by another
    client. The kind must have the index NAMESPACE. Empty for claims that are not for models, and for other changes."""
    if (change.old and change.new) or not change.key.name.startswith(PREFIX):
        return ()
    return [key(one) for one in listers.list(kind, NAMESPACE, change.key.namespace)]
