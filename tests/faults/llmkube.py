"""A run with a Model of LLMKube and its service: no class has the cache's disk, so that no pod ever starts.

What a node would do then is done by the tests: they say that the pods of Jobs have ended, and what the loader wrote,
and that the pods of the service are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import yaml

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache
from slipway.artifacts.documents.report import Report, encode_report

from .harness import PLURALS, PREFIXES, Api, Run, without
from .proxy import Object

GROUP = "inference.llmkube.dev/v1alpha1"
SOURCE, OTHER = "https://files.example/tiny.gguf", "https://files.example/other.gguf"
MODEL, SERVICE = "tiny", "chat"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SETTINGS = {"llmkube": {"revalidateSeconds": 0, "modelCache": {"storageClass": "none"}}}
REPORT = encode_report(Report(file="tiny.gguf", size=5, etag="1")).decode()
CHILDREN = ("Deployment", "Service")


class LLMKubeRun(Run):
    """One namespace, which is the controller's own too."""

    prefixes = PREFIXES | {
        "Model": f"/apis/{GROUP}",
        "InferenceService": f"/apis/{GROUP}",
        "Job": "/apis/batch/v1",
        "Pod": "/api/v1",
        "PersistentVolumeClaim": "/api/v1",
    }
    plurals = PLURALS | {
        "InferenceService": "inferenceservices",
        "Job": "jobs",
        "Pod": "pods",
        "PersistentVolumeClaim": "persistentvolumeclaims",
    }

    def __init__(self, api: Api, folder: Path) -> None:
        super().__init__(api, folder)
        self.settings = {"apis": SETTINGS}
        self.disk: set[str] = set()
        """Folders of the cache."""
        self.downloads: list[str] = []
        self._node: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LLMKubeRun:
        await super().__aenter__()
        # A separate one, because the controller's own classes stay on the cluster with these settings.
        priority = {"metadata": {"name": self.namespace}, "value": 0}
        await self.api.call("POST", PRIORITY_CLASSES, priority)
        self._node = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._node is not None:
            self._node.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._node
        await super().__aexit__(*error)
        await self.api.call("DELETE", f"{PRIORITY_CLASSES}/{self.namespace}")

    # What a node does

    async def _work(self) -> None:
        while True:
            jobs = {job["metadata"]["uid"]: job for job in await self.all("Job")}
            for pod in await self.all("Pod"):
                made_by = [jobs.get(owner["uid"]) for owner in pod["metadata"].get("ownerReferences", [])]
                phase = pod.get("status", {}).get("phase")
                if any(made_by) and phase != "Succeeded":
                    await self._end(pod)
                elif not any(made_by) and _has_replica_set(pod) and phase != "Running":
                    await self._start(pod)
            await asyncio.sleep(0.1)

    async def _start(self, pod: Object) -> None:
        """Marks it as ready: then the pods of the previous template end, and no longer read weights."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        path = self.path("Pod", pod["metadata"]["name"]) + "/status"
        await self.api.call("PATCH", path, {"status": status}, "application/merge-patch+json")

    async def _end(self, pod: Object) -> None:
        """Does what a pod of a Job is there for."""
        container = pod["spec"]["containers"][0]
        words = container["args"]
        over = {"exitCode": 0, "reason": "Completed", "message": REPORT if words[1] == "stage" else ""}
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
        pod_status = {
            "phase": "Succeeded",
            "containerStatuses": [status | {"restartCount": 0, "state": {"terminated": over}}],
        }
        path = self.path("Pod", pod["metadata"]["name"]) + "/status"
        if await self.api.call("PATCH", path, {"status": pod_status}, "application/merge-patch+json") is None:
            return  # it went meanwhile
        if words[1] == "evict":
            self.disk.discard(words[2].rpartition("/")[2])
        else:
            self.disk.add(words[3].rpartition("/")[2])
            self.downloads.append(words[2])

    # The scenario

    async def life(self) -> None:
        """A service and its Model come, both change, and both go; keeps what the children looked like after each
        step."""
        self.proxy.stage = "create"
        spec = {"modelRef": MODEL, "priorityClassName": self.namespace}
        await self.create("InferenceService", resource("InferenceService", SERVICE, spec))
        await self.create("Model", resource("Model", MODEL, {"source": SOURCE, "format": "gguf"}))
        await self.serves(SOURCE)
        self.proxy.stage = "change"
        await self.patch("Model", MODEL, {"spec": {"source": OTHER}})
        await self.patch("InferenceService", SERVICE, {"spec": {"contextSize": 512}})
        await self.serves(OTHER)
        self.proxy.stage = "delete"
        await self.delete("InferenceService", SERVICE)
        await self.delete("Model", MODEL)
        await self.until(self._nothing_left, what="deletion did not end")

    async def serves(self, source: str) -> None:
        """I1, I2, I3: this source alone is in the cache, the service has pods that read it, both statuses are of the
        newest spec and say so, and nothing is written any more."""
        await self.until(lambda: self._serving(names.cache_key(source)), what=f"{source} is not served")
        self.snapshots.append(await self.snapshot())

    async def _serving(self, key: str) -> bool:
        model, service = await self.get("Model", MODEL), await self.get("InferenceService", SERVICE)
        assert model
        assert service
        status, served = model.get("status", {}), service.get("status", {})
        generation = model["metadata"]["generation"]
        assert (status.get("phase"), status.get("observedGeneration")) == ("Ready", generation), (
            "the Model is not ready"
        )
        assert status.get("cacheKey") == key, "the Model has other weights"
        assert set(cache.read_records(model)) == self.disk == {key}, "records and folders differ"
        assert served.get("observedGeneration") == service["metadata"]["generation"], "status is old"
        seen = [(one["generation"], one["ready"]) for one in served.get("observedModels", [])]
        assert seen == [(generation, True)], "the service has not seen its Model"
        deployment = await self.get("Deployment", SERVICE)
        assert deployment, "no Deployment"
        assert f"/{key}/" in str(deployment["spec"]["template"]["spec"]["containers"][0]["args"]), "pods read others"
        assert not await self.all("Job"), "Jobs stay"
        return not self.proxy.writes or time.monotonic() - self.proxy.writes[-1].at > 0.7

    async def _nothing_left(self) -> bool:
        """I5."""
        for kind in ("InferenceService", "Model", "Job", *CHILDREN):
            remaining = [one["metadata"]["name"] for one in await self.all(kind)]
            assert not remaining, f"{kind}s left: {remaining}"
        assert self.disk == set(), "weights left in the cache"
        return True

    async def snapshot(self) -> list[str]:
        """The children as lines of text, without what differs from run to run by its nature."""
        world = [without(one) for kind in CHILDREN for one in await self.all(kind)]
        return yaml.safe_dump(world).replace(self.namespace, "NAMESPACE").splitlines()

    def no_child_was_deleted(self) -> None:
        """I7. A Job is deleted after its work, and the budget that protects a start when the pods answer."""
        deleted = [one.resource for one in self.proxy.writes if one.method == "DELETE"]
        assert set(deleted) <= {"jobs", "poddisruptionbudgets"}, deleted


def _has_replica_set(pod: Object) -> bool:
    return any(owner["kind"] == "ReplicaSet" for owner in pod["metadata"].get("ownerReferences", []))


def resource(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}
