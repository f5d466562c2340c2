"""What happens to a model and its cluster while clients stream from it. Each disturbance waits for its own end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cluster.cluster import SYSTEM, Cluster, Object, unique, wait

from .clients import Clients
from .engine import PATIENCE, requests_of

BUSY = 5
"""Each pod that may have to end has at least so many streams before."""
REPLICAS = 2
CONTROLLER = "app.kubernetes.io/name=slipway-controller"


@dataclass
class Disturbance:
    """One event."""

    kind: str
    began: float
    ended: float = 0.0
    held: int = 0
    """The streams of the pods that had to end."""


@dataclass
class Scene:
    """A model with REPLICAS pods, and its clients."""

    cluster: Cluster
    namespace: str
    model: str
    clients: Clients
    disturbances: list[Disturbance] = field(default_factory=list)

    @contextmanager
    def _disturb(self, kind: str, busy: dict[str, int], names: Callable[[], list[str]]) -> Iterator[None]:
        """``busy``: pod -> streams before. ``names``: the pods of this kind that are not terminating."""
        one = Disturbance(kind, time.monotonic())
        self.disturbances.append(one)
        try:
            yield
        finally:
            one.ended = time.monotonic()
        stay = names()
        one.held = sum(count for pod, count in busy.items() if pod not in stay)

    # --- the model's pods --------------------------------------------------------------------------------------------

    def roll_out(self) -> None:
        """Replaces all pods."""
        busy = self._busy_pods()
        with self._disturb("rollout", busy, self._pods):
            self._change(env=[{"name": "ROLLOUT", "value": unique("number")}])
        assert busy.keys().isdisjoint(self._pods())

    def scale_down(self) -> None:
        """Takes a pod away. Afterwards it adds one again."""
        busy = self._busy_pods()
        with self._disturb("scale-down", busy, self._pods):
            self._change(minReplicas=1)
            assert len(self._pods()) == 1
        self._change(minReplicas=REPLICAS)

    @contextmanager
    def drained(self, node: str) -> Iterator[None]:
        """Drains a node. The drain ends with the streams on it; until then other things may happen."""
        busy = {pod: count for pod, count in self._busy_pods().items() if pod in self._pods(node)}
        assert busy, f"no pod of the model is on {node}"
        drain = ["kubectl", "--kubeconfig", self.cluster.kubeconfig, "drain", node, "--ignore-daemonsets"]
        drain += ["--delete-emptydir-data", f"--timeout={2 * PATIENCE:.0f}s"]
        with self._disturb("drain", busy, lambda: self._pods(node)):
            process = subprocess.Popen(drain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                wait(f"the model has left {node}", PATIENCE, lambda: self._pods(node), lambda pods: not pods)
                self.cluster.wait_ready(self.namespace, self.model, PATIENCE)
                yield
                output, _unused = process.communicate(timeout=2 * PATIENCE)
            finally:
                process.kill()
            assert process.returncode == 0, output
        self.cluster.kubectl("uncordon", node)

    def node(self) -> str:
        """The node with most pods of the model."""
        nodes = [pod["spec"]["nodeName"] for pod in self.cluster.pods(self.namespace, self.model)]
        return max(nodes, key=nodes.count)

    def _change(self, **spec: object) -> None:
        self.cluster.change_model(self.namespace, self.model, **spec)
        self.cluster.wait_ready(self.namespace, self.model, PATIENCE)

    def _pods(self, node: str = "") -> list[str]:
        """Those that are not terminating, of a node or of all."""
        pods = self.cluster.pods(self.namespace, self.model)
        return [pod["metadata"]["name"] for pod in pods if node in ("", pod["spec"].get("nodeName"))]

    def _busy_pods(self) -> dict[str, int]:
        """Waits until all pods stream. Returns pod -> requests that it is answering."""

        def requests() -> dict[str, int]:
            return {pod: requests_of(self.cluster, self.namespace, pod).get("processing", 0) for pod in self._pods()}

        return self._wait_busy("the model's pods", REPLICAS, requests)

    # --- what is in front of it and behind it ------------------------------------------------------------------------

    def roll_out_gateway(self) -> None:
        """Replaces all gateway pods."""
        busy = self._wait_busy("the gateway's pods", 2, self._gateway_requests)
        with self._disturb("gateway rollout", busy, self.cluster.gateways):
            name = "deployment/slipway-gateway"
            self.cluster.kubectl("rollout", "restart", "--namespace", SYSTEM, name)
            self.cluster.kubectl("rollout", "status", "--namespace", SYSTEM, name, "--timeout=250s")
        assert busy.keys().isdisjoint(self.cluster.gateways())

    def _gateway_requests(self) -> dict[str, int]:
        series = f'slipway_gateway_requests_in_flight{{model="{self.model}",namespace="{self.namespace}"}} '
        counts = {}
        for pod in self.cluster.gateways():
            lines = self.cluster.answer_of(pod, 8081, "/metrics").splitlines()
            counts[pod] = sum(int(float(line.removeprefix(series))) for line in lines if line.startswith(series))
        return counts

    def kill_controller(self) -> None:
        """SIGKILL to the controller. Afterwards it runs again."""
        [pod] = [pod["metadata"]["name"] for pod in self.cluster.list("Pod", SYSTEM, CONTROLLER) if _stays(pod)]
        before = self._controller_starts(pod)
        with self._disturb("controller kill", {}, list):
            self.cluster.kill(SYSTEM, pod, "controller")
            wait("the controller runs again", PATIENCE, lambda: self._controller_starts(pod), lambda now: now > before)

    def _controller_starts(self, pod: str) -> int:
        """The restarts of its container, if that is ready."""
        live_pod = self.cluster.get("Pod", SYSTEM, pod) or {"status": {}}
        statuses = live_pod["status"].get("containerStatuses", [])
        return sum(status["restartCount"] for status in statuses if status["ready"])

    def _wait_busy(self, what: str, number: int, look: Callable[[], dict[str, int]]) -> dict[str, int]:
        """Waits until each of these pods has BUSY streams; or a stream is broken, so that the test ends soon."""

        def busy(seen: dict[str, int]) -> bool:
            return len(seen) == number and min(seen.values()) >= BUSY

        busy_pods = wait(f"{what} stream", PATIENCE, look, lambda seen: busy(seen) or bool(self.clients.broken))
        assert not self.clients.broken, self.clients.broken[:3]
        return busy_pods


def _stays(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]
