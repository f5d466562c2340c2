"""An API server in a thread for tasks that cordon, drain and wait for a node.

It knows nodes, which can be patched, pods, which can be evicted, and budgets, which hold that up. A pod that is evicted
is gone at once.
"""

from __future__ import annotations

from typing import Any

from .api_server import ApiHandler, ApiServer, Kind, Object, discovery

MARK = "slipway.inference/cordoned"
KINDS = (
    Kind("v1", "Node", "nodes", namespaced=False),
    Kind("v1", "Pod", "pods", namespaced=True),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True),
)


class NodeApi(ApiServer):
    """``held``: pod -> how many evictions are refused before one is granted. ``events``: what was done, in order.
    ``returning``: pods that exist again at the next list request. ``statuses``: what the node says of itself,
    one per read; the last one stays."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.budgets: list[Object] = []
        self.held: dict[str, int] = {}
        self.events: list[str] = []
        self.statuses: list[Object] = []
        self.returning: set[str] = set()
        self.late: dict[str, Object] = {}
        super().__init__(_Handler)

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
        pod = self.pods.pop(name)
        if name in self.returning:
            self.returning.remove(name)
            self.late[name] = pod
        return True


class _Handler(ApiHandler):
    api: NodeApi

    def do_GET(self) -> None:
        parts = self.place.split("/")
        if (document := discovery(self.place, KINDS)) is not None:
            self.send(200, document)
        elif parts[2] == "nodes":
            node = self.api.read(parts[3])
            self.send(200, node) if node else self.refuse(404, "NotFound", f'nodes "{parts[3]}" not found')
        elif parts[-2] == "pods":
            pod = self.api.pods.get(parts[-1])
            self.send(200, pod) if pod else self.refuse(404, "NotFound", parts[-1])
        elif parts[-1] == "pods":
            self.send(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self._pods()})
        else:
            listing = {"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1", "metadata": {}}
            self.send(200, {**listing, "items": self.api.budgets})

    def do_PATCH(self) -> None:
        name = self.place.split("/")[3]
        self.send(200, self.api.patch(name, self.body(), rehearsed="dryRun" in self.query))

    def do_POST(self) -> None:
        name = self.place.split("/")[-2]
        self.body()
        if self.api.evict(name):
            self.send(201, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        else:
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            self.refuse(429, "TooManyRequests", message)

    def _pods(self) -> list[Object]:
        self.api.pods |= self.api.late
        self.api.late = {}
        node = self.query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        return [pod for pod in self.api.pods.values() if node in ("", pod["spec"]["nodeName"])]


def _patched(old: Any, new: Any) -> Any:
    """As a merge patch has it: null takes a key away."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    both = {**old, **{key: _patched(old.get(key), value) for key, value in new.items()}}
    return {key: value for key, value in both.items() if value is not None}
