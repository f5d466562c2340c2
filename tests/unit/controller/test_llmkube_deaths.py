"""A Model of LLMKube and its service live well though the controller dies before or after any of its writes."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from slipway.apis.llmkube import MODELS, SERVICES, names
from slipway.apis.llmkube.models import cache
from slipway.apis.llmkube.types.model import KIND
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.artifacts.documents.report import Report, encode_report
from slipway.kube.objects import DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, POD
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.settings import Settings

from .deaths import Death, Process, assert_only_writes, moments

SOURCE, OTHER = "https://files.example/tiny.gguf", "https://files.example/other.gguf"
SETTINGS = Settings(system_namespace="system", apis={"llmkube": {"revalidateSeconds": 0}})
WRITES = {
    "POST priorityclasses": 1,
    "POST persistentvolumeclaims": 1,
    "PATCH models": 9,
    "PATCH models/status": 7,
    "PATCH inferenceservices/status": 8,
    "PATCH services": 2,
    "PATCH deployments": 2,
    "PATCH poddisruptionbudgets": 1,
    "PATCH jobs": 4,
    "DELETE jobs": 3,
}


class Node:
    """What Kubernetes does: Jobs end, objects without finalizers go, and with them what they own."""

    def __init__(self, server: Any, cluster: Any) -> None:
        self.server, self.cluster = server, cluster
        self.disk: set[str] = set()
        self.downloads: list[str] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            uids = {obj["metadata"]["uid"] for obj in self.server.objects.values()}
            for path, obj in list(self.server.objects.items()):
                metadata = obj["metadata"]
                owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
                if owners and not uids & owners and path in self.server.objects:
                    await self.server.remove(path)
                if obj.get("kind") == "Job" and "status" not in obj:
                    await self._ended(path, obj)
                gone = "deletionTimestamp" in metadata and not metadata.get("finalizers")
                if gone and path in self.server.objects:
                    await self._collected(path, metadata["uid"])

    async def _ended(self, path: str, job: dict[str, Any]) -> None:
        words = job["spec"]["template"]["spec"]["containers"][0]["args"]
        if words[1] == "evict":
            self.disk.discard(words[2].rpartition("/")[2])
        else:
            self.disk.add(words[3].rpartition("/")[2])
            self.downloads.append(words[2])
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        message = encode_report(Report(file="tiny.gguf", size=5, etag="1")).decode() if words[1] == "stage" else ""
        container = {"name": "loader", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": message}}}
        metadata = {"labels": job["spec"]["template"]["metadata"]["labels"], "ownerReferences": [owner]}
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        await self.server.put(self.cluster.path(POD, f"{name}-{uid}"), kind="Pod", metadata=metadata, status=status)
        over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(time.time())}
        if path in self.server.objects:
            await self.server.store(path, {**self.server.objects[path], "status": {"conditions": [over]}})

    async def _collected(self, path: str, uid: str) -> None:
        await self.server.remove(path)
        for other, obj in list(self.server.objects.items()):
            if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ()):
                await self._collected(other, obj["metadata"]["uid"])


def records(server: Any) -> dict[str, cache.Record]:
    carriers = [obj for obj in server.objects.values() if obj["kind"] in ("PersistentVolumeClaim", "Model")]
    return {key: record for carrier in carriers for key, record in cache.read_records(carrier).items()}


async def life(server: Any, cluster: Any, node: Node, eventually: Any) -> None:
    """A service and its Model come, the Model turns to another source, and both go."""
    await server.put(
        cluster.path(INFERENCE_SERVICE, "chat"),
        kind="InferenceService",
        apiVersion=INFERENCE_SERVICE.api_version,
        spec={"modelRef": "tiny"},
    )
    spec = {"source": SOURCE, "format": "gguf", "refreshPolicy": "IfNotPresent"}
    await server.put(cluster.path(KIND, "tiny"), kind="Model", apiVersion=KIND.api_version, spec=spec)
    await eventually(lambda: serves(cluster, SOURCE), 60)
    assert node.disk == {names.cache_key(SOURCE)}

    model = cluster.get(KIND, "tiny")
    await server.store(cluster.path(KIND, "tiny"), {**model, "spec": spec | {"source": OTHER}})
    await eventually(lambda: serves(cluster, OTHER) and node.disk == {names.cache_key(OTHER)}, 60)
    await eventually(lambda: set(records(server)) == {names.cache_key(OTHER)}, 60)

    for kind, name in ((INFERENCE_SERVICE, "chat"), (KIND, "tiny")):
        obj = cluster.get(kind, name)
        metadata = {**obj["metadata"], "deletionTimestamp": timestamp(time.time())}
        await server.store(cluster.path(kind, name), {**obj, "metadata": metadata})
    await eventually(lambda: cluster.find(KIND, "tiny") is None, 60)
    assert (node.disk, records(server)) == (set(), {})
    kept = {"PersistentVolumeClaim", "PriorityClass"}
    await eventually(lambda: {obj["kind"] for obj in server.objects.values()} - {"Event"} <= kept, 60)
    assert cluster.find(PERSISTENT_VOLUME_CLAIM, names.CLAIM) is not None


def serves(cluster: Any, source: str) -> bool:
    """Whether the Model is ready with this source and no Job is left, and the service has pods of it."""
    status = (cluster.find(KIND, "tiny") or {}).get("status", {})
    deployment = cluster.find(DEPLOYMENT, "chat")
    path, jobs = f"/models/{names.cache_key(source)}/", [JOB.path("models", f"tiny-{one}") for one in ("download",)]
    ready = status.get("phase") == "Ready" and status.get("path", "").startswith(path)
    path_argument = deployment is not None and path in str(
        deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    )
    return ready and path_argument and not any(job in cluster.server.objects for job in jobs)


async def lived(
    server: Any, cluster: Any, client: Any, session: Any, start: Any, eventually: Any, death: Any = None
) -> None:
    process = Process(client, session, [MODELS, SERVICES], SETTINGS)
    dies = death(server, process) if death else None
    if dies:
        server.faults.append(dies)
    node = Node(server, cluster)
    start(node.run())
    process.start()
    try:
        await life(server, cluster, node, eventually)
    finally:
        process.end()
    assert len(node.downloads) <= 3
    if dies:
        dies.assert_died()


@pytest.mark.parametrize(("write", "number", "after"), moments(WRITES))
async def test_a_life_ends_well_though_the_controller_dies_around_a_write(
    server, cluster, client, session, start, eventually, write, number, after
):
    death = partial(Death, write=write, number=number, after=after)
    await lived(server, cluster, client, session, start, eventually, death)


async def test_all_writes_of_a_life_are_tried(server, cluster, client, session, start, eventually):
    await lived(server, cluster, client, session, start, eventually)
    assert_only_writes(server, WRITES)
