"""The role device_plugin, run against an API server whose nodes have GPUs, or whose plugins cannot start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi, Object
from .role_run import run_role

pytestmark = pytest.mark.plays

OURS = "slipway.inference/accelerator"
NVIDIA_S = "slipway-nvidia-device-plugin"
STUCK = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "plugin",
            "ready": False,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}},
        }
    ],
}
RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class GpuCluster(ClusterApi):
    """``pods``: node -> status of the plugin's pod there. Where it runs, the node offers two GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Object] = {}

    def apply(self, key: tuple[str, str, str], body: Object, *, rehearsed: bool) -> Object:
        applied = super().apply(key, body, rehearsed=rehearsed)
        if key[0] == "DaemonSet" and not rehearsed:
            for node, status in self.pods.items():
                self._run(applied, node, status)
        return applied

    def _run(self, daemon_set: Object, node: str, status: Object) -> None:
        labels = daemon_set["spec"]["template"]["metadata"]["labels"]
        name = f"{daemon_set['metadata']['name']}-{node}"
        metadata = {"name": name, "namespace": daemon_set["metadata"]["namespace"], "labels": labels}
        self.put(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": status}
        )
        if status["phase"] == "Running":
            self.objects["Node", "", node]["status"]["allocatable"]["nvidia.com/gpu"] = "2"


@pytest.fixture
def api() -> Iterator[GpuCluster]:
    server = GpuCluster()
    server.put(
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
    )
    for name in ("one", "two"):
        labels = {"kubernetes.io/os": "linux"}
        status = {"allocatable": {"cpu": "4"}}
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status})
    server.pods = {"one": RUNNING}
    yield server
    server.stop()


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: Any) -> str:
    given = {"device_plugin_wait_timeout": 20, "device_plugin_nodes": {"one": "nvidia"}, **variables}
    return run_role(folder, api, "device_plugin", entry, *flags, failing=failing, **given)


def test_a_node_that_offers_none_is_named_with_the_reason(tmp_path: Path, api: GpuCluster) -> None:
    api.pods = {"one": RUNNING, "two": STUCK}
    output = play(
        tmp_path, api, "main", failing=True, device_plugin_nodes=dict.fromkeys(("one", "two"), "nvidia"),
        device_plugin_wait_timeout=600,
    )  # fmt: skip

    assert "Node two offers no GPU of NVIDIA:" in output
    assert f"pod {NVIDIA_S}-two waits: ImagePullBackOff (no such host)" in output
    assert "Node one offers" not in output


def test_nothing_is_changed_if_another_plugin_serves(tmp_path: Path, api: GpuCluster) -> None:
    pod = {
        "containers": [{"name": "ctr", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}],
        "volumes": [{"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    api.put(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system"},
            "spec": {"template": {"spec": pod}},
        }
    )
    output = play(tmp_path, api, "main")

    assert "DaemonSet nvidia-device-plugin in namespace kube-system already serves the GPUs of NVIDIA" in output
    assert api.writes == []


@pytest.mark.parametrize("interrupted", [False, True], ids=["at once", "after an interruption"])
def test_everything_of_the_plugins_is_removed(tmp_path: Path, api: GpuCluster, *, interrupted: bool) -> None:
    before = {*api.objects} | {("Pod", "slipway-devices", f"{NVIDIA_S}-one")}
    play(tmp_path, api, "main")
    place = {"name": "own", "namespace": "slipway-devices"}
    api.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place})
    del api.objects["Node", "", "one"]["status"]["allocatable"]["nvidia.com/gpu"]
    if interrupted:
        del api.objects["DaemonSet", "slipway-devices", NVIDIA_S]
        del api.objects["ServiceAccount", "slipway-devices", "own"]

    play(tmp_path, api, "uninstall")
    leftovers = {*api.objects} - before
    assert leftovers == (set() if interrupted else {("ServiceAccount", "slipway-devices", "own")})


def test_objects_of_a_tenant_with_the_roles_labels_remove_no_right(tmp_path: Path, api: GpuCluster) -> None:
    play(tmp_path, api, "main")
    labels = api.objects["DaemonSet", "slipway-devices", NVIDIA_S]["metadata"]["labels"]
    forged = {"name": "cluster-admin", "namespace": "team-a", "labels": labels}
    for version, kind in (("v1", "ServiceAccount"), ("apps/v1", "DaemonSet")):
        api.put({"apiVersion": version, "kind": kind, "metadata": forged, "spec": {"template": {"metadata": {}}}})
    rights = {("ClusterRole", "", "cluster-admin"), ("ClusterRoleBinding", "", "cluster-admin")}
    for kind, _none, name in rights:
        api.put({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}})

    play(tmp_path, api, "main")
    assert rights <= {*api.objects}
    play(tmp_path, api, "uninstall")
    assert rights <= {*api.objects}
