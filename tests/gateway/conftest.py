"""Fixtures: a real HAProxy with the control process, and engines that tests control, all on loopback."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
from aiohttp import web

from slipway.gateway.haproxy import runtime_diff
from slipway.gateway.haproxy.config.maps import LACKS_MAP, lacks_map
from slipway.gateway.routing.balancing import server_name
from slipway.gateway.rules import limits, targets
from slipway.gateway.sources.file import TableFile
from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import reserved_port

KEY = "sk-test-1"


class Engine:
    """An OpenAI server that records requests. The body's `x` object steers it: status, headers, delay, events, gap.

    With `held` it waits for a signal from the test: before an answer, or after each event. With `pieces` they are the
    answer, of the content type `type` and an announced `length`; `broken`: it ends without the end that HTTP asks for.

    With `hinted` an informational answer comes before the final one.

    It keeps the stored responses whose ids are in `responses`, and sends back what comes over a WebSocket.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self.port = reserved_port()
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.queries: list[str] = []
        self.responses: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.active = 0
        self.cancelled = 0
        self.status = 0
        """Answer to all requests, whatever they ask for; -1: none, the connection is closed."""
        self._held = asyncio.Semaphore(0)
        self._loop = loop
        self._runner: web.AppRunner | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._do(self._start())

    def kill(self) -> None:
        """Closes the port and resets every connection, like SIGKILL."""
        self._do(self._kill())

    def release(self, times: int = 1) -> None:
        """Releases held answers or events, once each."""
        for _unused in range(times):
            self._loop.call_soon_threadsafe(self._held.release)

    def _do(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE)

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
            # A connection that was taken at this very moment is left open by asyncio, until this closes it.
            gc.collect()

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
        self.queries.append(request.rel_url.raw_query_string)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.status < 0 and request.transport:
            request.transport.abort()
        if self.status:
            return web.json_response({}, status=abs(self.status))
        if request.headers.get("upgrade") == "websocket":
            return await self._echo(request)
        if request.path.startswith("/v1/responses/") and request.path.split("/")[3] not in self.responses:
            return web.json_response({"error": {"message": "There is no such response."}}, status=404)
        options: dict[str, Any] = json.loads(body).get("x", {}) if body[:1] == b"{" and b'"x"' in body else {}
        if "events" in options:
            return await self._stream(request, options)
        if "pieces" in options:
            return await self._pieces(request, options)
        if options.get("hinted") and request.transport:
            request.transport.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
        await self._pause(options, options.get("delay", 0))
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": self.name}, "finish_reason": "stop"}],
        }
        headers = {"x-engine": self.name, **options.get("headers", {})}
        return web.json_response(answer, status=options.get("status", 200), headers=headers)

    async def _pause(self, options: dict[str, Any], seconds: float) -> None:
        await (self._held.acquire() if options.get("held") else asyncio.sleep(seconds))

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        session = web.WebSocketResponse()
        await session.prepare(request)
        async for message in session:
            await session.send_str(f"{self.name}: {message.data}")
        return session

    async def _pieces(self, request: web.Request, options: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": options.get("type", "application/json"), **options.get("headers", {})}
        )
        response.content_length = options.get("length")
        await response.prepare(request)
        for piece in options["pieces"]:
            await response.write(piece.encode())
            await self._pause(options, 0.0)
        if options.get("broken") and request.transport:
            request.transport.abort()
        return response

    async def _stream(self, request: web.Request, options: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-engine": self.name})
        await response.prepare(request)
        for number in range(options["events"]):
            choice = {"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await self._pause(options, options.get("gap", 0.0))
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture(scope="session")
def engine_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)


@pytest.fixture(scope="session")
def make_engine(engine_loop: asyncio.AbstractEventLoop) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def make(name: str = "engine", *, start: bool = True) -> Engine:
        engine = Engine(engine_loop, name)
        engines.append(engine)
        if start:
            engine.start()
        return engine

    yield make
    for engine in engines:
        engine.kill()


@pytest.fixture(scope="session")
def make_gateway(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Standalone]:
    def make(**settings: Any) -> Standalone:
        directory: Path = tmp_path_factory.mktemp("gw")
        addresses = {"listen": f"127.0.0.1:{reserved_port()}", "controlListen": f"127.0.0.1:{reserved_port()}"}
        defaults = {"threads": 1, "maxConnections": 2000, "connectSeconds": 10}
        return Standalone(directory, {**addresses, **defaults, **settings})

    return make


@pytest.fixture(scope="session")
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine("first")


@pytest.fixture(scope="session")
def keyed(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """A gateway with API keys, shared by all modules without special settings. Each module writes its own table."""
    with make_gateway(apiKeysSecret="keys", maxBodyBytes=4 << 20, holdSeconds=1, holdRequests=5) as standalone:
        yield standalone


@pytest.fixture(scope="session")
def keyless(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """As `keyed`, without API keys."""
    with make_gateway() as standalone:
        yield standalone


@pytest.fixture(scope="session")
def hasty(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Api]:
    """A gateway that gives the engine of model m1 only one second to answer, for tests that expect a timeout."""
    standalone = make_gateway(apiKeysSecret="keys", streamIdleSeconds=1)
    standalone.route({"m1": [engine.endpoint]}, {"tester": KEY})
    with standalone, Api(standalone.url) as api:
        settle(standalone)
        yield api


@pytest.fixture(scope="module")
def gateway(keyed: Standalone, engine: Engine) -> Standalone:
    """With a key, the model m1 on one engine, and the model empty without any."""
    keyed.route({"m1": [engine.endpoint], "empty": []}, {"tester": KEY})
    settle(keyed)
    return keyed


class Api(requests.Session):
    """Requests below a gateway's address, with the key."""

    def __init__(self, url: str, key: str = KEY) -> None:
        super().__init__()
        self.url = url
        self.headers["authorization"] = f"Bearer {key}"

    def request(self, method: str | bytes, path: str | bytes, *args: Any, **options: Any) -> requests.Response:
        return super().request(method, f"{self.url}{path!s}", *args, **{"timeout": PATIENCE, **options})


@pytest.fixture(scope="module")
def client(gateway: Standalone) -> Iterator[Api]:
    with Api(gateway.url) as api:
        yield api


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits until the condition is true. Fails the test if it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("did not happen in time")
        time.sleep(0.02)


def settle(gateway: Standalone) -> None:
    """Waits until the running HAProxy matches the table. The files match a moment earlier."""
    wait_for(lambda: _in_use(gateway))


def _in_use(gateway: Standalone) -> bool:
    file = msgspec.json.decode(gateway.table.read_bytes(), type=TableFile)
    table, rights = file.table(), file.rights
    expected = {name: set(map(server_name, backend.endpoints)) for name, backend in table.backends.items()}
    held = {name: "1" for name, backend in table.backends.items() if not backend.endpoints}
    maps = {
        "models.map": table.models,
        runtime_diff.HOLD_MAP: held,
        LACKS_MAP: lacks_map(table),
        **targets.maps(table),
    }
    if "apiKeysSecret" in gateway.settings:
        maps |= {"keys.map": dict(file.hash_keys()), **limits.maps(rights, limits.allowed_entries(rights, table))}
    try:
        running = runtime_diff.parse_backends(ask_haproxy(gateway, runtime_diff.SHOW_BACKENDS_AND_SERVERS))
        read = {name: runtime_diff.parse_map(ask_haproxy(gateway, f"show map {gateway.run}/{name}")) for name in maps}
    except OSError:
        return False
    served = {
        name: {server for server, active in backend.endpoints.items() if active}
        for name, backend in running.items()
        if backend.published
    }
    return served == expected and read == maps


def ask_haproxy(gateway: Standalone, command: str) -> str:
    """Returns HAProxy's answer to a command of its Runtime API."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE)
        line.connect(str(gateway.run / "haproxy.sock"))
        line.sendall(command.encode() + b"\n")
        with line.makefile() as answer:
            return answer.read().strip("\n")


def port_of(gateway: Standalone) -> int:
    return int(gateway.url.rpartition(":")[2])


def loopbacks() -> list[str]:
    """Returns the machine's own addresses, one of each family."""
    try:
        with socket.socket(socket.AF_INET6) as opened:
            opened.bind(("::1", 0))
    except OSError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "[::1]"]


def reset(connection: http.client.HTTPConnection) -> None:
    """Resets a connection, as a load balancer does with idle ones."""
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def waiting(gateway: Standalone) -> float:
    """Returns the number of requests that wait for a server."""
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    lines = [line for line in text.splitlines() if line.startswith("slipway_gateway_requests_waiting{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def cpu_seconds(gateway: Standalone) -> float:
    """Returns the CPU time of HAProxy, which does not depend on other load of the machine."""
    ticks = 0
    for pid in gateway.haproxy_pids():
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")
