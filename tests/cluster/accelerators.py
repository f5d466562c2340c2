"""Extended resources of a node: said to be there, or counted by a device plugin."""

from __future__ import annotations

import json
import subprocess

from .cluster import PATIENCE, Cluster, wait


class Node:
    """The node of the test cluster, with extended resources that only its status knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.name: str = cluster.list("Node", "", "node-role.kubernetes.io/control-plane")[0]["metadata"]["name"]

    def give(self, resource: str, count: int | None) -> None:
        """None: the node has no such resource."""
        self._patch([(part, resource, count) for part in ("capacity", "allocatable")])

        def resources() -> object:
            node = self._cluster.get("Node", "", self.name)
            return node and [node["status"][part].get(resource) for part in ("capacity", "allocatable")]

        expected = None if count is None else str(count)
        wait(f"the node has {count} {resource}", PATIENCE, resources, lambda seen: seen == [expected, expected])

    def forget(self) -> None:
        """Makes the kubelet forget deleted plugins. It would keep their devices for minutes and their names forever."""
        script = "rm -f /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint && systemctl restart kubelet"
        subprocess.run(["docker", "exec", self.name, "sh", "-c", script], check=True, timeout=120)
        self._cluster.kubectl("wait", "--for=condition=Ready", f"node/{self.name}", f"--timeout={int(PATIENCE)}s")
        self.give("nvidia.com/gpu", None)

    def _patch(self, rows: list[tuple[str, str, int | None]]) -> None:
        body: dict[str, dict[str, str | None]] = {}
        for part, resource, count in rows:
            body.setdefault(part, {})[resource] = None if count is None else str(count)
        patch = ["--subresource=status", "--type=merge", "--patch", json.dumps({"status": body})]
        self._cluster.kubectl("patch", "node", self.name, *patch)
