"""Kubernetes objects as decoded JSON, the kinds that Slipway uses, and accessors for metadata.

This package passes objects as plain dictionaries, as the API server sent them, except for ``metadata.managedFields``
and other fields that informers remove. Objects from a store must not be changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

Object = dict[str, Any]
"""A decoded Kubernetes object, or a part of one."""

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label with the name of the program that created an object. Every child has the label, and informers of children
select by it."""


class Kind(msgspec.Struct, frozen=True):
    """A resource type, and its path on the API server."""

    group: str
    """API group. The value is empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    metadata_only: bool = False
    """Whether lists and watches of this kind request only the metadata."""

    @property
    def api_version(self) -> str:
        """Group and version as in an object's ``apiVersion``, such as ``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of one object, or of a collection if ``name`` is empty. ``subresource`` is the last part
        of the path unless empty.

        An empty namespace addresses the collection of all namespaces, or an object of a cluster-scoped kind.
        """
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return quote("/".join(parts))


def metadata_of(kind: Kind) -> Kind:
    """Return the kind for readers that need only metadata. The API server sends nothing else for it, and caches keep it
    separate from whole objects."""
    return msgspec.structs.replace(kind, metadata_only=True)


POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
EVENT = Kind("", "v1", "Event", "events")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets")
JOB = Kind("batch", "v1", "Job", "jobs")
CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
HORIZONTAL_POD_AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
SCALED_OBJECT = Kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)


class Key(NamedTuple):
    """Namespace and name, which identify an object of a kind. The namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(NamedTuple):
    """The controlling owner of an object, from the object's owner references."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""
    """The object's own namespace, or the namespace of an owner elsewhere (see :mod:`slipway.kube.writes.owners`)."""


def key(obj: Object) -> Key:
    """Return the namespace and name of an object. The namespace is empty if it has none."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def uid(obj: Object) -> str:
    """Return the object's UID, which differs if the object is recreated under the same name."""
    value: str = obj["metadata"]["uid"]
    return value


def generation(obj: Object) -> int:
    """Return the object's generation, which counts changes of the spec. Return 0 for kinds without generations."""
    return int(obj["metadata"].get("generation", 0))


def resource_version(obj: Object) -> str:
    """Return the resource version of this copy, or an empty string if the object was never on a server."""
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def version_number(version: str) -> int:
    """Return a resource version as a number for comparisons, or 0 if it is not a number, so that its age is unknown.

    Kubernetes guarantees numbers since 1.35. Earlier versions use numbers if their storage is etcd.
    """
    return int(version) if version.isdecimal() and len(version) <= 20 else 0


def labels(obj: Object) -> dict[str, str]:
    """Return the labels of an object. The result is empty if it has none."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> dict[str, str]:
    """Return the annotations of an object. The result is empty if it has none."""
    return obj["metadata"].get("annotations") or {}


def as_object(value: Any) -> Object:
    """Return the value of an untrusted field if it is an object, and an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def deleting(obj: Object) -> bool:
    """Whether the object's deletion has begun, even if a finalizer still delays it."""
    return "deletionTimestamp" in obj["metadata"]


def created(obj: Object) -> str:
    """Return the creation time in Kubernetes' format, which sorts by age. The result is empty if the object was never
    on a server."""
    return str(obj.get("metadata", {}).get("creationTimestamp") or "")


def created_unix(obj: Object) -> int:
    """Return the creation time in Unix seconds, or 0 if the object was never on a server."""
    stamp = obj["metadata"].get("creationTimestamp")
    return int(datetime.fromisoformat(stamp).timestamp()) if stamp else 0


def controller_owner(obj: Object) -> OwnerReference | None:
    """Return the owner reference with ``controller: true``, or None if there is none."""
    for reference in obj["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            return OwnerReference(
                reference["apiVersion"],
                reference["kind"],
                reference["name"],
                reference["uid"],
                reference.get("namespace", obj["metadata"].get("namespace", "")),
            )
    return None


def owner_reference(owner_kind: Kind, owner: Object) -> Object:
    """Return the owner reference that makes ``owner`` the controller of an object.

    If the owner is already being deleted, the reference does not block that deletion: the garbage collector would
    otherwise remove the new object first.
    """
    return {
        "apiVersion": owner_kind.api_version,
        "kind": owner_kind.kind,
        "name": owner["metadata"]["name"],
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": not deleting(owner),
    }
