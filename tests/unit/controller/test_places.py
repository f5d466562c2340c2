"""Places: a namespace that is slow delays itself alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from slipway.controller.loaders.agents import CONCURRENT_REQUESTS, OF_A_NAMESPACE, LoaderClients, _Followed
from slipway.controller.loaders.places import Places
from slipway.kube.objects import Object
from slipway.serving.wire.agent import AdapterSet

from .conftest import KEY


class Work:
    """Takes places, and gives each one back on request."""

    def __init__(self, places: Places) -> None:
        self.places, self.running = places, Counter[str]()
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}
        self.ends: dict[asyncio.Task[None], asyncio.Event] = {}
        self.most: Counter[str] = Counter()

    def begin(self, namespace: str, number: int = 1) -> None:
        for _unused in range(number):
            end = asyncio.Event()
            task = asyncio.create_task(self._do(namespace, end))
            self.tasks.setdefault(namespace, []).append(task)
            self.ends[task] = end

    async def _do(self, namespace: str, end: asyncio.Event) -> None:
        async with self.places.of(namespace):
            self.running[namespace] += 1
            self.most[namespace] = max(self.most[namespace], self.running[namespace])
            self.most[""] = max(self.most[""], self.running.total())
            try:
                await end.wait()
            finally:
                self.running[namespace] -= 1

    async def settle(self) -> None:
        """Lets every task go as far as it can."""
        for _unused in range(10):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        for end in self.ends.values():
            end.set()
        await asyncio.gather(*self.ends, return_exceptions=True)
        assert not self.running.total()


async def test_a_namespace_has_its_share_and_no_more() -> None:
    work = Work(Places(6, 2))
    work.begin("flood", 50)
    await work.settle()
    work.begin("mine", 3)
    await work.settle()
    assert work.running == {"flood": 2, "mine": 2}
    await work.finish()
    assert (work.most["flood"], work.most["mine"]) == (2, 2)


async def test_free_places_go_round_the_namespaces_that_wait() -> None:
    work = Work(Places(2, 2))
    work.begin("flood", 50)
    await work.settle()
    work.begin("mine")
    work.begin("yours")
    await work.settle()
    assert work.running == {"flood": 2}
    for task in work.tasks["flood"][:2]:
        work.ends[task].set()
    await work.settle()
    assert (work.running["flood"], work.running["mine"] + work.running["yours"]) == (1, 1)
    for task in work.tasks["flood"][2:3]:
        work.ends[task].set()
    await work.settle()
    assert (work.running["mine"], work.running["yours"]) == (1, 1)
    await work.finish()
    assert work.most[""] == 2


async def test_cancelled_work_gives_its_place_back_whether_it_waits_or_runs() -> None:
    work = Work(Places(2, 2))
    work.begin("a", 4)
    await work.settle()
    first, second, third, fourth = work.tasks["a"]
    third.cancel()
    first.cancel()
    await work.settle()
    assert work.running["a"] == 2
    work.ends[second].set()
    # Given a place and cancelled before it could run.
    fourth.cancel()
    await work.settle()
    work.begin("b", 2)
    await work.settle()
    assert work.running["b"] == 2
    await work.finish()


async def test_a_failure_gives_its_place_back() -> None:
    places = Places(1, 1)
    for _unused in range(3):
        with pytest.raises(ValueError, match="broken"):
            async with places.of("a"):
                raise ValueError("broken")


def pod(namespace: str, number: int) -> Object:
    return {"metadata": {"namespace": namespace, "name": f"p{number}", "uid": f"{namespace}-{number}"}}


async def test_loaders_that_do_not_answer_delay_those_of_no_other_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.controller.loaders.agents.LIMIT", aiohttp.ClientTimeout(total=None))
    waiting, ends = asyncio.Semaphore(0), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path.startswith("/flood"):
            waiting.release()
            await ends.wait()
        return web.json_response({"adapters": []})

    application = web.Application()
    application.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    client: Any = None
    pods = [pod("flood", number) for number in range(2 * CONCURRENT_REQUESTS)]
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        agents = LoaderClients(client, session, lambda one: f"http://{host}:{port}/{one['metadata']['namespace']}")
        agents.sign_with(KEY)
        followed = _Followed([*pods, pod("mine", 0)], AdapterSet())
        flood = asyncio.create_task(agents._request_reports(followed, pods))
        for _unused in range(OF_A_NAMESPACE):
            await waiting.acquire()
        assert len(await agents._request_reports(followed, [pod("mine", 0)])) == 1
        assert not flood.done()
        ends.set()
        await flood
    await runner.cleanup()
