"""A Model of LLMKube and its service live well though the controller dies before or after any of its writes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slipway.apis.llmkube import MODELS, SERVICES, cache, names
from slipway.apis.llmkube.model_types import KIND
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.artifacts.report import LoadReport, written
from slipway.kube.conditions import timestamp
from slipway.kube.objects import DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM
from slipway.serving.settings import Settings

from .deaths import Death, Node, Process

SOURCE, OTHER = "https://files.example/tiny.gguf", "https://files.example/other.gguf"
SETTINGS = Settings(system_namespace="system", apis={"llmkube": {"revalidateSeconds": 0}})
MOST_WRITES = 44
"""More than a life takes."""


class Disk(Node):
    """A node whose loader brings weights to the cache, and takes them away."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.disk: set[str] = set()
        self.downloads: list[str] = []

    def work(self, words: list[str]) -> str:
        if words[1] == "evict":
            self.disk.discard(words[2].rpartition("/")[2])
        else:
            self.disk.add(words[3].rpartition("/")[2])
            self.downloads.append(words[2])
        return written(LoadReport(file="tiny.gguf", size=5, etag="1")).decode() if words[1] == "stage" else ""


def records(server: Any) -> dict[str, cache.Record]:
    carriers = [obj for obj in server.objects.values() if obj["kind"] in ("PersistentVolumeClaim", "Model")]
    return {key: record for carrier in carriers for key, record in cache.inventory(carrier).items()}


async def life(server: Any, cluster: Any, node: Disk, eventually: Any) -> None:
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
    told = deployment is not None and path in str(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    return ready and told and not any(job in cluster.server.objects for job in jobs)


async def lived(server: Any, cluster: Any, client: Any, session: Any, start: Any, eventually: Any, death: Any) -> Death:
    process = Process(client, session, [MODELS, SERVICES], SETTINGS)
    dies: Death = death(server, process)
    server.faults.append(dies)
    node = Disk(server)
    start(node.run())
    process.start()
    try:
        await life(server, cluster, node, eventually)
    finally:
        process.end()
    assert len(node.downloads) <= 3
    return dies


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(MOST_WRITES))
async def test_a_life_ends_well_though_the_controller_dies_around_a_write(
    server, cluster, client, session, start, eventually, number, after
):
    await lived(server, cluster, client, session, start, eventually, lambda *of: Death(*of, number, after=after))


async def test_all_writes_of_a_life_are_tried(server, cluster, client, session, start, eventually):
    alive = await lived(server, cluster, client, session, start, eventually, lambda *of: Death(*of, 10**6, after=False))
    assert 10 < alive.seen <= MOST_WRITES
