"""The source of a sleeping Model of KubeAI is checked, against the scripted API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.apis.kubeai.types import KIND
from slipway.kube.conditions import find
from slipway.kube.objects import DEPLOYMENT, JOB, POD
from slipway.serving.settings import Settings
from slipway.weights.checks import RECORD

from .conftest import controlled

SPEC = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1"}
CHECK, SINCE = "check-source-m", "2026-11-21T09:00:00Z"
MISSING = "huggingface.co has no repository acme/tiny"


@pytest.fixture
async def running(client, session, start) -> AsyncIterator[None]:
    """A controller for Models of KubeAI."""
    async with controlled(KUBEAI, client, session, start, Settings(system_namespace="system")):
        yield


async def created(server, cluster):
    await server.put(cluster.path(KIND, "m"), kind="Model", apiVersion=KIND.api_version, spec=SPEC)


def status_of(cluster, type_):
    """Status and reason of a condition of the Model."""
    condition = find(cluster.get(KIND, "m"), type_) or {}
    return condition.get("status"), condition.get("reason")


async def test_a_wrong_url_is_reported_and_a_new_one_is_checked_again(server, cluster, running, eventually):
    await created(server, cluster)
    await eventually(lambda: cluster.find(JOB, CHECK))
    await eventually(lambda: cluster.find(DEPLOYMENT, "model-m"))
    job = cluster.get(JOB, CHECK)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": CHECK, "uid": job["metadata"]["uid"], "controller": True}
    ended = {"name": "check", "state": {"terminated": {"exitCode": 3, "message": MISSING}}}
    await server.put(
        cluster.path(POD, "check"),
        kind="Pod",
        metadata={"ownerReferences": [owner], "labels": job["spec"]["template"]["metadata"]["labels"]},
        status={"phase": "Failed", "containerStatuses": [ended]},
    )
    failure = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": SINCE}
    await server.store(cluster.path(JOB, CHECK), {**job, "status": {"conditions": [failure]}})

    await eventually(lambda: status_of(cluster, "SourceFound") == ("False", "SourceNotFound"))
    assert status_of(cluster, "Ready") == ("False", "SourceNotFound")
    assert status_of(cluster, "Accepted") == ("True", "Valid")

    model = cluster.get(KIND, "m")
    other = {**model, "spec": {**model["spec"], "url": "hf://acme/other"}}
    await server.store(cluster.path(KIND, "m"), other)
    await eventually(lambda: "hf://acme/other" in str(cluster.find(JOB, CHECK)))


async def test_a_check_that_a_policy_denies_keeps_nothing_from_the_model(server, cluster, running, script, eventually):
    server.fault("PATCH", cluster.path(JOB, CHECK), script.refuse(403, "Forbidden", "denied by policy"), times=99)
    await created(server, cluster)
    await eventually(lambda: status_of(cluster, "SourceFound") == ("Unknown", "SourceNotChecked"))
    assert cluster.find(DEPLOYMENT, "model-m")
    assert cluster.find(JOB, CHECK) is None
    assert status_of(cluster, "Accepted") == ("True", "Valid")
    assert RECORD not in (cluster.get(KIND, "m")["metadata"].get("annotations") or {})
