"""Services that wait for accelerators: a node is said to have some, the scheduler gives them out, the status tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .accelerators import Node
from .cluster import PATIENCE, Object, condition, unique, wait
from .kubeai import chat
from .llmkube import SERVICE, LLMKube

pytestmark = pytest.mark.xdist_group("accelerators")  # one node, whose status they change

LLAMA = "ghcr.io/ggml-org/llama.cpp:server-v0.5.0"
"""The image for processors: there are no GPUs for another one."""
CLASSES = {
    "llmkube-critical": (1000000, "PreemptLowerPriority"),
    "llmkube-high": (100000, "PreemptLowerPriority"),
    "llmkube-normal": (10000, "PreemptLowerPriority"),
    "llmkube-low": (1000, "PreemptLowerPriority"),
    "llmkube-batch": (100, "Never"),
}


@pytest.fixture(scope="module", autouse=True)
def classes(llmkube: LLMKube) -> Iterator[None]:
    """Preempting classes. Those that the controller creates here do not preempt, but it does not change existing ones.
    They are deleted afterwards, so that other tests keep their pods."""
    for name, (value, policy) in CLASSES.items():
        llmkube.delete("PriorityClass", "", name)
        llmkube.wait_gone("PriorityClass", "", name)
        llmkube.create(
            {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        )
    yield
    for name in CLASSES:
        llmkube.delete("PriorityClass", "", name)


@pytest.fixture
def node(llmkube: LLMKube) -> Iterator[Node]:
    gpu_node = Node(llmkube)
    yield gpu_node
    for resource in ("nvidia.com/gpu", "amd.com/gpu", "example.com/slice"):
        gpu_node.give(resource, None)


def make(llmkube: LLMKube, namespace: str, model: str, priority: str, **spec: object) -> str:
    name = unique(priority)
    llmkube.make_service(
        namespace, name, model, **{"image": LLAMA, "priority": priority, "resources": {"gpu": 1}, **spec}
    )
    return name


def wait_place(llmkube: LLMKube, namespace: str, name: str, place: int) -> Object:
    """Until a service waits at this place of the queue; returns its status."""

    def waits(service: Object) -> bool:
        status = service.get("status", {})
        return (status.get("phase"), status.get("queuePosition")) == ("WaitingForGPU", place)

    what = f"{name} is number {place}"
    status: Object = wait(what, PATIENCE, lambda: llmkube.service(namespace, name), waits)["status"]
    return status


def test_accelerators_go_by_priority_and_waiting_services_report_their_place(
    llmkube: LLMKube, llmkube_namespace: str, node: Node, gateway_url: str
) -> None:
    """Three services, two GPUs; then one is freed. The original's queue knows no priority."""
    model = unique("gpu")
    llmkube.make_model(llmkube_namespace, model, hardware={"accelerator": "cuda", "gpu": {"enabled": True}})
    assert llmkube.wait_model(llmkube_namespace, model)["status"]["acceleratorReady"] is False
    node.give("nvidia.com/gpu", 2)
    wait("the Model has GPUs", PATIENCE, lambda: llmkube.model(llmkube_namespace, model)["status"]["acceleratorReady"])
    high, normal = (make(llmkube, llmkube_namespace, model, priority) for priority in ("high", "normal"))
    for name in (high, normal):
        llmkube.wait_serving(llmkube_namespace, name)
    batch = make(llmkube, llmkube_namespace, model, "batch")
    status = wait_place(llmkube, llmkube_namespace, batch, 1)
    assert (status["schedulingStatus"], status["waitingFor"]) == ("InsufficientGPU", "nvidia.com/gpu: 1")
    assert "Insufficient nvidia.com/gpu" in status["schedulingMessage"]
    service = llmkube.service(llmkube_namespace, batch)
    assert condition(service, "GPUAvailable")["status"] == "False"
    assert condition(service, "Degraded")["status"] == "False"
    assert condition(service, "Available")["reason"] == "WaitingForGPU"

    low = make(llmkube, llmkube_namespace, model, "low")
    assert wait_place(llmkube, llmkube_namespace, low, 1)["effectivePriority"] == 1000
    assert wait_place(llmkube, llmkube_namespace, batch, 2)["effectivePriority"] == 100

    llmkube.delete(SERVICE, llmkube_namespace, normal)
    status = llmkube.wait_serving(llmkube_namespace, low)["status"]
    assert status["queuePosition"] == 0
    assert not {"waitingFor", "schedulingStatus", "schedulingMessage"} & set(status)
    assert condition(llmkube.service(llmkube_namespace, low), "GPUAvailable")["status"] == "True"
    wait_place(llmkube, llmkube_namespace, batch, 1)
    for name in (high, low):
        llmkube.wait_routed(llmkube_namespace, name)
        assert chat(gateway_url, name).status == 200
    [pod] = llmkube.pods(llmkube_namespace, low)
    [server] = pod["spec"]["containers"]
    assert server["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "--n-gpu-layers" in server["args"]

    # One that is more important takes the GPU of the least important one, which queues again, before the batch.
    critical = make(llmkube, llmkube_namespace, model, "critical")
    llmkube.wait_serving(llmkube_namespace, critical)
    wait_place(llmkube, llmkube_namespace, low, 1)
    wait_place(llmkube, llmkube_namespace, batch, 2)

    for name, (value, policy) in CLASSES.items():
        priority_class = llmkube.get("PriorityClass", "", name)
        assert priority_class, name
        assert (priority_class["value"], priority_class.get("preemptionPolicy", "PreemptLowerPriority")) == (
            value,
            policy,
        )


@pytest.mark.parametrize(
    ("resource", "hardware"),
    [
        ("amd.com/gpu", {"accelerator": "rocm", "gpu": {"vendor": "amd", "count": 2}}),
        ("example.com/slice", {"accelerator": "cuda", "gpu": {"count": 2, "resourceName": "example.com/slice"}}),
    ],
    ids=["amd", "own"],
)
def test_every_accelerator_is_waited_for_by_its_own_name(
    llmkube: LLMKube, llmkube_namespace: str, node: Node, resource: str, hardware: Object
) -> None:
    """The original supports only NVIDIA and Intel, requests NVIDIA GPUs if AMD ones are required, and reports 0 if the
    Model sets the number."""
    node.give(resource, 1)
    model = unique("model")
    llmkube.make_model(llmkube_namespace, model, hardware=hardware)
    name = make(llmkube, llmkube_namespace, model, "normal", resources={})
    status = wait_place(llmkube, llmkube_namespace, name, 1)
    assert status["waitingFor"] == f"{resource}: 2"
    [pod] = llmkube.pods(llmkube_namespace, name)
    assert pod["spec"]["tolerations"][0] | {"key": resource} == pod["spec"]["tolerations"][0]
    node.give(resource, 2)
    llmkube.wait_serving(llmkube_namespace, name)
    # A kubelet that does not know of its second one yet turns the first pod away.
    [pod] = [one for one in llmkube.pods(llmkube_namespace, name) if one["status"]["phase"] != "Failed"]
    assert "--tensor-split 1,1" in " ".join(pod["spec"]["containers"][0]["args"])


def test_a_changed_service_does_not_wait_for_the_accelerator_of_its_own_old_pod(
    llmkube: LLMKube, llmkube_namespace: str, node: Node
) -> None:
    node.give("example.com/slice", 1)
    model, hardware = unique("model"), {"accelerator": "cuda", "gpu": {"resourceName": "example.com/slice"}}
    llmkube.make_model(llmkube_namespace, model, hardware=hardware)
    name = make(llmkube, llmkube_namespace, model, "normal")
    llmkube.wait_serving(llmkube_namespace, name)
    [before] = llmkube.pods(llmkube_namespace, name)
    llmkube.change_service(llmkube_namespace, name, contextSize=512)
    llmkube.wait_serving(llmkube_namespace, name)
    [after] = llmkube.pods(llmkube_namespace, name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "--ctx-size 512" in " ".join(after["spec"]["containers"][0]["args"])


def test_a_class_of_the_users_own_is_the_priority_that_is_reported(
    llmkube: LLMKube, llmkube_namespace: str, node: Node
) -> None:
    """The original tells the number of the field that does not count."""
    name, model = unique("own-class"), unique("model")
    node.give("example.com/slice", 0)
    llmkube.create({"kind": "PriorityClass", "metadata": {"name": name}, "value": 4242})
    try:
        hardware = {"accelerator": "cuda", "gpu": {"resourceName": "example.com/slice"}}
        llmkube.make_model(llmkube_namespace, model, hardware=hardware)
        waits = make(llmkube, llmkube_namespace, model, "batch", priorityClassName=name)
        assert wait_place(llmkube, llmkube_namespace, waits, 1)["effectivePriority"] == 4242
        assert [pod["spec"]["priority"] for pod in llmkube.pods(llmkube_namespace, waits)] == [4242]
    finally:
        llmkube.delete("PriorityClass", "", name)
