"""Volumes: how pods in any namespace read a folder of their node without permission to mount host paths. Pure.

The services of a namespace share one claim for each model, so that the number of claims does not grow with the number
of services. The model that owns the folder creates a volume for that claim alone, and deletes the claim when none of
the namespace's pods needs it. A node label shows which folders belong to a model, and the volume is limited to these
nodes. The kubelet therefore mounts nothing of a model that has lost its folder, and the next model waits until the
volumes are gone. Admission policies allow pods to mount such claims read-only, and only allow the controller to create
them.
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
"""Prefix of the names of claims and volumes. It does not end with a dash, so that no claim of a pod's ephemeral volume,
which Kubernetes names POD-VOLUME, has such a name. The admission policies of the role ``controller`` contain it as
well."""
SIZE = "1Mi"
"""Size that claims request. A folder of a node has no size, but claims and volumes need one."""
MODES = ["ReadOnlyMany"]


class ModelClaim(msgspec.Struct, frozen=True):
    """A claim for a folder of a model."""

    path: str
    claim: Object

    @property
    def name(self) -> str:
        return key(self.claim).name


def claim_name(of: str, path: str, namespace: str) -> str:
    """Returns the name of the claim with which pods of a namespace read a folder of the model with the uid ``of``. The
    claim's volume has the same name."""
    identity = f"{of}\0{path}\0{namespace}"
    return f"{PREFIX}{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def name_for(mount: Mount, resource: Object) -> str:
    """Returns the name of the claim for a model in a resource's namespace."""
    return claim_name(mount.uid, mount.path, key(resource).namespace)


def build_claim(name: str, namespace: str, mark: str) -> Object:
    """Builds the claim ``name``, which selects the volume of the same name. ``mark``: the end of the model's node
    label."""
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
    """Builds the volume through which a claim reads its folder on nodes. ``of``: uid of the model."""
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
    """Raises InvalidSpecError if an object that the controller did not create has the name of one of these claims.
    Admission policies only prevent that while they are installed, and such a claim does not contain the model's
    files."""
    for one in claims:
        place = key(one)
        observed = world.get(Reference(PERSISTENT_VOLUME_CLAIM, *place))
        if observed is not None and not _is_ours(observed, one):
            text = f"The PersistentVolumeClaim {place} does not belong to Slipway, but has the name of a model's claim."
            raise InvalidSpecError("NameTaken", f"{text} Delete it.")


def _is_ours(observed: Object, planned: Object) -> bool:
    """Whether a claim can only be bound to the volume that the controller creates for it."""
    spec, expected = observed.get("spec") or {}, planned["spec"]
    same = all(spec.get(field) == expected[field] for field in ("accessModes", "selector", "storageClassName"))
    return same and spec.get("volumeName", "") in ("", key(planned).name)


def is_usable(volume: Object | None, claim: Object) -> bool:
    """Whether an existing volume is bound to this claim, not to an earlier one with the same name."""
    if volume is None:
        return True
    bound = as_object((volume.get("spec") or {}).get("claimRef")).get("uid", "")
    phase = (volume.get("status") or {}).get("phase", "")
    return bound == uid(claim) and phase not in ("Released", "Failed")


def path_of(volume: Object) -> str:
    """Returns the node folder of a volume; empty: none."""
    return str(as_object((volume.get("spec") or {}).get("local")).get("path", ""))


# Claims


def by_model(claim: Object) -> Iterable[str]:
    """Index function of claims: the mark of their model."""
    mark = labels(claim).get(names.VOLUME_OF_LABEL, "")
    ours = labels(claim).get(MANAGED_BY) == MANAGER and key(claim).name.startswith(PREFIX)
    return (mark,) if mark and ours else ()


def find_claims(claims: Iterable[Object], model: Object, paths: Collection[str]) -> tuple[ModelClaim, ...]:
    """Returns the claims for a model. Claims in namespaces that may not use it, or of an earlier model with its name,
    have no folder: their path is empty."""
    result = list[ModelClaim]()
    for one in claims:
        namespace, name = key(one)
        allowed = paths if key(model).namespace in ("", namespace) else ()
        expected = {claim_name(uid(model), path, namespace): path for path in allowed}
        result.append(ModelClaim(expected.get(name, ""), one))
    return tuple(result)


def names_in(specs: Iterable[Object]) -> frozenset[str]:
    """Returns the names of the model claims that pods with these specs mount."""
    volumes = (volume for spec in specs for volume in spec.get("volumes") or ())
    claims = (str(as_object(one.get("persistentVolumeClaim")).get("claimName", "")) for one in volumes)
    return frozenset(one for one in claims if one.startswith(PREFIX))


def names_of(workloads: Iterable[Object]) -> frozenset[str]:
    """Returns the names of the model claims that the pods of these workloads mount."""
    return names_in(pod.get("spec") or {} for workload in workloads for _place, pod in templates(workload))


def build_claims(resource: Object, mounts: Iterable[Mount], workloads: Iterable[Object]) -> tuple[Object, ...]:
    """Builds the claims that a resource's ``workloads`` mount. A model that is being deleted gets none, so that the
    pods on its claim can end and the model can be removed."""
    mounted, namespace = names_of(workloads), key(resource).namespace
    read = (one for one in mounts if one.path and not one.claim and not one.is_deleted)
    marks = {name_for(one, resource): one.mark for one in read}
    return tuple(build_claim(name, namespace, mark) for name, mark in marks.items() if name in mounted)


def enqueue_users_of_claim(change: Change, listers: Listers, kind: Kind) -> Iterable[Key]:
    """Enqueues the resources of a kind that may need a claim again because it was deleted or created by another author.
    The kind must have the index NAMESPACE."""
    if (change.old and change.new) or not change.key.name.startswith(PREFIX):
        return ()
    return [key(one) for one in listers.list(kind, NAMESPACE, change.key.namespace)]
