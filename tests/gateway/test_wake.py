"""The first request wakes a model from zero, with a real HAProxy, a real waker, and a fake API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from slipway.gateway.control.wake import Waker
from slipway.gateway.haproxy.dataplane import DataPlane
from slipway.gateway.settings import load_settings
from slipway.gateway.sources.file import TableFile
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from tests.gateway.conftest import Engine, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import reserved_port

CHAT = "/v1/chat/completions"
WAKE_SECONDS = 5 * PATIENCE
TARGET = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "cold"}


class Cluster:
    """The scale of one Model: at one replica its pod starts, and is ready `start_seconds` later."""

    def __init__(self, gateway: Standalone, engine: Engine) -> None:
        self.gateway = gateway
        self.engine = engine
        self.start_seconds = 0.5
        self.replicas = 0
        self.version = 1
        self.written: list[int] = []
        """What the scale was set to."""
        self.looks = 0
        """How often the waker has checked for waiting requests."""
        self._starting: asyncio.Task[None] | None = None

    def route(self, *endpoints: str) -> None:
        self.gateway.route({"cold": {"endpoints": endpoints, "route": {"scale": TARGET}}, "off": []})

    async def turns(self) -> None:
        """Waits until the waker has had enough checks for a second attempt."""
        over = self.looks + 20
        await asyncio.to_thread(wait_for, lambda: self.looks >= over or bool(self.written))

    async def scale(self, request: web.Request) -> web.Response:
        if request.method == "PUT":
            scale = await request.json()
            if scale["metadata"]["resourceVersion"] != str(self.version):
                return web.json_response({"kind": "Status", "message": "newer"}, status=409)
            self.version += 1
            self.replicas = scale["spec"]["replicas"]
            self.written.append(self.replicas)
            self._starting = asyncio.create_task(self._start())
        metadata = {"namespace": "static", "name": "cold", "resourceVersion": str(self.version)}
        spec = {"replicas": self.replicas} if self.replicas else {}
        return web.json_response({"kind": "Scale", "metadata": metadata, "spec": spec})

    async def _start(self) -> None:
        await asyncio.sleep(self.start_seconds)
        self.route(self.engine.endpoint)


@pytest.fixture(scope="module")
def shared(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    with make_gateway(holdSeconds=1, holdRequests=2, wakeSeconds=WAKE_SECONDS, wakeRequests=200) as gateway:
        yield gateway


@pytest.fixture
async def cluster(
    shared: Standalone, make_engine: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    fake_cluster = Cluster(shared, make_engine("woken"))
    fake_cluster.route()
    wait_for(lambda: "static:cold 1" in (shared.run / "wake.map").read_text())
    settle(shared)
    application, port = web.Application(), reserved_port()
    application.router.add_route("*", "/apis/kubeai.org/v1/namespaces/static/models/cold/scale", fake_cluster.scale)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(kubeconfig_for(port)))
    client = await Client.connect(str(kubeconfig), metrics=Metrics())
    plane = DataPlane(load_settings(shared.config))

    async def looked() -> Mapping[str, int]:
        fake_cluster.looks += 1
        return await plane.count_waiting()

    waker = Waker(client, looked, lambda *_told: None, lambda *_told: None)
    task = asyncio.create_task(waker.run(table_of(shared)))
    yield fake_cluster
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await client.close()
    await runner.cleanup()


def kubeconfig_for(port: int) -> dict[str, Any]:
    context = {"cluster": "c", "user": "u"}
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
    }


def table_of(gateway: Standalone) -> Callable[[], Any]:
    def current() -> Any:
        return msgspec.json.decode(gateway.table.read_bytes(), type=TableFile).table()

    return current


async def ask(session: aiohttp.ClientSession, gateway: Standalone, model: str = "cold") -> int:
    """The status. Raises TimeoutError where the answer takes as long as requests wait for a model that is woken."""
    timeout = aiohttp.ClientTimeout(WAKE_SECONDS / 2)
    async with session.post(gateway.url + CHAT, json={"model": model}, timeout=timeout) as answer:
        await answer.read()
        return answer.status


async def test_the_first_request_wakes_the_model_and_is_answered_soon_after_its_start(cluster: Cluster) -> None:
    """How soon is what the benchmarks measure; here it is not the end of the request's time."""
    async with aiohttp.ClientSession() as session:
        assert await ask(session, cluster.gateway) == 200
    assert cluster.written == [1]


async def test_many_requests_wake_a_model_once_and_all_are_answered(cluster: Cluster) -> None:
    cluster.start_seconds = 2.0  # longer than requests otherwise wait
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        assert set(await asyncio.gather(*(ask(session, cluster.gateway) for _unused in range(100)))) == {200}
    assert cluster.written == [1]


async def test_requests_wait_only_briefly_for_a_model_that_cannot_be_scaled(cluster: Cluster) -> None:
    async with aiohttp.ClientSession() as session:
        assert await ask(session, cluster.gateway, "off") == 503
    assert cluster.written == []


async def test_a_route_sets_how_long_requests_wait_for_a_model_that_a_controller_starts(
    shared: Standalone, make_engine: Callable[..., Engine]
) -> None:
    engine, slow = make_engine("late"), {"route": {"wakeSeconds": int(WAKE_SECONDS)}, "endpoints": []}
    shared.route({"late": slow, "never": {"route": {"wakeSeconds": 2}, "endpoints": []}})
    wait_for(lambda: "static:never 2s" in (shared.run / "wake.map").read_text())
    settle(shared)
    async with aiohttp.ClientSession() as session:
        late = asyncio.create_task(ask(session, shared, "late"))
        assert await ask(session, shared, "never") == 503
        plane = DataPlane(load_settings(shared.config))
        assert await plane.count_requests(["static:late", "static:never", "static:unknown"]) == {
            "static:late": 1,
            "static:never": 0,
        }
        shared.route({"late": {**slow, "endpoints": [engine.endpoint]}})
        assert await late == 200


async def test_no_model_is_woken_for_disconnected_clients(cluster: Cluster) -> None:
    cluster.replicas = 1  # starts, and takes long
    async with aiohttp.ClientSession() as session:
        request = asyncio.create_task(ask(session, cluster.gateway))
        await asyncio.to_thread(wait_for, lambda: waiting(cluster.gateway) == 1)
        request.cancel()
    await asyncio.to_thread(wait_for, lambda: waiting(cluster.gateway) == 0)
    await cluster.turns()  # the attempt for the client that left has ended
    cluster.replicas = 0
    await cluster.turns()
    assert cluster.written == []
