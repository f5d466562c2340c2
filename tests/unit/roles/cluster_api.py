"""An API server in a thread for roles that apply objects of Kubernetes' own kinds.

It knows discovery, get, list, create, server-side apply in earnest and as a rehearsal, and delete. Deployments are
ready and registered APIs available as soon as they are applied.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Object = dict[str, Any]
KINDS = (
    # apiVersion, kind, plural, whether it lies in a namespace
    ("v1", "Namespace", "namespaces", False),
    ("v1", "Node", "nodes", False),
    ("v1", "Pod", "pods", True),
    ("v1", "Secret", "secrets", True),
    ("v1", "Service", "services", True),
    ("v1", "ConfigMap", "configmaps", True),
    ("v1", "ServiceAccount", "serviceaccounts", True),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True),
    ("apps/v1", "Deployment", "deployments", True),
    ("apps/v1", "DaemonSet", "daemonsets", True),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", True),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", True),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", True),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", False),
    ("apiregistration.k8s.io/v1", "APIService", "apiservices", False),
    ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", False),
    ("storage.k8s.io/v1", "StorageClass", "storageclasses", False),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False),
)
OPENSHIFT = (
    ("route.openshift.io/v1", "Route", "routes", True),
    ("security.openshift.io/v1", "SecurityContextConstraints", "securitycontextconstraints", False),
)
"""What only such a cluster serves: ``api.kinds += OPENSHIFT``."""
PROMETHEUS = (
    ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", True),
    ("monitoring.coreos.com/v1", "Prometheus", "prometheuses", True),
    ("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules", True),
)
"""What only a cluster with Prometheus' operator serves."""


class ClusterApi:
    """``objects``: (kind, namespace, name) -> object. ``writes``: the kinds and names that were written or deleted, in
    order. ``failing``: what an API that is registered says instead of being available, and what routers say to a Route.
    ``routers``: how many there are. ``denied``: resources that nobody may change. ``version``: of Kubernetes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.writes: list[str] = []
        self.failing = ""
        self.kinds = KINDS
        self.routers = 1
        self.denied: set[str] = set()
        self.version = "v1.34.4"
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(self, resource: Object) -> None:
        """Somebody else's object."""
        metadata = resource["metadata"]
        self.objects[resource["kind"], metadata.get("namespace", ""), metadata["name"]] = self._served(resource, {})

    def apply(self, key: tuple[str, str, str], body: Object, *, rehearsed: bool) -> Object:
        live = self.objects.get(key, {})
        applied = self._served(_merged(live, body), live)
        if not rehearsed and applied != live:
            self.writes.append(f"apply {key[0]} {key[2]}")
            self.objects[key] = applied
        return applied

    def _served(self, resource: Object, live: Object) -> Object:
        served = copy.deepcopy(resource)
        served["metadata"].setdefault("uid", str(uuid.uuid4()))
        if served == live:
            return served
        generation = live.get("metadata", {}).get("generation", 0) + 1
        served["metadata"].update(generation=generation, resourceVersion=str(generation))
        if served["kind"] == "Deployment":
            count = served["spec"]["replicas"]
            counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), count)
            served["status"] = {"observedGeneration": generation, **counts}
        if served["kind"] == "APIService":
            status, message = ("False", self.failing) if self.failing else ("True", "all checks passed")
            served["status"] = {"conditions": [{"type": "Available", "status": status, "message": message}]}
        if served["kind"] == "Route":
            served["spec"].setdefault("host", f"{served['metadata']['name']}.apps.example.com")
            status = "False" if self.failing else "True"
            said = {"type": "Admitted", "status": status, "reason": "HostAlreadyClaimed", "message": self.failing}
            served["status"] = {"ingress": [{"conditions": [said]}] * self.routers}
        return served


