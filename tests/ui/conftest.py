"""Fixtures: the page in a real browser, served like by the control process, with a cluster state from the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import sync_playwright
from screenshots import CHROMIUM

from slipway.gateway.errors import ErrorResponse
from slipway.gateway.haproxy.metrics import RawCounters
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.table import EMPTY
from slipway.gateway.rules.page import FILES
from slipway.gateway.ui.app import Page
from slipway.gateway.ui.overview import Cluster
from tests.ui.worlds import World

PATIENCE = 60_000
"""Milliseconds for what takes a moment on a machine that has nothing else to do."""
COLUMNS = "pxname,svname,scur,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other"


class Stage:
    """A gateway without HAProxy: the page, a check of API keys, and an engine with configured answers."""

    def __init__(self) -> None:
        self.cluster, self.table = Cluster(), EMPTY
        self.key = ""
        self.down = False
        self.refusal: ErrorResponse | None = None
        """The gateway's answer to all requests for data."""
        self.counters: RawCounters | None = RawCounters(f"# {COLUMNS}\n", "", "")
        self.questions: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.overviews = 0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._events: asyncio.Queue[str | None] = asyncio.Queue()
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def show(self, world: World, **others: Any) -> None:
        """Shows this world from now on."""
        self.cluster, self.table = world.shown(**others)

    def count(
        self,
        backend: str,
        *,
        active: int = 0,
        waiting: int = 0,
        answered: int = 0,
        failed: int = 0,
        first_byte_ms: int = 0,
    ) -> None:
        """Has HAProxy count this of one backend."""
        times = f"gpc0={first_byte_ms * answered} gpc1={answered}"
        before = self.counters or RawCounters(f"# {COLUMNS}\n", "", "")
        self.counters = RawCounters(
            f"{before.statistics}{backend},BACKEND,{active},0,{answered - failed},0,0,{failed},0\n",
            f"{before.first_bytes}0x1: key={backend} use=0 exp=0 shard=0 {times}\n",
            f"{before.hold}{backend} {waiting} 0 0\n",
        )

    def say(self, text: str | None) -> None:
        """Makes the engine send an event with this text to the client, or end its answer."""
        event = None if text is None else json.dumps({"choices": [{"delta": {"content": text}}]})
        self.send(event)

    def finish(self, tokens: int, reason: str = "stop") -> None:
        """Has the engine end its answer as OpenAI's API does: with a reason, then with the number of tokens."""
        self.send(json.dumps({"choices": [{"delta": {}, "finish_reason": reason}]}))
        self.send(json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}))
        self.send(None)

    def send(self, event: str | None) -> None:
        """Makes the engine send an event unchanged."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def start(self) -> None:
        self._thread.start()
        self._do(self._start())

    def stop(self) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def close(self) -> None:
        """Closes the port, as a gateway that is gone."""
        self._do(self._stop())

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        page = Page(
            lambda: self.table, lambda: self.cluster, self._count, keys=bool(self.key), replica="slipway-gateway-0"
        )
        application = web.Application(middlewares=[self._door])
        page.add_to(application)
        application.router.add_post("/v1/chat/completions", self._answer)
        application.router.add_post("/v1/embeddings", self._embed)
        application.router.add_post("/v1/messages", self._message)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/ui/"

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner:
            await runner.cleanup()

    async def _count(self) -> RawCounters:
        if self.counters is None:
            raise CommandError("HAProxy does not answer")
        return self.counters

    @web.middleware
    async def _door(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.authorizations.append(request.headers.get("Authorization", ""))
        if request.path in {f"/ui/{name}" for name in FILES}:
            return await handler(request)
        self.overviews += request.path == "/ui/api/models"
        if self.down:
            return web.json_response({"error": {"message": "No server can be reached."}}, status=503)
        if self.refusal and self.authorizations[-1]:
            return web.Response(text=self.refusal.body(), status=self.refusal.status, content_type="application/json")
        key = request.headers.get("X-Api-Key") or self.authorizations[-1].removeprefix("Bearer ")
        if self.key and key != self.key:
            return web.json_response({"error": {"message": "No API key, or an incorrect one."}}, status=401)
        return await handler(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.questions.append(await request.json())
        if not self.questions[-1].get("stream"):
            return web.json_response({"choices": [{"message": {"role": "assistant", "content": "A ramp."}}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while (event := await self._events.get()) is not None:
            await response.write(f"data: {event}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        self.questions.append(await request.json())
        return web.json_response({"data": [{"embedding": [0.25, -0.5, 0.125]}]})

    async def _message(self, request: web.Request) -> web.StreamResponse:
        self.questions.append(await request.json())
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return web.json_response({**answer, "content": [{"type": "text", "text": "A ramp."}], "usage": usage})


@pytest.fixture
def make_stage() -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def make(key: str = "") -> Stage:
        stage = Stage()
        stage.key = key
        stage.start()
        stages.append(stage)
        return stage

    yield make
    for stage in stages:
        stage.stop()


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    return make_stage()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for one file of tests: while it is driven, no test of this process could have an event loop."""
    if not CHROMIUM:
        pytest.skip("no Chromium here: scripts/chromium.sh installs it")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=PATIENCE
        )
        yield opened
        opened.close()


class Tab:
    """A tab of the browser, and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)


@pytest.fixture
def make_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    contexts: list[Any] = []

    def make(**options: Any) -> Tab:
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", "timezone_id": "UTC", **options}
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        return Tab(context.new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def tab(make_tab: Callable[..., Tab]) -> Tab:
    return make_tab()
