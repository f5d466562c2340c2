"""A proxy between one controller process and the API server, which does to requests and watches what a test says.

It narrows the controller's view to one namespace, by asking for that namespace where the controller asks for all, so
that tests neither see nor disturb anything else on the cluster.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from slipway.kube.api.credentials import Credentials

Object = dict[str, Any]
Action = Callable[["Exchange"], Awaitable[web.StreamResponse]]

ALL_NAMESPACES = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)/(?!(?:namespaces|nodes|priorityclasses)$)[a-z]+")
PATH = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)/namespaces/[^/]+/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?")
VARYING = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+")
"""The parts of a write that differ in each attempt: UIDs, versions, times."""
UNCOUNTED = ("leases", "events", "secrets")
"""Writes of these kinds are not part of a scenario's writes."""


def unvaried(body: bytes) -> bytes:
    """The body of a write without the parts that differ in each attempt."""
    return VARYING.sub(b"", body)


class Exchange:
    """One request of the controller."""

    def __init__(self, proxy: Proxy, request: web.Request, body: bytes) -> None:
        self.at = time.monotonic()
        self.request, self.body, self.method = request, body, request.method
        self.query = dict(request.query)
        match = PATH.fullmatch(proxy.narrowed(request.path))
        self.resource, self.name, subresource = match.groups() if match else (request.path, "", "")
        self.write = request.method != "GET" and self.resource not in UNCOUNTED
        self.label = f"{proxy.stage} {self.resource}" + (f"/{subresource}" if subresource else "")
        self.status = 0
        """What came back; 0 for no answer."""
        self.forwarded = False
        self._proxy = proxy

    @property
    def watch(self) -> bool:
        return "watch" in self.query

    @property
    def list(self) -> bool:
        return "limit" in self.query

    async def forward(self) -> web.StreamResponse:
        """Lets the API server answer."""
        return await self._proxy.forward(self)

    def __repr__(self) -> str:
        return f"{self.method} {self.label} {self.name or ''} -> {self.status}"


class Fault:
    """Does ``action`` to the next ``times`` requests for which ``wants`` holds."""

    def __init__(self, wants: Callable[[Exchange], bool], action: Action, times: int = 1) -> None:
        self.wants, self.action, self.left = wants, action, times
        self.fired: list[Exchange] = []


def writes(label: str) -> Callable[[Exchange], bool]:
    """Matches writes such as ``create deployments`` or ``change models/status`` (stage, resource)."""
    return lambda exchange: exchange.write and exchange.label == label


def answer(code: int, reason: str, message: str = "injected", headers: dict[str, str] | None = None) -> Action:
    async def act(exchange: Exchange) -> web.StreamResponse:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        exchange.status = code
        return web.json_response({**status, "message": message}, status=code, headers=headers)

    return act


def line(obj: Object) -> Action:
    """A watch that tells one event, made up, and ends."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        exchange.status = 200
        return web.Response(body=json.dumps(obj).encode() + b"\n")

    return act


async def drop(exchange: Exchange) -> web.StreamResponse:
    """The request gets lost on its way."""
    assert exchange.request.transport is not None
    exchange.request.transport.abort()
    raise asyncio.CancelledError


async def lose_answer(exchange: Exchange) -> web.StreamResponse:
    """The API server does it, but the controller never hears of it."""
    await exchange.forward()
    exchange.status = 0
    return await drop(exchange)


async def black_hole(exchange: Exchange) -> web.StreamResponse:
    """No answer, no refusal."""
    await asyncio.sleep(3600)
    return await drop(exchange)


class Proxy:
    """Listens on a free port of 127.0.0.1. Everything about it may be changed while it runs."""

    def __init__(self, upstream: Credentials, session: aiohttp.ClientSession, namespace: str) -> None:
        self._upstream, self._session, self._namespace = upstream, session, namespace
        self.stage = "start"
        """Name of the scenario's step, the first word of each write's label."""
        self.log: list[Exchange] = []
        self.faults: list[Fault] = []
        self.delay = 0.0
        """Seconds by which watches lag behind."""
        self.page = 0
        """Objects on a page of a list; 0: as asked."""
        self.token = ""
        """The only bearer token that is taken; empty: none is asked for."""
        self.past: dict[str, bytes] = {}
        """Resource -> the list that is answered instead of the real one."""
        self._watches: set[asyncio.Event] = set()
        self._silent: set[asyncio.Event] = set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()

    def cut(self) -> None:
        """Ends the watches that run, cleanly."""
        for end in self._watches:
            end.set()

    def silence(self) -> None:
        """The watches that run tell nothing any more, but stay open: half-open connections."""
        self._silent |= self._watches

    @property
    def writes(self) -> list[Exchange]:
        return [exchange for exchange in self.log if exchange.write]

    def narrowed(self, path: str) -> str:
        if ALL_NAMESPACES.fullmatch(path):
            head, _unused, resource = path.rpartition("/")
            return f"{head}/namespaces/{self._namespace}/{resource}"
        return path

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(self, request, await request.read())
        self.log.append(exchange)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return await answer(401, "Unauthorized")(exchange)
        for fault in self.faults:
            if fault.left and fault.wants(exchange):
                fault.left -= 1
                fault.fired.append(exchange)
                return await fault.action(exchange)
        if exchange.list and exchange.resource in self.past:
            return web.Response(body=self.past[exchange.resource], content_type="application/json")
        return await self.forward(exchange)

    async def forward(self, exchange: Exchange) -> web.StreamResponse:
        query = exchange.query | ({"limit": str(self.page)} if self.page and exchange.list else {})
        headers = {"Accept": "application/json"}
        if exchange.body:
            headers["Content-Type"] = exchange.request.headers["Content-Type"]
        if authorization := await self._upstream.authorization():
            headers["Authorization"] = authorization
        url = URL(self._upstream.host + self.narrowed(exchange.request.path)).with_query(query)
        exchange.forwarded = True
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            exchange.method, url, data=exchange.body or None, headers=headers, timeout=timeout
        ) as response:
            exchange.status = response.status
            if exchange.watch and response.status == 200:
                return await self._follow(exchange, response)
            kept = {name: value for name, value in response.headers.items() if name == "Retry-After"}
            body = await response.read()
            return web.Response(status=response.status, body=body, content_type="application/json", headers=kept)

    async def _follow(self, exchange: Exchange, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        """Forwards a watch, with a delay if ``delay`` is set, until it ends or is cut."""
        response = web.StreamResponse()
        await response.prepare(exchange.request)
        end = asyncio.Event()
        self._watches.add(end)
        relay = asyncio.create_task(self._tell(upstream, response, end))
        ended = asyncio.create_task(end.wait())
        try:
            await asyncio.wait({relay, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._watches.discard(end)
            for task in (relay, ended):
                task.cancel()
        return response

    async def _tell(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, end: asyncio.Event) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            async for text in upstream.content:
                late.put_nowait((time.monotonic() + self.delay, text))

        reading = asyncio.create_task(read())
        try:
            while not (reading.done() and late.empty()):
                try:
                    due, text = await asyncio.wait_for(late.get(), 0.2)
                except TimeoutError:
                    continue
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if end not in self._silent:
                    await response.write(text)
        finally:
            reading.cancel()