class _Handler(BaseHTTPRequestHandler):
    api: ClusterApi
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests are quiet."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.strip("/")
        known = _discovery(path, self.api.kinds, self.api.version)
        if known is not None:
            self._send(200, known)
            return
        kind, namespace, name = self._place()
        if not kind:
            self._send(404, {"kind": "Status", "status": "Failure", "message": "the page is not found", "code": 404})
            return
        with self.api.lock:
            if name:
                found = self.api.objects.get((kind, namespace, name))
                self._send(200, found) if found else self._missing(name)
            else:
                self._send(200, {"kind": f"{kind}List", "apiVersion": "v1", "items": self._items(kind, namespace)})

    def do_PATCH(self) -> None:
        place = self._place()
        with self.api.lock:
            self._send(200, self.api.apply(place, self._body(), rehearsed="dryRun" in self._query()))

    def do_POST(self) -> None:
        kind, namespace, _name = self._place()
        body = self._body()
        if kind == "SelfSubjectAccessReview":
            denied = body["spec"]["resourceAttributes"]["resource"] in self.api.denied
            self._send(201, {**body, "metadata": {}, "status": {"allowed": not denied}})
            return
        with self.api.lock:
            key = (kind, namespace, body["metadata"]["name"])
            self._send(201, self.api.apply(key, body, rehearsed="dryRun" in self._query()))

    def do_DELETE(self) -> None:
        place = self._place()
        rehearsed = "dryRun" in {**self._query(), **self._body()}
        with self.api.lock:
            found = self.api.objects.get(place)
            if found is None:
                self._missing(place[2])
                return
            if not rehearsed:
                self.api.writes.append(f"delete {place[0]} {place[2]}")
                del self.api.objects[place]
            self._send(200, found)

    def _items(self, kind: str, namespace: str) -> list[Object]:
        query = self._query()
        found = [item for key, item in self.api.objects.items() if key[0] == kind and namespace in ("", key[1])]
        wanted = query.get("fieldSelector", "").removeprefix("metadata.name=")
        labels = [label for label in re.split(r",(?![^(]*\))", query.get("labelSelector", "")) if label]
        return [
            item
            for item in found
            if wanted in ("", item["metadata"]["name"]) and all(_labelled(item, label) for label in labels)
        ]

    def _place(self) -> tuple[str, str, str]:
        return _place(urlsplit(self.path).path.strip("/"), self.api.kinds)

    def _query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}

    def _body(self) -> Object:
        body: Object = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}") or {}
        return body

    def _missing(self, name: str) -> None:
        self._send(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": name, "code": 404})

    def _send(self, status: int, body: Object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _discovery(path: str, kinds: tuple[tuple[str, str, str, bool], ...], kubernetes: str) -> Object | None:
    """What the server tells of itself; None for objects."""
    versions = sorted({version for version, *_rest in kinds})
    if path == "version":
        return {"major": "1", "minor": kubernetes.split(".")[1], "gitVersion": kubernetes}
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "apis":
        groups = [version for version in versions if "/" in version]
        told = [{"groupVersion": group, "version": group.split("/")[1]} for group in groups]
        return {
            "kind": "APIGroupList",
            "groups": [
                {"name": version["groupVersion"].split("/")[0], "versions": [version], "preferredVersion": version}
                for version in told
            ],
        }
    version = path.removeprefix("apis/").removeprefix("api/")
    if version not in versions:
        return None
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    return {
        "kind": "APIResourceList",
        "groupVersion": version,
        "resources": [
            {"name": plural, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs}
            for of, kind, plural, namespaced in kinds
            if of == version
        ],
    }


def _place(path: str, kinds: tuple[tuple[str, str, str, bool], ...]) -> tuple[str, str, str]:
    """(kind, namespace, name) that a path leads to; without a name, all of the kind. No kind: nobody knows the path."""
    parts = unquote(path).split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    kind = next((kind for _version, kind, plural, _namespaced in kinds if plural == parts[0]), "")
    return kind, namespace, parts[1] if len(parts) > 1 else ""


def _labelled(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels", {})
    among = re.fullmatch(r"(\S+) in \((.*)\)", selector)
    if among:
        return labels.get(among[1]) in re.split(r",\s*", among[2])
    name, _sign, value = selector.partition("!=") if "!=" in selector else selector.partition("=")
    return (labels.get(name) == value) != ("!=" in selector)


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return copy.deepcopy(new)
    return {**copy.deepcopy(old), **{key: _merged(old.get(key), value) for key, value in new.items()}}
