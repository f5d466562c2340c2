"""GPUs as a device plugin counts them: the manifests of the real one, with a stand-in that speaks to the kubelet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .accelerators import Node
from .cluster import PATIENCE, Cluster, site, unique, wait
from .kubeai import chat
from .llmkube import LLMKube

pytestmark = pytest.mark.disruptive  # the kubelet restarts

PLUGIN = ("slipway-devices", "app.kubernetes.io/name=slipway-nvidia-device-plugin")
PARTS = "runtime_class,device_plugin"
FILE = "/var/lib/kubelet/device-plugins/standin-gpus.json"
LLAMA = "ghcr.io/ggml-org/llama.cpp:server-v0.5.0"
"""The image for processors: there are no GPUs for another one."""


def settings(node: Node) -> str:
    """The nodes of the tests know no other handler than runc."""
    given: dict[str, Any] = {
        "slipway_gpu": True,
        "runtime_class_list": [{"name": "nvidia", "handler": "runc"}],
        "device_plugin_nodes": {node.name: "nvidia"},
        "device_plugin_nvidia_image": "slipway/test-engines:1",
    }
    return json.dumps(given)


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[Node]:
    """A node with two GPUs."""
    gpu_node = Node(cluster)
    try:
        site("--tags", PARTS, "-e", settings(gpu_node))
        yield gpu_node
    finally:
        site("--tags", PARTS, "-e", settings(gpu_node), playbook="uninstall")
        gpu_node.forget()


def offered(cluster: Cluster, node: Node) -> str:
    live_node = cluster.get("Node", "", node.name)
    assert live_node
    return str(live_node["status"]["allocatable"].get("nvidia.com/gpu", "0"))


def say(cluster: Cluster, gpus: dict[str, Any]) -> None:
    """Which GPUs the node has, from now on."""
    namespace, labels = PLUGIN
    [pod] = cluster.list("Pod", namespace, labels)
    script = f"echo '{json.dumps(gpus)}' > {FILE}.new && mv {FILE}.new {FILE}"
    cluster.kubectl("exec", "--namespace", namespace, pod["metadata"]["name"], "--", "sh", "-c", script)


def given(cluster: Cluster, namespace: str, pod: str) -> str:
    """Returns the GPUs in a container's environment."""
    return cluster.kubectl("exec", "--namespace", namespace, pod, "--", "printenv", "NVIDIA_VISIBLE_DEVICES").strip()


def test_models_that_ask_for_a_gpu_get_one_each_and_answer(
    cluster: Cluster, llmkube: LLMKube, namespace: str, llmkube_namespace: str, node: Node, gateway_url: str
) -> None:
    krypton, service, model = unique("krypton"), unique("llmkube"), unique("gpu")
    cluster.make_model(namespace, krypton, resources={"limits": {"nvidia.com/gpu": 1}})
    llmkube.make_model(llmkube_namespace, model, hardware={"accelerator": "cuda", "gpu": {"enabled": True}})
    llmkube.make_service(llmkube_namespace, service, model, image=LLAMA, resources={"gpu": 1})
    cluster.wait_ready(namespace, krypton)
    llmkube.wait_serving(llmkube_namespace, service)

    [first] = cluster.pods(namespace, krypton)
    [second] = llmkube.pods(llmkube_namespace, service)
    gpus = {
        given(cluster, namespace, first["metadata"]["name"]),
        given(cluster, llmkube_namespace, second["metadata"]["name"]),
    }
    assert gpus == {"GPU-0", "GPU-1"}
    assert {pod["spec"]["nodeName"] for pod in (first, second)} == {node.name}
    cluster.wait_routed(namespace, krypton)
    assert chat(gateway_url, krypton).status == 200
    assert chat(gateway_url, service).status == 200


def test_a_node_withdraws_unhealthy_gpus_and_a_model_reports_the_shortage(
    cluster: Cluster, namespace: str, node: Node
) -> None:
    assert offered(cluster, node) == "2"
    say(cluster, {"gpus": 2, "unhealthy": ["GPU-0", "GPU-1"]})
    wait("the node offers none", PATIENCE, lambda: offered(cluster, node), lambda count: count == "0")
    name = unique("waiting")
    cluster.make_model(namespace, name, resources={"limits": {"nvidia.com/gpu": 1}})
    assert "nvidia.com/gpu" in cluster.wait_failed(namespace, name, "ResourceNotFound")

    say(cluster, {"gpus": 2})
    wait("the node offers both", PATIENCE, lambda: offered(cluster, node), lambda count: count == "2")
    cluster.wait_ready(namespace, name)
