"""Deliveries at a scripted API server: what is asked for and written, in which order, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from slipway.apis.deckhouse import names, types
from slipway.apis.deckhouse.delivery import users
from slipway.apis.deckhouse.delivery.workloads import DELIVERY, watches
from slipway.controller.inputs.caches import Caches
from slipway.controller.reconciling import delivery as delivery_module
from slipway.controller.reconciling.delivery import Deliveries
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    CRON_JOB,
    DEPLOYMENT,
    EVENT,
    JOB,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    STATEFUL_SET,
    Kind,
    Object,
)
from slipway.kube.writes import write_only
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.delivery import WORKLOADS, template_of
from slipway.serving.contract.settings import Settings

SETTINGS = Settings(apis={"deckhouse": {"registry": "registry:5000"}}, system_namespace="system")
DIGEST = f"sha256:{'a' * 64}"
GATES = [{"name": names.GATE}]
READY = {"phase": "Ready", "artifact": {"digest": DIGEST, "sizeBytes": 1 << 20}}


class Models:
    """As much of an API as caches need."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource

    def watches(self, settings: Settings) -> Any:
        return (*users.watches(self.resource.kind), *watches(settings))


class Cluster:
    """Short words for what tests do to the server."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def model(self, name: str = "m", **fields: Any) -> None:
        await self.server.put(names.MODEL.path("models", name), kind="Model", **({"status": READY} | fields))

    async def workload(
        self,
        kind: Kind = DEPLOYMENT,
        namespace: str = "models",
        gated: bool = False,
        replicas: int = 0,
        **requested: str,
    ) -> str:
        spec = {"containers": [{"name": "a", "image": "i"}], **({"schedulingGates": GATES} if gated else {})}
        template = {"metadata": {"labels": {"app": "w"}}, "spec": spec}
        annotations = {f"{names.GROUP}/{one}": text for one, text in requested.items()}
        workload_spec = {"selector": {"matchLabels": {"app": "w"}}, "template": template}
        if kind == CRON_JOB:
            workload_spec = {"jobTemplate": {"spec": {"template": template}}}
        path = kind.path(namespace, "w")
        status = {"observedGeneration": 99, "replicas": replicas}
        metadata = {"annotations": annotations}
        await self.server.put(
            path, kind=kind.kind, apiVersion=kind.api_version, metadata=metadata, spec=workload_spec, status=status
        )
        return path

    def of(self, kind: Kind) -> list[Object]:
        return [obj for path, obj in self.server.objects.items() if path.startswith(f"{kind.path('models')}/")]

    async def end_jobs(self) -> None:
        for job in self.of(JOB):
            ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-23T00:00:00Z"}
            await self.server.store(
                JOB.path("models", job["metadata"]["name"]), {**job, "status": {"conditions": [ended]}}
            )

    def events(self) -> list[str]:
        return [one["reason"] for one in self.of(EVENT)]

    def blocked(self, path: str) -> str | None:
        annotations = self.server.objects[path]["metadata"].get("annotations") or {}
        reason: str | None = annotations.get(names.BLOCKED_REASON)
        return reason

    def delivered(self, path: str) -> bool:
        kind = next(one for one in WORKLOADS if f"/{one.plural}/" in path)
        spec = template_of(kind, self.server.objects[path])["spec"]
        return any(one["name"] == "AI_MODELS_MODELS" for one in spec["containers"][0].get("env", ()))


@pytest.fixture
def cluster(server) -> Cluster:
    return Cluster(server)


@pytest.fixture
async def deliver(client, start, cluster, monkeypatch) -> Callable[..., Any]:
    """Starts deliveries for these namespaces. Jobs complete when they are created unless ``working``."""
    monkeypatch.setattr(delivery_module, "GATED_SECONDS", 0.5)

    async def started(*namespaces: str, working: bool = False, settings: Settings = SETTINGS) -> Deliveries:
        metrics, apis = Metrics(), [Models(types.MODEL), Models(types.CLUSTER_MODEL)]
        caches = Caches(client, apis, settings, namespaces=namespaces)
        recorder = Recorder(client, "test", metrics=metrics)
        deliveries = Deliveries(DELIVERY, client, caches, settings, recorder, namespaces)
        for informer in (*caches.informers, *deliveries.informers):
            start(informer.run())
        for controller in deliveries.controllers(2, metrics):
            start(controller.run())
        start(recorder.run())

        async def ending() -> None:
            while not working:
                await cluster.end_jobs_once()
                await asyncio.sleep(0.02)

        start(ending())
        return deliveries

    ended: set[str] = set()

    async def end_jobs_once() -> None:
        fresh = [job for job in cluster.of(JOB) if job["metadata"]["uid"] not in ended]
        ended.update(job["metadata"]["uid"] for job in fresh)
        if fresh:
            await cluster.end_jobs()

    cluster.end_jobs_once = end_jobs_once
    return started


@pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.kind)
async def test_a_workload_gets_its_model_and_then_there_is_rest(
    server, cluster, deliver, eventually, rest, kind: Kind
) -> None:
    await cluster.model()
    path = await cluster.workload(kind, model="m")
    await deliver()
    await eventually(lambda: cluster.delivered(path))
    await eventually(lambda: not cluster.of(JOB))
    (claim,) = cluster.of(PERSISTENT_VOLUME_CLAIM)
    assert [one["name"] for one in claim["metadata"]["ownerReferences"]] == ["w"]
    assert cluster.blocked(path) is None
    await rest(lambda: len(server.writes))
    assert "ModelsDelivered" in cluster.events()


async def test_a_pull_secret_that_another_writer_deletes_or_changes_is_written_again(
    server, cluster, deliver, eventually, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(write_only, "REWRITE_SECONDS", 0.1)
    (tmp_path / "hmac").write_bytes(bytes(32))
    own = {"delivery": "ImageVolume", "nodeRegistry": "node:5000", "image": True, "keyFile": str(tmp_path / "hmac")}
    annotations = {names.IMAGE_DIGEST: f"sha256:{'b' * 64}"}
    await server.put(NAMESPACE.path("", "models"), metadata={"name": "models"})
    await cluster.model(metadata={"annotations": annotations})
    path = await cluster.workload(model="m")
    await deliver(settings=Settings(apis={"deckhouse": {"registry": "registry:5000"} | own}, system_namespace="system"))
    await eventually(lambda: cluster.of(SECRET))
    (secret,) = cluster.of(SECRET)
    place = SECRET.path("models", secret["metadata"]["name"])
    await server.remove(place)
    await eventually(lambda: server.objects.get(place, {}).get("data") == secret["data"])
    await server.store(place, {**server.objects[place], "data": {}})
    await eventually(lambda: server.objects[place]["data"] == secret["data"])
    assert {one.method for one in server.log if "/secrets" in one.path} == {"POST", "PUT"}
    assert cluster.blocked(path) is None


async def test_workloads_that_ask_for_nothing_cost_no_request_and_no_memory(
    server, cluster, deliver, eventually, rest
) -> None:
    await cluster.workload(other="x")
    await cluster.workload(STATEFUL_SET)
    deliveries = await deliver()
    await eventually(lambda: len(server.watches) >= 8)
    await rest(lambda: len(server.log))
    assert server.writes == []
    assert server.requests("GET", "/w") == []
    assert all("as=PartialObjectMetadata" in one.accept for one in server.log if one.path.endswith("deployments"))
    assert len(deliveries._deliverers[0]._workloads.store) == 0


async def test_a_changed_status_enqueues_nothing(server, cluster, deliver, eventually, rest) -> None:
    await cluster.model()
    path = await cluster.workload(model="m")
    await deliver()
    await eventually(lambda: cluster.delivered(path))
    await rest(lambda: len(server.log))
    read = len(server.requests("GET", path))
    workload = server.objects[path]
    await server.store(path, {**workload, "status": {**workload["status"], "replicas": 1, "updatedReplicas": 1}})
    await cluster.model("other")
    await rest(lambda: len(server.log))
    assert len(server.requests("GET", path)) == read


async def test_a_model_that_becomes_ready_is_delivered(server, cluster, deliver, eventually) -> None:
    path = await cluster.workload(model="m")
    await deliver()
    await eventually(lambda: cluster.blocked(path) == "ModelNotFound")
    await cluster.model(status={"phase": "Publishing"})
    await eventually(lambda: cluster.blocked(path) == "ModelNotReady")
    await cluster.model()
    await eventually(lambda: cluster.delivered(path) and cluster.blocked(path) is None)
    assert {"ModelNotFound", "ModelNotReady"} <= {*cluster.events()}


async def test_without_the_annotation_all_goes_again(server, cluster, deliver, eventually, rest) -> None:
    await cluster.model()
    path = await cluster.workload(model="m")
    before = server.objects[path]["spec"]
    await deliver()
    await eventually(lambda: cluster.delivered(path))
    workload = server.objects[path]
    annotations = {name: text for name, text in workload["metadata"]["annotations"].items() if name != names.USES_MODEL}
    await server.store(path, {**workload, "metadata": {**workload["metadata"], "annotations": annotations}})
    await eventually(lambda: server.objects[path]["spec"] == before and not cluster.of(PERSISTENT_VOLUME_CLAIM))
    assert not server.objects[path]["metadata"].get("annotations")


async def test_the_next_process_continues_interrupted_work(server, cluster, deliver, eventually) -> None:
    """The annotation is removed and the pods are replaced while no controller runs, so that only the claim shows it."""
    await cluster.model()
    path = await cluster.workload()
    uid = server.objects[path]["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": uid}
    metadata = {"labels": {DELIVERY.label: "true"}, "ownerReferences": [owner]}
    await server.put(PERSISTENT_VOLUME_CLAIM.path("models", "old"), kind="PersistentVolumeClaim", metadata=metadata)
    await deliver()
    await eventually(lambda: not cluster.of(PERSISTENT_VOLUME_CLAIM))


async def test_a_share_is_given_up_and_others_keep_theirs(server, cluster, deliver, eventually) -> None:
    path = await cluster.workload()
    uid = server.objects[path]["metadata"]["uid"]
    owners = [
        {"apiVersion": "apps/v1", "kind": kind, "name": "w", "uid": one}
        for kind, one in (("Deployment", uid), ("StatefulSet", "other"))
    ]
    metadata = {"labels": {DELIVERY.label: "true"}, "ownerReferences": owners}
    await server.put(PERSISTENT_VOLUME_CLAIM.path("models", "old"), kind="PersistentVolumeClaim", metadata=metadata)
    await deliver()
    await eventually(lambda: cluster.of(PERSISTENT_VOLUME_CLAIM)[0]["metadata"]["ownerReferences"] == owners[1:])


async def test_a_concurrent_write_is_not_reverted(server, cluster, deliver, eventually, rest, script) -> None:
    await cluster.model()
    path = await cluster.workload(model="m")
    await deliver(working=True)
    await eventually(lambda: cluster.of(JOB))
    await rest(lambda: len(server.writes))

    async def meanwhile(request: Any) -> Any:
        workload = server.objects[path]
        await server.store(path, {**workload, "spec": {**workload["spec"], "replicas": 5}})
        answers.append(await server.patch(request, await request.json()))
        return answers[-1]

    answers: list[Any] = []
    server.fault("PATCH", path, meanwhile)
    await cluster.end_jobs()
    await eventually(lambda: cluster.delivered(path))
    assert [answer.status for answer in answers] == [409]
    assert server.objects[path]["spec"]["replicas"] == 5


async def test_rejections_by_the_server_are_shown_on_the_workload(server, cluster, deliver, eventually, script) -> None:
    await cluster.model()
    path = await cluster.workload(model="m")
    server.fault("POST", "persistentvolumeclaims", script.refuse(403, "Forbidden", "exceeded quota: storage"), 100)
    await deliver()
    await eventually(lambda: cluster.blocked(path) == "Forbidden")
    assert server.objects[path]["metadata"]["annotations"][names.BLOCKED_MESSAGE] == "exceeded quota: storage"
    assert not cluster.delivered(path)


async def test_a_rejection_with_a_different_text_each_time_is_not_retried_at_once(
    server, cluster, deliver, eventually, rest, script
) -> None:
    async def refused(request: Any) -> Any:
        messages.append(f"denied, request {len(messages)}")
        return await script.refuse(403, "Forbidden", messages[-1])(request)

    messages: list[str] = []
    await cluster.model()
    path = await cluster.workload(model="m")
    server.fault("POST", "persistentvolumeclaims", refused, 100)
    await deliver()
    await eventually(lambda: cluster.blocked(path) == "Forbidden")
    await rest(lambda: len(server.log))
    assert len(messages) <= 2


async def test_only_chosen_namespaces_are_delivered_to(server, cluster, deliver, eventually, rest) -> None:
    await cluster.model()
    await server.put(names.MODEL.path("others", "m"), kind="Model", status=READY)
    path, other = await cluster.workload(model="m"), await cluster.workload(namespace="others", model="m")
    await deliver("models")
    await eventually(lambda: cluster.delivered(path))
    await rest(lambda: len(server.writes))
    assert not cluster.delivered(other)
    assert not [one for one in server.log if "/namespaces/others/" in one.path]


# The gate


def owned_by(kind: Kind, path: str, server: Any, **fields: Any) -> Object:
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": "w", "controller": True}
    return {"metadata": {"ownerReferences": [{**owner, "uid": server.objects[path]["metadata"]["uid"]}], **fields}}


async def test_the_gate_opens_together_with_the_delivery(server, cluster, deliver, eventually) -> None:
    path = await cluster.workload(gated=True, model="m")
    await deliver()
    await eventually(lambda: cluster.blocked(path) == "ModelNotFound")
    assert template_of(DEPLOYMENT, server.objects[path])["spec"]["schedulingGates"] == GATES
    versions = len(server.history)
    await cluster.model()
    await eventually(lambda: cluster.delivered(path))
    specs = [template_of(DEPLOYMENT, obj)["spec"] for _v, _t, one, obj in server.history[versions:] if one == path]
    assert {("env" in spec["containers"][0], "schedulingGates" in spec) for spec in specs} <= {
        (False, True),
        (True, False),
    }


async def test_gated_pods_of_a_stateful_set_are_deleted_and_no_others(
    server, cluster, deliver, eventually, rest
) -> None:
    """The StatefulSet waits for them, though its template has no gate any more."""
    path = await cluster.workload(STATEFUL_SET, gated=True, replicas=1, model="m")
    labelled = {"labels": {"app": "w"}}
    pods = {
        "gated": {**owned_by(STATEFUL_SET, path, server, **labelled), "spec": {"schedulingGates": GATES}},
        "running": {**owned_by(STATEFUL_SET, path, server, **labelled), "spec": {}},
        "others": {"metadata": labelled, "spec": {"schedulingGates": GATES}},
    }
    for name, pod in pods.items():
        await server.put(POD.path("models", name), **pod)
    await deliver()
    await eventually(lambda: cluster.blocked(path) == "ModelNotFound")
    await rest(lambda: len(server.writes))
    assert len(cluster.of(POD)) == 3
    await cluster.model()
    await eventually(lambda: cluster.delivered(path) and len(cluster.of(POD)) == 2)
    await rest(lambda: len(server.writes))
    await server.put(POD.path("models", "late"), **pods["gated"])
    await eventually(lambda: {pod["metadata"]["name"] for pod in cluster.of(POD)} == {"running", "others"})


async def test_a_rollout_that_does_not_end_is_looked_at_ever_more_seldom(
    server, cluster, deliver, eventually, rest, monkeypatch
) -> None:
    """Pods stay, as with a StatefulSet with the strategy OnDelete."""
    await cluster.model()
    path = await cluster.workload(STATEFUL_SET, model="m")
    workload = server.objects[path]
    await server.store(path, {**workload, "status": {"observedGeneration": 99, "replicas": 1, "updatedReplicas": 0}})
    await deliver()
    monkeypatch.setattr(delivery_module, "GATED_SECONDS", 0.05)
    await eventually(lambda: cluster.delivered(path))
    await eventually(lambda: len(server.requests("GET", "/pods")) > 5)
    await rest(lambda: len(server.log))


async def test_gated_jobs_of_a_cron_job_are_deleted(server, cluster, deliver, eventually) -> None:
    path = await cluster.workload(CRON_JOB, gated=True, model="m")
    for name, gates in (("early", GATES), ("fine", [])):
        template = {"spec": {"schedulingGates": gates}}
        await server.put(JOB.path("models", name), **owned_by(CRON_JOB, path, server), spec={"template": template})
    await cluster.model()
    await deliver()
    await eventually(lambda: cluster.delivered(path))
    await eventually(lambda: [job["metadata"]["name"] for job in cluster.of(JOB)] == ["fine"])
