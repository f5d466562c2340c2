"""A Model of KubeAI gives its cache up, against the scripted API server: its weights go, after its pods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.apis.kubeai.types import KIND
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, POD
from slipway.serving.contract.settings import Settings

from .conftest import controlled

NOTE, RECORD = "models.kubeai.org/m", "slipway.inference/cache-profile"
CONFIG = "cacheProfiles: {shared: {sharedFilesystem: {storageClassName: nfs}}}"
SPEC = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1", "minReplicas": 1}
CLAIM = "shared-model-cache-shared"


@pytest.fixture
async def running(client, session, start) -> AsyncIterator[None]:
    """A controller for Models of KubeAI."""
    async with controlled(KUBEAI, client, session, start, Settings(system_namespace="system")):
        yield


async def completed(server, cluster, name):
    job, at = cluster.get(JOB, name), "2026-11-21T09:00:00Z"
    status = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": at}]}
    await server.store(cluster.path(JOB, name), {**job, "status": status})


async def respecified(server, cluster, **spec):
    model = cluster.get(KIND, "m")
    replicas = {"replicas": model["spec"].get("replicas", 1)}
    await server.store(cluster.path(KIND, "m"), {**model, "spec": {**SPEC, **replicas, **spec}})


def mounts(cluster):
    """Names of the claims that pods of the newest template have."""
    volumes = cluster.get(DEPLOYMENT, "model-m")["spec"]["template"]["spec"].get("volumes", [])
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]


async def test_a_cache_profile_that_is_removed_empties_the_cache_after_the_pods_and_fills_it_again_when_it_returns(
    server, cluster, running, eventually
):
    await server.put(
        cluster.path(CONFIG_MAP, "slipway-kubeai", "system"), kind="ConfigMap", data={"system.yaml": CONFIG}
    )
    await server.put(
        cluster.path(KIND, "m"), kind="Model", apiVersion=KIND.api_version, spec={**SPEC, "cacheProfile": "shared"}
    )
    await eventually(lambda: cluster.find(JOB, "load-cache-m"))
    await completed(server, cluster, "load-cache-m")
    await eventually(lambda: cluster.find(DEPLOYMENT, "model-m"))
    assert mounts(cluster) == [CLAIM]
    assert cluster.get(KIND, "m")["metadata"]["annotations"] == {RECORD: "shared"}
    template = cluster.get(DEPLOYMENT, "model-m")["spec"]["template"]["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "model-m-1", "uid": "1", "controller": True}
    pod = {
        "annotations": template["annotations"],
        "labels": {**template["labels"], "pod-template-hash": "1"},
        "ownerReferences": [owner],
    }
    await server.put(cluster.path(POD, "model-m-1-x"), kind="Pod", metadata=pod, status={"phase": "Running"})

    await respecified(server, cluster)
    await eventually(lambda: mounts(cluster) == [])
    assert cluster.find(JOB, "evict-cache-m") is None
    assert NOTE in cluster.get(PERSISTENT_VOLUME_CLAIM, CLAIM)["metadata"]["annotations"]

    await server.remove(cluster.path(POD, "model-m-1-x"))
    await eventually(lambda: cluster.find(JOB, "evict-cache-m"))
    assert NOTE not in cluster.get(PERSISTENT_VOLUME_CLAIM, CLAIM)["metadata"]["annotations"]

    await respecified(server, cluster, cacheProfile="shared", url="hf://acme/other")
    await eventually(lambda: "being removed" in cluster.get(KIND, "m")["status"].get("cache", {}).get("message", ""))
    assert cluster.find(JOB, "load-cache-m") is None
    await completed(server, cluster, "evict-cache-m")
    await eventually(lambda: cluster.find(JOB, "load-cache-m"))
    await eventually(lambda: cluster.find(JOB, "evict-cache-m") is None)
    await completed(server, cluster, "load-cache-m")
    await eventually(lambda: mounts(cluster) == [CLAIM])

    await respecified(server, cluster, url="hf://acme/other")
    await eventually(lambda: cluster.find(JOB, "evict-cache-m"))
    await completed(server, cluster, "evict-cache-m")
    await eventually(lambda: cluster.find(JOB, "evict-cache-m") is None)
    await eventually(lambda: RECORD not in cluster.get(KIND, "m")["metadata"]["annotations"])
