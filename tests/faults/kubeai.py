"""A run with KubeAI's Models: no node has the processors that their profile asks for, and no class the claims' disks.

What Kubernetes would do then is done by the tests: they say that a Job is done, and play the gateways.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from .harness import PATIENCE, PLURALS, PREFIXES, Api, Run
from .proxy import Object

CONFIG = {
    "resourceProfiles": {"none": {"requests": {"cpu": "1M"}}},
    "cacheProfiles": {"disk": {"sharedFilesystem": {"storageClassName": "none"}}},
    "modelAutoscaling": {"interval": "2s", "timeWindow": "4s"},
}
CLAIM = "shared-model-cache-disk"
FINALIZER = "kubeai.org/cache-eviction"


def model(name: str = "m", **spec: Any) -> Object:
    usual = {"url": "hf://acme/tiny", "engine": "VLLM", "features": ["TextGeneration"], "resourceProfile": "none:1"}
    metadata = {"name": name}
    spec = {**usual, "minReplicas": 1, **spec}
    return {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": metadata, "spec": spec}


class KubeAIRun(Run):
    """One namespace, which is the controller's own too."""

    prefixes = PREFIXES | {
        "Model": "/apis/kubeai.org/v1",
        "Job": "/apis/batch/v1",
        "ConfigMap": "/api/v1",
        "PersistentVolumeClaim": "/api/v1",
    }
    plurals = PLURALS | {"Job": "jobs", "ConfigMap": "configmaps", "PersistentVolumeClaim": "persistentvolumeclaims"}

    def __init__(self, api: Api, folder: Path) -> None:
        super().__init__(api, folder)
        self.requests: dict[str, float] = {}
        """Service -> requests in flight, as the gateways tell it."""
        self.scrapes = 0
        """How often the autoscaler has read them."""
        self._gateway: web.AppRunner | None = None

    async def __aenter__(self) -> KubeAIRun:
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        self._gateway = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._gateway.setup()
        await web.TCPSite(self._gateway, "127.0.0.1", 0).start()
        host, port = self._gateway.addresses[0][:2]
        self.settings = {"apis": ["kubeai"], "gateways": [f"{host}:{port}"]}
        await super().__aenter__()
        await self.configure(CONFIG)
        return self

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        if self._gateway is not None:
            await self._gateway.cleanup()

    async def _metrics(self, _unused: web.Request) -> web.Response:
        self.scrapes += 1
        name = "slipway_gateway_requests_in_flight"
        lines = [f'{name}{{model="{one}",namespace="{self.namespace}"}} {n}' for one, n in self.requests.items()]
        return web.Response(text="\n".join(["slipway_gateway_haproxy_up 1.0", *lines, ""]))

    # What a person or Kubernetes does

    async def configure(self, config: Object | None) -> None:
        """The system configuration; None: there is none."""
        if await self.get("ConfigMap", "slipway-kubeai") is None:
            if config is not None:
                data = {"system.yaml": yaml.safe_dump(config)}
                await self.create("ConfigMap", {"metadata": {"name": "slipway-kubeai"}, "data": data})
        elif config is None:
            await self.delete("ConfigMap", "slipway-kubeai")
        else:
            await self.patch("ConfigMap", "slipway-kubeai", {"data": {"system.yaml": yaml.safe_dump(config)}})

    async def scale(self, replicas: int, name: str = "m") -> None:
        path = self.path("Model", name) + "/scale"
        await self.api.call("PATCH", path, {"spec": {"replicas": replicas}}, "application/merge-patch+json")

    async def done(self, job: str) -> None:
        """Waits for a Job and marks it as complete."""
        await self.until(lambda: self.get("Job", job), what=f"no Job {job}")
        live_job = await self.get("Job", job)
        began = (live_job or {}).get("status", {}).get("startTime")
        if began is None:
            await self.until(lambda: self._started(job), what=f"Job {job} does not start")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        types = ("SuccessCriteriaMet", "Complete")
        conditions = [
            {"type": one, "status": "True", "lastTransitionTime": now, "reason": "Told", "message": ""} for one in types
        ]
        status = {"active": 0, "ready": 0, "succeeded": 1, "completionTime": now, "conditions": conditions}
        path = self.path("Job", job) + "/status"
        await self.api.call("PATCH", path, {"status": status}, "application/merge-patch+json")

    async def _started(self, job: str) -> bool:
        live_job = await self.get("Job", job)
        return bool(live_job and live_job.get("status", {}).get("startTime"))

    # Waiting

    async def observed(self, name: str = "m") -> bool:
        """Whether the status is of the latest generation."""
        live_model = await self.get("Model", name) or {}
        return bool(live_model.get("status", {}).get("observedGeneration") == live_model["metadata"]["generation"])

    async def scraped(self, count: int) -> None:
        """Waits until the autoscaler has read the requests this many more times."""
        target = self.scrapes + count
        await self.until(self.always(lambda: self.scrapes >= target), what="the autoscaler does not read requests")

    async def reconciles_all(self, name: str) -> None:
        """Waits until a controller that has just started has reconciled a new Model, and so those before it."""
        await self.create("Model", model(name))
        await self.has(1, name)
        await self.quiet()

    async def reason(self, kind: str = "Accepted", name: str = "m") -> str:
        resource = await self.get("Model", name)
        conditions = (resource or {}).get("status", {}).get("conditions", [])
        return next((str(one["reason"]) for one in conditions if one["type"] == kind), "")

    async def replicas(self, name: str = "m") -> tuple[int, int]:
        """Of the Model and of its Deployment; -1 for one that is not there."""
        resources = [await self.get("Model", name), await self.get("Deployment", f"model-{name}")]
        model_, deployment = (one["spec"].get("replicas", 0) if one else -1 for one in resources)
        return model_, deployment

    async def has(self, replicas: int, name: str = "m") -> None:
        async def same() -> bool:
            actual = await self.replicas(name)
            assert actual == (replicas, replicas), f"replicas {actual}"
            return True

        await self.until(same, what=f"never {replicas} replicas")

    async def loaded(self, name: str = "m") -> str:
        """What the claim says of the Model's weights; empty: nothing."""
        claim = await self.get("PersistentVolumeClaim", CLAIM)
        return str((claim or {}).get("metadata", {}).get("annotations", {}).get(f"models.kubeai.org/{name}", ""))

    async def quiet(self, seconds: float = 0.7) -> None:
        """Every Model is accepted, its status is of this generation, and nothing is written any more."""

        async def still() -> bool:
            for one in await self.all("Model"):
                status = one.get("status", {})
                assert status.get("observedGeneration") == one["metadata"]["generation"], "status is old"
            writes = [write for proxy in self._proxies for write in proxy.writes]
            return not writes or time.monotonic() - max(write.at for write in writes) > seconds

        await self.until(still, what="does not get quiet")

    async def gone(self, name: str = "m", seconds: float = PATIENCE) -> None:
        """I5: neither the Model nor a child is left, and the claim has forgotten it."""

        async def nothing() -> bool:
            if await self.get("Model", name) is not None:
                return False
            for kind in ("Deployment", "Service", "Job", "ConfigMap"):
                names = [one["metadata"]["name"] for one in await self.all(kind)]
                ours = [one for one in names if one.endswith((f"-{name}", f"-{name}-files"))]
                assert not ours, f"{kind}s left: {ours}"
            assert not await self.loaded(name), "the claim still knows it"
            return True

        await self.until(nothing, seconds, "deletion did not end")

    async def life(self, between: Callable[[], None] = lambda: None) -> None:
        """The scenario of a Model with a cache: filled, served, deleted, emptied."""
        self.proxy.stage = "create"
        await self.create("Model", model(cacheProfile="disk"))
        await self.done("load-cache-m")
        await self.has(1)
        await self.until(self._no_job, what="the load Job stays")
        await self.quiet()
        assert await self.reason("CacheLoaded") not in ("", "LoadingCache")
        between()
        self.proxy.stage = "delete"
        await self.delete("Model")
        await self.done("evict-cache-m")
        await self.gone()

    async def _no_job(self) -> bool:
        return not await self.all("Job")

    async def versions(self) -> dict[tuple[str, str], str]:
        """(kind, name) -> what changes with every write, but for those of Kubernetes' own controllers."""
        children = [
            (kind, one["metadata"]) for kind in ("Deployment", "Service", "Job") for one in await self.all(kind)
        ]
        return {(kind, one["name"]): str(one.get("generation") or one["resourceVersion"]) for kind, one in children}

    def sent(self) -> list[str]:
        """The writes of children, which do not follow from what Kubernetes' controllers do."""
        return [repr(write) for proxy in self._proxies for write in proxy.writes if write.resource != "models"]
