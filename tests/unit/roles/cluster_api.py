"""An API server in a thread for roles that apply objects of Kubernetes' own kinds.

It knows discovery, get, list, create, server-side apply in earnest and as a rehearsal, and delete. Deployments are
ready, registered APIs available and Jobs complete as soon as they are applied.
"""

from __future__ import annotations

import copy
import re
import threading
import uuid
from typing import Any
from urllib.parse import unquote

from .api_server import ApiHandler, ApiServer, Kind, Object, discovery

ADMISSION = "admissionregistration.k8s.io/v1"
KINDS = (
    Kind("v1", "Namespace", "namespaces", namespaced=False),
    Kind("v1", "Node", "nodes", namespaced=False),
    Kind("v1", "Pod", "pods", namespaced=True),
    Kind("v1", "Secret", "secrets", namespaced=True),
    Kind("v1", "Service", "services", namespaced=True),
    Kind("v1", "ConfigMap", "configmaps", namespaced=True),
    Kind("v1", "ServiceAccount", "serviceaccounts", namespaced=True),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True),
    Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Kind("apps/v1", "Deployment", "deployments", namespaced=True),
    Kind("apps/v1", "DaemonSet", "daemonsets", namespaced=True),
    Kind("batch/v1", "Job", "jobs", namespaced=True),
    Kind("batch/v1", "CronJob", "cronjobs", namespaced=True),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True),
    Kind("coordination.k8s.io/v1", "Lease", "leases", namespaced=True),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", namespaced=True),
    Kind("rbac.authorization.k8s.io/v1", "Role", "roles", namespaced=True),
    Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", namespaced=True),
    Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False),
    Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Kind(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False),
    Kind(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False),
    Kind(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
    Kind(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False),
    Kind("apiregistration.k8s.io/v1", "APIService", "apiservices", namespaced=False),
    Kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False),
    Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False),
    Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False),
)
OPENSHIFT = (
    Kind("route.openshift.io/v1", "Route", "routes", namespaced=True),
    Kind("security.openshift.io/v1", "SecurityContextConstraints", "securitycontextconstraints", namespaced=False),
)
"""What only such a cluster serves: ``api.kinds += OPENSHIFT``."""
PROMETHEUS = (
    Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", namespaced=True),
    Kind("monitoring.coreos.com/v1", "Prometheus", "prometheuses", namespaced=True),
    Kind("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules", namespaced=True),
)
"""What only a cluster with Prometheus' operator serves."""


