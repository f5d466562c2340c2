"""A controller that dies at one of its writes, before or after it, and is started again knowing nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web

from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.scaled import ScaledResources
from slipway.kube.caches.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.runtime.controller import Controller
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.api import Api
from slipway.serving.contract.settings import Settings

from ..kube.conftest import ApiServer
from .conftest import KEY, at_rest


class Process:
    """A controller of some kinds, which can die at any moment."""

    def __init__(self, client: Any, session: Any, apis: Sequence[Api[Any]], settings: Settings) -> None:
        self._client, self._session, self._apis, self._settings = client, session, apis, settings
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False
        self.informers: list[Informer] = []
        self.controllers: list[Controller] = []

    def start(self) -> None:
        if self._over:
            return
        metrics = Metrics()
        caches = Caches(self._client, self._apis, self._settings)
        agents, recorder = LoaderClients(self._client, self._session), Recorder(self._client, "test", metrics=metrics)
        agents.sign_with(KEY)
        reconcilers = [
            Reconciler(api, self._client, caches, self._settings, recorder, agents, ScaledResources(), RESERVED)
            for api in self._apis
        ]
        self.informers = caches.informers
        self.controllers = [reconciler.controller(2, metrics) for reconciler in reconcilers]
        self._tasks = [asyncio.create_task(one.run()) for one in (*self.informers, *self.controllers)]

    def at_rest(self, server: ApiServer) -> bool:
        return at_rest(server, self.informers, self.controllers)

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()

    def end(self) -> None:
        """Kills it for good, though it was to start again."""
        self._over = True
        self.kill()


SAMPLE = 6
"""CI tests every sixth write, alternating between a death before and after it; the lane tests all."""
Writes = Mapping[str, int]
"""Name of a write, such as ``PATCH jobs`` or ``PATCH models/status`` -> its maximum number in a life. A status has two
more than on an idle machine, because timing decides how many changes one write combines. More of the other writes mean
that the controller undoes what it did."""


def moments(writes: Writes) -> list[Any]:
    """Parameters ``write``, ``number`` and ``after`` for every moment at which the controller can die."""
    every = [(write, number) for write, most in writes.items() for number in range(most)]
    return [
        pytest.param(
            write,
            number,
            after,
            id=f"{write}-{number}-{'after' if after else 'before'}",
            marks=[] if index % SAMPLE == 0 and after == bool(index // SAMPLE % 2) else [pytest.mark.full],
        )
        for index, (write, number) in enumerate(every)
        for after in (False, True)
    ]


def name_of(method: str, path: str) -> str:
    """The name of a write without object names, for example ``PATCH models/status``."""
    *place, last = path.split("/")
    if method == "POST":
        return f"POST {last}"
    return f"{method} {place[-2]}/status" if last == "status" else f"{method} {place[-1]}"


def is_combined(write: str) -> bool:
    """Whether timing decides how many changes one such write combines. A patch of a Model can have the records of two
    directories whose Jobs end at the same time."""
    return write.endswith("/status") or write == "PATCH models"


def assert_only_writes(server: Any, writes: Writes) -> None:
    """Asserts that a life without a death had only these writes. Combined changes mean fewer of them."""
    seen = Counter(name_of(one.method, one.path) for one in server.writes)
    assert seen.keys() == writes.keys()
    assert {name: (times, writes[name]) for name, times in seen.items() if times > writes[name]} == {}


class Death:
    """Kills a controller at one of its writes, and lets another one start."""

    def __init__(self, server: Any, process: Process, *, write: str, number: int, after: bool) -> None:
        self.server, self.process, self.write, self.number, self.after = server, process, write, number, after
        self.times, self.seen = 1, 0

    def takes(self, request: web.Request) -> bool:
        if name_of(request.method, request.path) != self.write:
            return False
        self.seen += 1
        return self.times > 0 and self.seen == self.number + 1

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.after:
            await self.server.handle(request)
        self.process.kill()
        asyncio.get_running_loop().call_later(0.05, self.process.start)
        assert request.transport is not None
        request.transport.abort()
        return web.Response(status=500)

    def assert_died(self) -> None:
        """Asserts that this write occurred. Only a combined write may be missing."""
        assert self.times == 0 or is_combined(self.write), f"{self.write} number {self.number} did not occur"
