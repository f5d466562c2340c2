"""BenchmarkJobs of OME through the real reconciler: they wait, run once, tell what came out, and rest."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.apis.ome.api import BENCHMARKS
from slipway.artifacts.documents.benchmark import Run, Summary, encode_summary
from slipway.kube.objects import JOB, POD, Kind
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.settings import Settings

from .deaths import Death, Process, assert_only_writes, moments

SETTINGS = Settings(system_namespace="system")
KIND, SERVICE, MODEL = names.BENCHMARK_JOB, names.INFERENCE_SERVICE, names.CLUSTER_BASE_MODEL
SPEC = {
    "endpoint": {"inferenceService": {"name": "chat", "namespace": "models"}},
    "task": "text-to-text",
    "maxTimePerIteration": 1,
    "maxRequestsPerIteration": 10,
    "outputLocation": {"storageUri": "pvc://results"},
}
READY = {"url": "http://chat.models.svc", "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}
WRITES = {
    "PATCH benchmarkjobs/status": 8,
    "PATCH jobs": 2,
    "DELETE jobs": 1,
}


class Life:
    """Short words for what people and Kubernetes do, and for what they see."""

    process: Process

    def __init__(self, server: Any, eventually: Any) -> None:
        self.server, self.eventually = server, eventually

    def at_rest(self) -> bool:
        return self.process.at_rest(self.server)

    async def put(self, kind: Kind, name: str, spec: Any, **fields: Any) -> None:
        path = kind.path("models" if kind.namespaced else "", name)
        await self.server.put(path, kind=kind.kind, apiVersion=kind.api_version, spec=spec, **fields)

    async def change(self, kind: Kind, name: str, **fields: Any) -> None:
        path = kind.path("models", name)
        await self.server.store(path, {**self.server.objects[path], **fields})

    def find(self, kind: Kind, name: str) -> Any:
        return self.server.objects.get(kind.path("models", name))

    async def prepare(self) -> None:
        storage = {"storageUri": "hf://acme/tiny", "path": "/raid/models/tiny"}
        await self.put(MODEL, "tiny", {"storage": storage, "additionalMetadata": {"tokenizer": "acme/tiny"}})
        await self.put(SERVICE, "chat", {"model": {"name": "tiny"}})
        await self.put(KIND, "speed", SPEC)

    async def run(self, requests: int = 10, failed: int = 0) -> None:
        """The Job has a pod, and both come to their end."""
        job, now = self.find(JOB, "speed"), timestamp(time.time())
        run = Run(
            scenario="D(10,5)", concurrency=1, requests=requests, failed=failed, seconds=1.0, requests_per_second=1.0,
            input_tokens_per_second=1.0, output_tokens_per_second=42.0, first_token_seconds=0.1,
            first_token_seconds_p99=0.2,
        )  # fmt: skip
        words = encode_summary(
            Summary(requests=requests, failed=failed, error="HTTP 404" if failed else "", runs=(run,))
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "speed", "uid": job["metadata"]["uid"]}
        ended = {"name": "summary", "restartCount": 0, "state": {"terminated": {"message": words.decode()}}}
        await self.server.put(
            POD.path("models", f"speed-{job['metadata']['uid']}"),
            kind="Pod",
            apiVersion="v1",
            metadata={**job["spec"]["template"]["metadata"], "ownerReferences": [{**owner, "controller": True}]},
            spec={},
            status={"phase": "Succeeded", "initContainerStatuses": [ended]},
        )
        complete = {"type": "Complete", "status": "True", "lastTransitionTime": now}
        await self.change(JOB, "speed", status={"startTime": now, "completionTime": now, "conditions": [complete]})

    def status(self) -> Any:
        return (self.find(KIND, "speed") or {}).get("status") or {}

    def reason_of(self, kind: str) -> str:
        conditions = self.status().get("conditions") or ()
        return next((str(one["reason"]) for one in conditions if one["type"] == kind), "")


@pytest.fixture
def life(server: Any, eventually: Any) -> Life:
    return Life(server, eventually)


async def whole(life: Life) -> None:
    """A benchmark waits for its service, runs, completes, and is recreated with another spec."""
    await life.prepare()
    await life.eventually(lambda: life.reason_of("Progressing") == "WaitingForService", 60)
    assert life.find(JOB, "speed") is None
    await life.change(SERVICE, "chat", status=READY)
    await life.eventually(lambda: life.find(JOB, "speed"), 60)
    await life.run()
    await life.eventually(lambda: life.status().get("state") == "Completed", 60)
    assert "42.0" in life.status()["details"]
    first = life.find(JOB, "speed")["metadata"]["uid"]
    await life.change(KIND, "speed", spec={**SPEC, "maxRequestsPerIteration": 20})
    await life.eventually(
        lambda: (life.find(JOB, "speed") or {"metadata": {"uid": first}})["metadata"]["uid"] != first, 60
    )
    await life.run(requests=20, failed=3)
    await life.eventually(lambda: life.status().get("state") == "Failed", 60)
    assert "3 of 20 requests failed" in life.status()["failureMessage"]


async def lived(life: Life, client: Any, session: Any, tale: Any, death: Any = None) -> None:
    process = life.process = Process(client, session, [BENCHMARKS], SETTINGS)
    dies = death(life.server, process) if death else None
    if dies:
        life.server.faults.append(dies)
    process.start()
    try:
        await tale(life)
    finally:
        process.kill()
    if dies:
        dies.assert_died()


@pytest.mark.parametrize(("write", "number", "after"), moments(WRITES))
async def test_a_life_ends_well_though_the_controller_dies_around_a_write(life, client, session, write, number, after):
    await lived(life, client, session, whole, partial(Death, write=write, number=number, after=after))


async def test_all_writes_of_a_life_are_tried(life, client, session):
    await lived(life, client, session, whole)
    assert_only_writes(life.server, WRITES)


async def test_a_finished_benchmark_causes_no_writes_when_its_service_changes(life, client, session):
    async def tale(life: Life) -> None:
        await life.prepare()
        await life.change(SERVICE, "chat", status=READY)
        await life.eventually(lambda: life.find(JOB, "speed"))
        await life.run()
        await life.eventually(lambda: life.status().get("state") == "Completed")
        await life.eventually(life.at_rest)
        before = len(life.server.writes)
        for status in ({**READY, "conditions": []}, READY, {}):
            await life.change(SERVICE, "chat", status=status)
        await life.eventually(life.at_rest)
        assert [one.path for one in life.server.writes[before:] if "/events" not in one.path] == []
        assert life.status()["state"] == "Completed"

    await lived(life, client, session, tale)
