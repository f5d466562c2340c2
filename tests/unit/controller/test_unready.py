"""What the controller has the gateway say of models that nothing answers for, against the scripted API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.kube.objects import DEPLOYMENT, SERVICE
from slipway.serving.contract.settings import Settings

from .conftest import apply_kubeai_model, controlled

STAND_IN, OWN = "refused-kubeai-a", "model-a"


@pytest.fixture
async def running(client, session, start) -> AsyncIterator[None]:
    async with controlled(KUBEAI, client, session, start, Settings()):
        yield


def unready(cluster):
    service = cluster.find(SERVICE, OWN) or {"metadata": {}}
    text = (service["metadata"].get("annotations") or {}).get("slipway.inference/unready")
    return json.loads(text) if text else None


async def test_a_rejected_model_has_a_service_with_the_reason_until_it_is_fixed(server, cluster, running, eventually):
    await apply_kubeai_model(server, cluster, resourceProfile="none:1")
    await eventually(lambda: cluster.find(SERVICE, STAND_IN))
    route = json.loads(cluster.get(SERVICE, STAND_IN)["metadata"]["annotations"]["slipway.inference/route"])
    assert route["refusal"] == {"reason": "UnknownProfile", "models": ["a", "models/a"]}
    assert route["internal"] is True
    await apply_kubeai_model(server, cluster)
    await eventually(lambda: cluster.find(SERVICE, OWN) and cluster.find(SERVICE, STAND_IN) is None)


async def test_the_reason_of_a_failure_lies_on_the_service_until_it_is_over(server, cluster, running, eventually, rest):
    await apply_kubeai_model(server, cluster)
    await eventually(lambda: cluster.find(SERVICE, OWN) and cluster.find(DEPLOYMENT, OWN))
    rejected = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": "exceeded quota",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await server.store(
        cluster.path(DEPLOYMENT, OWN), {**cluster.get(DEPLOYMENT, OWN), "status": {"conditions": [rejected]}}
    )
    await eventually(lambda: unready(cluster) == {"reason": "PodsRejected", "final": True})
    await rest(lambda: len(server.writes))
    await server.store(
        cluster.path(DEPLOYMENT, OWN),
        {**cluster.get(DEPLOYMENT, OWN), "status": {"observedGeneration": 99, "replicas": 1, "readyReplicas": 1}},
    )
    await eventually(lambda: unready(cluster) is None)


async def test_a_model_that_was_served_before_its_rejection_keeps_its_service(server, cluster, running, eventually):
    await apply_kubeai_model(server, cluster)
    await eventually(lambda: cluster.find(SERVICE, OWN))
    await apply_kubeai_model(server, cluster, resourceProfile="none:1")
    await eventually(lambda: unready(cluster) == {"reason": "UnknownProfile", "final": True})
    assert cluster.find(SERVICE, STAND_IN) is None
