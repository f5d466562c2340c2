"""Fixtures: a real HAProxy with our control process, and engines that do what a test tells them, all on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web

from slipway.gateway.standalone import Standalone

KEY = "sk-test-1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Engine:
    """An OpenAI server that records requests. The body's `x` object steers it: status, delay, events, gap."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.active = 0
        self.cancelled = 0
        self._loop = loop
        self._runner: web.AppRunner | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._do(self._start())

    def kill(self) -> None:
        """As SIGKILL would: the port closes and every connection is reset."""
        self._do(self._kill())

    def _do(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    async def _start(self) -> None:
        application = web.Application(client_max_size=1 << 28)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=1024).start()

    async def _kill(self) -> None:
        runner, self._runner = self._runner, None
        if runner and runner.server:
            for site in list(runner.sites):
                await site.stop()
            for protocol in list(runner.server.connections):
                if protocol.transport:
                    protocol.transport.abort()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.active += 1
        try:
            return await self._work(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    async def _work(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        self.paths.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        wish: dict[str, Any] = json.loads(body).get("x", {}) if body[:1] == b"{" and b'"x"' in body else {}
        await asyncio.sleep(wish.get("delay", 0))
        if "events" in wish:
            return await self._stream(request, wish["events"], wish.get("gap", 0.0))
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": self.name}, "finish_reason": "stop"}],
        }
        return web.json_response(answer, status=wish.get("status", 200), headers={"x-engine": self.name})

    async def _stream(self, request: web.Request, events: int, gap: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-engine": self.name})
        await response.prepare(request)
        for number in range(events):
            choice = {"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(gap)
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture(scope="session")
def engine_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


@pytest.fixture(scope="session")
def make_engine(engine_loop: asyncio.AbstractEventLoop) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(name: str = "engine", *, start: bool = True) -> Engine:
        engine = Engine(engine_loop, name)
        made.append(engine)
        if start:
            engine.start()
        return engine

    yield make
    for engine in made:
        engine.kill()


@pytest.fixture(scope="session")
def make_gateway(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Standalone]:
    def make(**settings: Any) -> Standalone:
        directory: Path = tmp_path_factory.mktemp("gw")
        addresses = {"listen": f"127.0.0.1:{free_port()}", "controlListen": f"127.0.0.1:{free_port()}"}
        defaults = {"threads": 1, "maxConnections": 2000, "connectSeconds": 1}
        return Standalone(directory, {**addresses, **defaults, **settings})

    return make


@pytest.fixture(scope="session")
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine("first")


@pytest.fixture(scope="session")
def gateway(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    """With a key, the model m1 on one engine, and the model empty without any."""
    made = make_gateway(apiKeysSecret="keys", maxBodyBytes=4 << 20, holdSeconds=2, holdRequests=5, streamIdleSeconds=5)
    made.route({"m1": [engine.endpoint], "empty": []}, {"tester": KEY})
    with made:
        yield made


class Api(requests.Session):
    """Requests below a gateway's address, with the key."""

    def __init__(self, url: str, key: str = KEY) -> None:
        super().__init__()
        self.url = url
        self.headers["authorization"] = f"Bearer {key}"

    def request(self, method: str | bytes, path: str | bytes, *args: Any, **options: Any) -> requests.Response:
        return super().request(method, f"{self.url}{path!s}", *args, **{"timeout": 15, **options})


@pytest.fixture(scope="session")
def client(gateway: Standalone) -> Iterator[Api]:
    with Api(gateway.url) as made:
        wait_for(lambda: made.post("/v1/completions", data=b'{"model":"m1"}').status_code == 200)
        yield made


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Returns when the condition holds; fails the test when it does not in time."""
    for _unused in range(int(seconds / 0.02)):
        if condition():
            return
        threading.Event().wait(0.02)
    pytest.fail("did not happen in time")
