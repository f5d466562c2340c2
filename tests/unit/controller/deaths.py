"""A controller that dies at one of its writes, before or after it, and is started again knowing nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from slipway.apis.labels import RESERVED
from slipway.controller.agents import Agents
from slipway.controller.caches import Caches
from slipway.controller.reconciler import Reconciler
from slipway.controller.scaled import ScaledResources
from slipway.kube.events import Recorder
from slipway.kube.metrics import Metrics
from slipway.serving.api import Api
from slipway.serving.settings import Settings

from .conftest import KEY


class Process:
    """A controller of some kinds, which can die at any moment."""

    def __init__(self, client: Any, session: Any, apis: Sequence[Api[Any]], settings: Settings) -> None:
        self._client, self._session, self._apis, self._settings = client, session, apis, settings
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
        loops = [reconciler.controller(2, metrics).run() for reconciler in reconcilers]
        self._tasks = [asyncio.create_task(one) for one in (*(informer.run() for informer in caches.informers), *loops)]

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
