"""InferenceServices of LLMKube against the scripted API server: pods come with their Model, and more goes with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slipway.apis.llmkube import SERVICES
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.service import KIND
from slipway.kube.objects import (
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    SERVICE,
)
from slipway.serving.contract.settings import Settings

from .conftest import controlled

READY = {"phase": "Ready", "observedGeneration": 9, "path": "/models/ab/tiny.gguf"}


@pytest.fixture
async def running(client, session, start) -> AsyncIterator[None]:
    """A controller for InferenceServices of LLMKube."""
    async with controlled(SERVICES, client, session, start, Settings()):
        yield


async def model(server, cluster, status=None, **spec):
    spec = {"source": "https://files.example/tiny.gguf"} | spec
    path = cluster.path(MODEL, "tiny")
    await server.put(path, kind="Model", apiVersion=MODEL.api_version, spec=spec, status=status or {})


async def service(server, cluster, name="a", **spec):
    spec = {"modelRef": "tiny"} | spec
    resource = cluster.find(KIND, name)
    if resource is not None:
        await server.store(cluster.path(KIND, name), {**resource, "spec": spec})
    else:
        await server.put(cluster.path(KIND, name), kind=KIND.kind, apiVersion=KIND.api_version, spec=spec)


def status_field(cluster, field="phase", name="a"):
    return (cluster.find(KIND, name) or {}).get("status", {}).get(field)


def reason(cluster, kind):
    conditions = status_field(cluster, "conditions") or []
    return next((condition["reason"] for condition in conditions if condition["type"] == kind), None)


async def test_pods_come_when_the_model_is_ready_and_stay_when_it_is_not_any_more(server, cluster, running, eventually):
    await service(server, cluster)
    await eventually(lambda: reason(cluster, "Accepted") == "ModelNotFound")
    assert status_field(cluster) == "Failed"
    await model(server, cluster, {"phase": "Downloading", "observedGeneration": 9})
    await eventually(lambda: status_field(cluster) == "Pending")
    assert cluster.find(SERVICE) is not None
    assert cluster.find(DEPLOYMENT) is None
    assert PRIORITY_CLASS.path(name="llmkube-normal") in server.objects
    await model(server, cluster, READY)
    await eventually(lambda: cluster.find(DEPLOYMENT))
    deployment = cluster.get(DEPLOYMENT)
    await server.store(cluster.path(DEPLOYMENT, "a"), {**deployment, "status": {"replicas": 1, "readyReplicas": 1}})
    await eventually(lambda: status_field(cluster) == "Ready")
    await model(server, cluster, {"phase": "Downloading", "observedGeneration": 9})
    await eventually(lambda: status_field(cluster, "modelReady") is False)
    assert status_field(cluster) == "Ready"
    assert cluster.get(DEPLOYMENT)["spec"] == deployment["spec"]


async def test_a_suspended_service_keeps_its_spec_and_loses_its_replicas_and_its_autoscaler(
    server, cluster, running, eventually
):
    fields = {"replicas": 2, "autoscaling": {"maxReplicas": 4}, "evictionProtection": True}
    await model(server, cluster, READY)
    await service(server, cluster, **fields)
    await eventually(lambda: cluster.find(HORIZONTAL_POD_AUTOSCALER) and cluster.find(POD_DISRUPTION_BUDGET))
    await eventually(lambda: cluster.find(DEPLOYMENT))
    assert cluster.get(DEPLOYMENT)["spec"]["replicas"] == 2
    await service(server, cluster, **fields, suspend=True)
    await eventually(lambda: status_field(cluster) == "Suspended")
    await eventually(lambda: cluster.find(HORIZONTAL_POD_AUTOSCALER) is None)
    assert cluster.get(DEPLOYMENT)["spec"]["replicas"] == 0
    assert cluster.get(KIND)["spec"]["replicas"] == 2
    await service(server, cluster, **fields)
    await eventually(lambda: cluster.find(HORIZONTAL_POD_AUTOSCALER))
    await eventually(lambda: cluster.get(DEPLOYMENT)["spec"]["replicas"] == 2)


async def test_a_class_that_is_there_stays_as_it_is(server, cluster, running, eventually):
    path = PRIORITY_CLASS.path(name="llmkube-high")
    await server.put(path, kind="PriorityClass", apiVersion=PRIORITY_CLASS.api_version, value=5)
    await model(server, cluster, READY)
    await service(server, cluster, priority="high")
    await eventually(lambda: cluster.find(DEPLOYMENT))
    assert server.objects[path]["value"] == 5


async def test_nothing_is_written_again_that_is_as_it_was(server, cluster, running, eventually):
    await model(server, cluster, READY)
    await service(server, cluster, autoscaling={"maxReplicas": 4})
    await eventually(lambda: cluster.find(DEPLOYMENT) and status_field(cluster) == "Creating")
    before = [one for one in server.log if one.method in ("PATCH", "POST", "PUT")]
    await model(server, cluster, READY, quantization="Q8_0")
    await eventually(lambda: status_field(cluster) == "Creating")
    after = [one for one in server.log if one.method in ("PATCH", "POST", "PUT")]
    assert after == before


async def pod(server, cluster, name, scheduled):
    """Of a service: its one pod, which has a node or waits for a GPU."""
    details = {} if scheduled else {"reason": "Unschedulable", "message": "0/1 nodes: 1 Insufficient nvidia.com/gpu."}
    condition = {"type": "PodScheduled", "status": str(scheduled), "lastTransitionTime": "2026-11-21T09:00:00Z"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-abc", "uid": "r", "controller": True}
    made_of = {**cluster.labels(DEPLOYMENT, name), "pod-template-hash": "abc"}
    metadata = {"labels": made_of, "ownerReferences": [owner]}
    status = {"phase": "Pending", "conditions": [condition | details]}
    await server.put(cluster.path(POD, f"{name}-abc-1"), kind="Pod", metadata=metadata, status=status)


async def test_a_service_that_waits_for_an_accelerator_moves_up_when_one_before_it_has_got_it(
    server, cluster, running, eventually, rest
):
    """The other service's change triggers it; nothing is rechecked on a timer."""
    await model(server, cluster, READY, hardware={"gpu": {"count": 1}})
    for name in "abc":
        await service(server, cluster, name)
        await eventually(lambda name=name: cluster.find(DEPLOYMENT, name))
        await pod(server, cluster, name, scheduled=False)
    await eventually(lambda: [status_field(cluster, "queuePosition", name) for name in "abc"] == [1, 2, 3])
    await rest(lambda: len(server.writes))
    assert [status_field(cluster, "waitingFor", name) for name in "abc"] == ["nvidia.com/gpu: 1"] * 3
    written = len(server.writes)
    await pod(server, cluster, "a", scheduled=True)
    await eventually(lambda: [status_field(cluster, "queuePosition", name) for name in "abc"] == [0, 1, 2])
    await server.remove(cluster.path(KIND, "b"))
    await eventually(lambda: status_field(cluster, "queuePosition", "c") == 1)
    await rest(lambda: len(server.writes))
    assert len([one for one in server.writes[written:] if one.path.endswith("/status")]) == 4
