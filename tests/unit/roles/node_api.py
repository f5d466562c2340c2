"""An API server in a thread for tasks that cordon, drain and wait for a node.

It knows nodes, which can be patched, pods, which can be evicted, and budgets, which hold that up. A pod that is evicted
is gone at once.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
MARK = "slipway.inference/cordoned"
KINDS = {
    "v1": {"nodes": ("Node", False), "pods": ("Pod", True)},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
}


class NodeApi:
    """``held``: pod -> how many evictions are refused before one is granted. ``events``: what was done, in order.
    ``statuses``: what the node says of itself, one after the other as it is read; the last one stays."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.budgets: list[Object] = []
        self.held: dict[str, int] = {}
        self.events: list[str] = []
        self.statuses: list[Object] = []
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

    def node(self, name: str, *, unschedulable: bool = False, **annotations: str) -> Object:
        metadata = {"name": name, "annotations": annotations, "resourceVersion": "1", "uid": name}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}}
        if unschedulable:
            node["spec"] = {"unschedulable": True}
        self.nodes[name] = node
        return node

    def pod(self, name: str, node: str, *, owner: str = "ReplicaSet", empty_dir: bool = False, **labels: str) -> None:
        metadata: Object = {"name": name, "namespace": "models", "uid": name, "labels": labels}
        if owner:
            metadata["ownerReferences"] = [{"kind": owner, "name": "x", "apiVersion": "apps/v1", "uid": "x"}]
        volumes = [{"name": "scratch", "emptyDir": {}}] if empty_dir else []
        spec = {"nodeName": node, "containers": [{"name": "x"}], "volumes": volumes}
        status = {"phase": "Running"}
        self.pods[name] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def budget(self, name: str, healthy: int) -> None:
        status = {
            "disruptionsAllowed": 0,
            "currentHealthy": healthy,
            "desiredHealthy": healthy,
            "expectedPods": healthy,
        }
        self.budgets.append({"metadata": {"name": name, "namespace": "models"}, "spec": {}, "status": status})

    def read(self, name: str) -> Object | None:
        if name in self.nodes and self.statuses:
            self.nodes[name]["status"] = self.statuses[0]
            self.statuses = self.statuses[1:] or self.statuses
        return self.nodes.get(name)

    def patch(self, name: str, body: Object, *, rehearsed: bool) -> Object:
        node = _patched(self.nodes[name], body)
        if not rehearsed:
            cordoned = node["spec"].get("unschedulable", False)
            self.events.append(f"{'cordon' if cordoned else 'uncordon'} {name}")
            self.nodes[name] = node
        return node

    def evict(self, name: str) -> bool:
        if self.held.get(name, 0) > 0:
            self.held[name] -= 1
            self.events.append(f"hold {name}")
            return False
        self.events.append(f"evict {name}")
        del self.pods[name]
        return True


class _Handler(BaseHTTPRequestHandler):
    api: NodeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests are quiet."""

    def do_GET(self) -> None:
        parts = self._parts()
        if (told := _discovery(parts)) is not None:
            self._send(200, told)
        elif parts[2] == "nodes":
            node = self.api.read(parts[3])
            self._send(200, node) if node else self._refuse(404, "NotFound", f'nodes "{parts[3]}" not found')
        elif parts[-2] == "pods":
            pod = self.api.pods.get(parts[-1])
            self._send(200, pod) if pod else self._refuse(404, "NotFound", parts[-1])
        elif parts[-1] == "pods":
            self._send(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self._pods()})
        else:
            listing = {"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1", "metadata": {}}
            self._send(200, {**listing, "items": self.api.budgets})

    def do_PATCH(self) -> None:
        self._send(200, self.api.patch(self._parts()[3], self._body(), rehearsed="dryRun" in self._query()))

    def do_POST(self) -> None:
        name = self._parts()[-2]
        self._body()
        if self.api.evict(name):
            self._send(201, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        else:
            said = "Cannot evict pod as it would violate the pod's disruption budget."
            self._refuse(429, "TooManyRequests", said)

    def _pods(self) -> list[Object]:
        node = self._query().get("fieldSelector", "").removeprefix("spec.nodeName=")
        return [pod for pod in self.api.pods.values() if node in ("", pod["spec"]["nodeName"])]

    def _parts(self) -> list[str]:
        return urlsplit(self.path).path.strip("/").split("/")

    def _query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}

    def _body(self) -> Object:
        body: Object = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        return body

    def _refuse(self, code: int, reason: str, message: str) -> None:
        self._send(code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})

    def _send(self, status: int, body: Object) -> None:
        data = json.dumps(body).encode()
        reasons = {404: "Not Found", 429: "Too Many Requests"}
        self.send_response(status, reasons.get(status))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _discovery(parts: list[str]) -> Object | None:
    """What the server tells of itself; None for objects."""
    if parts == ["version"]:
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        version = {"groupVersion": "policy/v1", "version": "v1"}
        return {
            "kind": "APIGroupList",
            "groups": [{"name": "policy", "versions": [version], "preferredVersion": version}],
        }
    group = "/".join(parts[1:])
    if group not in KINDS:
        return None
    verbs = ["get", "list", "patch"]
    resources = [
        {"name": plural, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs}
        for plural, (kind, namespaced) in KINDS[group].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": group, "resources": resources}


def _patched(old: Any, new: Any) -> Any:
    """As a merge patch has it: null takes a key away."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    both = {**old, **{key: _patched(old.get(key), value) for key, value in new.items()}}
    return {key: value for key, value in both.items() if value is not None}
