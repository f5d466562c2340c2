"""Owner references in other namespaces are ignored, in every API: a tenant cannot forge a child."""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.apis.kubeai.types import KIND as KUBEAI_MODEL
from slipway.apis.labels import RESERVED
from slipway.apis.llmkube import MODELS, SERVICES, names
from slipway.apis.llmkube.models import cache
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.artifacts.documents.report import Report, encode_report
from slipway.artifacts.headers.gguf import Gguf
from slipway.controller.inputs.caches import Caches
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.scaled import ScaledResources, Subject
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, POD, SERVICE, Key
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.api import USES, Api
from slipway.serving.contract.settings import Settings

from .conftest import KEY, TOY

ELSEWHERE = ("aaa", "zzz")
"""Namespaces of the attacker: that of the victim lies between them, in every order that a store may have."""
FIELDS = ("labels", "annotations", "ownerReferences")
HEADER = Gguf(file_version=3, tensor_count=21, architecture="llama", name="Tiny")

Operate = Callable[[Api], Awaitable[Reconciler]]


@pytest.fixture
async def operate(client, session, start) -> AsyncIterator[Operate]:
    """Starts a controller for the resources of one API."""
    agents = LoaderClients(client, session)
    agents.sign_with(KEY)

    async def started(api: Api) -> Reconciler:
        settings, metrics = Settings(system_namespace="system", apis={"llmkube": {"revalidateSeconds": 0}}), Metrics()
        caches, recorder = (
            Caches(client, [api], settings, pod_managers=("kubeai",)),
            Recorder(client, "test", metrics=metrics),
        )
        reconciler = Reconciler(api, client, caches, settings, recorder, agents, ScaledResources(), RESERVED)
        controller = reconciler.controller(2, metrics)
        for informer in caches.informers:
            start(informer.run())
        start(controller.run())
        return reconciler

    yield started
    await agents.close()


async def forged(server, cluster, kind, name, **fields: Any) -> list[dict[str, Any]]:
    """Copies a child of the victim to each of the attacker's namespaces, with these fields replaced."""
    copies = []
    for namespace in ELSEWHERE:
        copied = copy.deepcopy(cluster.get(kind, name)) | fields
        copied["metadata"] = {field: copied["metadata"].get(field) for field in FIELDS}
        copies.append(await server.put(cluster.path(kind, name, namespace), **copied))
    return copies


def untouched(server, cluster, kind, created) -> bool:
    """Whether the attacker's objects are as the attacker made them: neither changed nor deleted."""
    return all(server.objects.get(cluster.path(kind, *_key(one))) == one for one in created)


def _key(obj):
    return obj["metadata"]["name"], obj["metadata"]["namespace"]


async def test_a_forged_deployment_elsewhere_does_not_end_the_pods_of_a_model_that_is_not_ready_for_a_moment(
    server, cluster, operate, eventually
):
    await operate(SERVICES)
    spec = {"source": "https://files.example/tiny.gguf"}
    status = {"phase": "Ready", "observedGeneration": 9, "path": "/models/ab/tiny.gguf"}
    place = cluster.path(MODEL, "tiny")
    await server.put(place, kind="Model", apiVersion=MODEL.api_version, spec=spec, status=status)
    manifest = {
        "kind": INFERENCE_SERVICE.kind,
        "apiVersion": INFERENCE_SERVICE.api_version,
        "spec": {"modelRef": "tiny"},
    }
    await server.put(cluster.path(INFERENCE_SERVICE, "a"), **manifest)
    await eventually(lambda: cluster.find(DEPLOYMENT))
    serving = cluster.get(DEPLOYMENT)
    copies = await forged(server, cluster, DEPLOYMENT, "a", spec={**serving["spec"], "replicas": 0})
    loading = {"phase": "Downloading", "observedGeneration": 9}
    await server.put(place, kind="Model", apiVersion=MODEL.api_version, spec=spec, status=loading)
    await eventually(lambda: (cluster.find(INFERENCE_SERVICE) or {}).get("status", {}).get("modelReady") is False)
    assert cluster.get(DEPLOYMENT)["metadata"]["uid"] == serving["metadata"]["uid"]
    assert cluster.get(DEPLOYMENT)["spec"] == serving["spec"]
    assert untouched(server, cluster, DEPLOYMENT, copies)


