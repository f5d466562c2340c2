"""A controller that dies at one of its writes, before or after it, and is started again knowing nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from slipway.apis.labels import RESERVED
from slipway.controller.agents import Agents
from slipway.controller.caches import Caches
from slipway.controller.delivery import Deliveries
from slipway.controller.reconciler import Reconciler
from slipway.controller.scaled import ScaledResources
from slipway.kube.conditions import timestamp
from slipway.kube.events import Recorder
from slipway.kube.metrics import Metrics
from slipway.kube.objects import POD
from slipway.serving.api import Api
from slipway.serving.delivery import Delivery
from slipway.serving.settings import Settings

from .conftest import KEY


class Process:
    """A controller of some kinds, which can die at any moment."""

    def __init__(
        self,
        client: Any,
        session: Any,
        apis: Sequence[Api[Any]],
        settings: Settings,
        deliveries: Sequence[Delivery] = (),
    ) -> None:
        self._client, self._session, self._apis, self._settings = client, session, apis, settings
        self._deliveries = deliveries
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False

    def start(self) -> None:
        if self._over:
            return
        metrics = Metrics()
        caches = Caches(self._client, self._apis, self._settings)
        agents, recorder = Agents(self._client, self._session), Recorder(self._client, "test", metrics=metrics)
        agents.sign_with(KEY)
        reconcilers = [
            Reconciler(api, self._client, caches, self._settings, recorder, agents, ScaledResources(), RESERVED)
            for api in self._apis
        ]
        deliveries = [Deliveries(one, self._client, caches, self._settings, recorder) for one in self._deliveries]
        controllers = [reconciler.controller(2, metrics) for reconciler in reconcilers]
        controllers += [controller for one in deliveries for controller in one.controllers(2, metrics)]
        informers = [*caches.informers, *(informer for one in deliveries for informer in one.informers)]
        self._tasks = [asyncio.create_task(one.run()) for one in (*informers, *controllers)]

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()

    def end(self) -> None:
        """Kills it for good, though it was to start again."""
        self._over = True
        self.kill()


class Death:
    """Kills a controller at one of its writes, and lets another one start."""

    def __init__(self, server: Any, process: Process, number: int, *, after: bool) -> None:
        self.server, self.process, self.number, self.after = server, process, number, after
        self.times, self.seen = 1, 0

    def takes(self, request: web.Request) -> bool:
        write = request.method != "GET"
        self.seen += write
        return write and self.times > 0 and self.seen == self.number + 1

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.after:
            await self.server.handle(request)
        self.process.kill()
        asyncio.get_running_loop().call_later(0.05, self.process.start)
        assert request.transport is not None
        request.transport.abort()
        return web.Response(status=500)


class Node:
    """What Kubernetes does: Jobs end, objects without finalizers go, and with them what they own."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def work(self, words: list[str]) -> str:
        """Does what a Job's program is told; returns what it writes last."""
        raise NotImplementedError

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
        message = self.work(job["spec"]["template"]["spec"]["containers"][0]["args"])
        name, uid, namespace = (job["metadata"][field] for field in ("name", "uid", "namespace"))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        container = {"name": "loader", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": message}}}
        metadata = {"labels": job["spec"]["template"]["metadata"]["labels"], "ownerReferences": [owner]}
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        await self.server.put(POD.path(namespace, f"{name}-{uid}"), kind="Pod", metadata=metadata, status=status)
        over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(time.time())}
        if path in self.server.objects:
            await self.server.store(path, {**self.server.objects[path], "status": {"conditions": [over]}})

    async def _collected(self, path: str, uid: str) -> None:
        await self.server.remove(path)
        for other, obj in list(self.server.objects.items()):
            if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ()):
                await self._collected(other, obj["metadata"]["uid"])