class ClusterApi(ApiServer):
    """``objects``: (kind, namespace, name) -> object. ``writes``: the kinds and names that were written or deleted, in
    order. ``failing``: what an API that is registered says instead of being available, and routers' answer to a Route;
    Jobs fail. ``routers``: their number. ``denied``: resources that no account may change. ``version``: of
    Kubernetes. ``reordered``: kinds whose field managers have another order after each apply."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.writes: list[str] = []
        self.failing = ""
        self.kinds = KINDS
        self.routers = 1
        self.denied: set[str] = set()
        self.version = "v1.36.4"
        self.reordered: set[str] = set()
        self.lock = threading.Lock()
        super().__init__(_Handler)

    def put(self, resource: Object) -> None:
        """An object of another owner."""
        metadata = resource["metadata"]
        self.objects[resource["kind"], metadata.get("namespace", ""), metadata["name"]] = self._served(resource, {})

    def apply(self, key: tuple[str, str, str], body: Object, *, rehearsed: bool) -> Object:
        live = self.objects.get(key, {})
        applied = self._served(_merged(live, body), live)
        if key[0] in self.reordered:
            metadata = applied["metadata"]
            metadata["managedFields"] = metadata.get("managedFields", [{"manager": "a"}, {"manager": "b"}])[::-1]
            if not rehearsed:
                metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        if not rehearsed and applied != live:
            self.writes.append(f"apply {key[0]} {key[2]}")
            self.objects[key] = applied
        return applied

    def _served(self, resource: Object, live: Object) -> Object:
        served = copy.deepcopy(resource)
        served["metadata"].setdefault("uid", str(uuid.uuid4()))
        if served == live:
            return served
        before = live.get("metadata", {})
        # Of a definition, as of most kinds, the generation is that of its spec.
        same = served["kind"] == "CustomResourceDefinition" and served.get("spec") == live.get("spec")
        generation = before.get("generation", 0) + (not same)
        served["metadata"].update(generation=generation, resourceVersion=str(int(before.get("resourceVersion", 0)) + 1))
        if served["kind"] == "Deployment":
            count = served["spec"]["replicas"]
            counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), count)
            served["status"] = {"observedGeneration": generation, **counts}
        if served["kind"] == "Job":
            served["status"] = {"conditions": [{"type": "Failed" if self.failing else "Complete", "status": "True"}]}
        if served["kind"] == "APIService":
            status, message = ("False", self.failing) if self.failing else ("True", "all checks passed")
            served["status"] = {"conditions": [{"type": "Available", "status": status, "message": message}]}
        if served["kind"] == "CustomResourceDefinition":
            served["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        if served["kind"] == "Route":
            served["spec"].setdefault("host", f"{served['metadata']['name']}.apps.example.com")
            status = "False" if self.failing else "True"
            condition = {"type": "Admitted", "status": status, "reason": "HostAlreadyClaimed", "message": self.failing}
            served["status"] = {"ingress": [{"conditions": [condition]}] * self.routers}
        return served


class _Handler(ApiHandler):
    api: ClusterApi

    def do_GET(self) -> None:
        document = discovery(self.place, self.api.kinds, self.api.version)
        if document is not None:
            self.send(200, document)
            return
        kind, namespace, name = self._named()
        if not kind:
            self.refuse(404, "NotFound", "the page is not found")
            return
        with self.api.lock:
            if name:
                resource = self.api.objects.get((kind, namespace, name))
                self.send(200, resource) if resource else self.refuse(404, "NotFound", name)
            else:
                self.send(200, {"kind": f"{kind}List", "apiVersion": "v1", "items": self._items(kind, namespace)})

    def do_PATCH(self) -> None:
        with self.api.lock:
            self.send(200, self.api.apply(self._named(), self.body(), rehearsed="dryRun" in self.query))

    def do_POST(self) -> None:
        kind, namespace, _name = self._named()
        body = self.body()
        if kind == "SelfSubjectAccessReview":
            denied = body["spec"]["resourceAttributes"]["resource"] in self.api.denied
            self.send(201, {**body, "metadata": {}, "status": {"allowed": not denied}})
            return
        with self.api.lock:
            key = (kind, namespace, body["metadata"]["name"])
            self.send(201, self.api.apply(key, body, rehearsed="dryRun" in self.query))

    def do_DELETE(self) -> None:
        kind, namespace, name = self._named()
        rehearsed = "dryRun" in {**self.query, **self.body()}
        with self.api.lock:
            resource = self.api.objects.get((kind, namespace, name))
            if resource is None:
                self.refuse(404, "NotFound", name)
                return
            if not rehearsed:
                self.api.writes.append(f"delete {kind} {name}")
                del self.api.objects[kind, namespace, name]
            self.send(200, resource)

    def _items(self, kind: str, namespace: str) -> list[Object]:
        query = self.query
        items = [item for key, item in self.api.objects.items() if key[0] == kind and namespace in ("", key[1])]
        exact_name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        labels = [label for label in re.split(r",(?![^(]*\))", query.get("labelSelector", "")) if label]
        return [
            item
            for item in items
            if exact_name in ("", item["metadata"]["name"]) and all(_labelled(item, label) for label in labels)
        ]

    def _named(self) -> tuple[str, str, str]:
        """(kind, namespace, name) of the path; without a name, all of the kind. No kind: the path is unknown."""
        parts = unquote(self.place).split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        kind = next((kind.name for kind in self.api.kinds if kind.plural == parts[0]), "")
        return kind, namespace, parts[1] if len(parts) > 1 else ""


def _labelled(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels", {})
    among = re.fullmatch(r"(\S+) in \((.*)\)", selector)
    if among:
        return labels.get(among[1]) in re.split(r",\s*", among[2])
    if "=" not in selector:
        return selector in labels
    name, _sign, value = selector.partition("!=") if "!=" in selector else selector.partition("=")
    return (labels.get(name) == value) != ("!=" in selector)


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return copy.deepcopy(new)
    return {**copy.deepcopy(old), **{key: _merged(old.get(key), value) for key, value in new.items()}}