async def test_labels_of_a_forged_deployment_elsewhere_do_not_come_to_the_pods_of_a_model(
    server, cluster, operate, eventually
):
    await operate(KUBEAI)
    spec = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1", "minReplicas": 1}
    place = cluster.path(KUBEAI_MODEL, "m")
    await server.put(cluster.path(CONFIG_MAP, "slipway-kubeai", "system"), kind="ConfigMap", data={"system.yaml": "{}"})
    await server.put(place, kind="Model", apiVersion=KUBEAI_MODEL.api_version, spec=spec)
    await eventually(lambda: cluster.find(DEPLOYMENT, "model-m"))
    template = cluster.get(DEPLOYMENT, "model-m")["spec"]["template"]["metadata"]
    copied = copy.deepcopy(cluster.get(DEPLOYMENT, "model-m")["spec"])
    copied["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "payments"
    copied["template"]["metadata"]["annotations"]["injected"] = "yes"
    copies = await forged(server, cluster, DEPLOYMENT, "model-m", spec=copied)
    model = cluster.get(KUBEAI_MODEL, "m")
    await server.store(place, {**model, "spec": {**spec, "replicas": 2, "minReplicas": 2}})
    await eventually(lambda: cluster.get(DEPLOYMENT, "model-m")["spec"]["replicas"] == 2)
    assert cluster.get(DEPLOYMENT, "model-m")["spec"]["template"]["metadata"] == template
    assert untouched(server, cluster, DEPLOYMENT, copies)


async def test_a_forged_job_elsewhere_reports_nothing_of_the_weights_in_the_cache(
    server, cluster, operate, eventually, rest
):
    await operate(MODELS)
    spec = {"source": "https://files.example/tiny.gguf", "format": "gguf", "refreshPolicy": "IfNotPresent"}
    await server.put(cluster.path(MODEL, "tiny"), kind="Model", apiVersion=MODEL.api_version, spec=spec)
    await eventually(lambda: cluster.find(JOB, "tiny-download") and _inventory(cluster))
    for job in await forged(server, cluster, JOB, "tiny-download"):
        await _completed(server, cluster, job, "ee" * 32)
    await rest(lambda: len(server.log))
    assert cluster.get(MODEL, "tiny")["status"]["phase"] != "Ready"
    assert not any(record.complete for record in _inventory(cluster).values())
    await _completed(server, cluster, cluster.get(JOB, "tiny-download"), "ab" * 32)
    await eventually(lambda: cluster.get(MODEL, "tiny")["status"]["phase"] == "Ready")
    assert [record.report.sha256 for record in _inventory(cluster).values()] == ["ab" * 32]
    await eventually(lambda: cluster.find(JOB, "tiny-download") is None)
    assert all(cluster.path(JOB, "tiny-download", namespace) in server.objects for namespace in ELSEWHERE)


async def test_requests_for_a_forged_service_elsewhere_do_not_count_for_a_model(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy("a", services=["a"], target=1)
    await eventually(lambda: cluster.find(SERVICE))
    await forged(server, cluster, SERVICE, "a")
    await eventually(lambda: len(parts.caches.store(SERVICE)) == 1 + len(ELSEWHERE))
    scaling = parts.scaled.get(Subject(TOY, Key("models", "a")))
    assert scaling is not None
    assert list(scaling.services) == [Key("models", "a")]


async def test_a_foreign_pod_does_not_keep_the_finalizer_of_a_deleted_model(server, cluster, operate, eventually):
    await operate(MODELS)
    spec = {"source": "https://files.example/tiny.gguf", "format": "gguf", "refreshPolicy": "IfNotPresent"}
    await server.put(cluster.path(MODEL, "tiny"), kind="Model", apiVersion=MODEL.api_version, spec=spec)
    await eventually(lambda: cluster.find(JOB, "tiny-download") and _inventory(cluster))
    await _completed(server, cluster, cluster.get(JOB, "tiny-download"), "ab" * 32)
    await eventually(lambda: cluster.get(MODEL, "tiny").get("status", {}).get("phase") == "Ready")
    annotations = {USES: f"{names.cache_key(spec['source'])}=1"}
    metadata = {"annotations": annotations, "labels": {"app.kubernetes.io/managed-by": "slipway"}}
    await server.put(cluster.path(POD, "foreign"), kind="Pod", metadata=metadata, status={"phase": "Running"})
    model = cluster.get(MODEL, "tiny")
    metadata = {**model["metadata"], "deletionTimestamp": timestamp(time.time())}
    await server.store(cluster.path(MODEL, "tiny"), {**model, "metadata": metadata})
    await eventually(lambda: cluster.find(JOB, "tiny-evict"))
    await _completed(server, cluster, cluster.get(JOB, "tiny-evict"), "")
    await eventually(lambda: not cluster.get(MODEL, "tiny")["metadata"]["finalizers"])


def _inventory(cluster):
    carriers = [obj for obj in cluster.server.objects.values() if obj["kind"] in ("PersistentVolumeClaim", "Model")]
    return {key: record for carrier in carriers for key, record in cache.read_records(carrier).items()}


async def _completed(server, cluster, job, sha256):
    """The Job's pod reports weights of this hash and ends, then the Job. The controller may hear of the Job before it
    hears of the pod."""
    name, namespace = _key(job)
    message = encode_report(Report(file="tiny.gguf", size=5, sha256=sha256, etag="1", gguf=HEADER)).decode()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    container = {"name": "loader", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": message}}}
    metadata = {"labels": job["spec"]["template"]["metadata"]["labels"], "ownerReferences": [owner]}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    await server.put(cluster.path(POD, f"{name}-x", namespace), kind="Pod", metadata=metadata, status=status)
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(time.time())}
    await server.store(cluster.path(JOB, name, namespace), {**job, "status": {"conditions": [condition]}})
