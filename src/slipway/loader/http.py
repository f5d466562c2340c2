"""What a loader answers on its port: its state, and where it has an agent the wish and the readiness.

The controller alone may ask; only the readiness, which the kubelet asks for, is anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slipway.artifacts.addresses import public
from slipway.artifacts.urls import CACHED
from slipway.decoding import DecodingError, decode_json
from slipway.loader.agent.store import NAME
from slipway.loader.gate import Gate
from slipway.serving.agent import Adapter, AgentReport

LARGEST_WISH = 1 << 20
"""Bytes."""
MOST_ADAPTERS = 1024
MOST_REQUESTS = 32
"""At a time; one controller asks once in a while."""


class Wishes(Protocol):
    """An agent, as its port sees it."""

    def wants(self, wish: Sequence[Adapter], order: int) -> bool:
        """Takes what is to be there from now on. ``order``: when that was signed; False where it is not later than the
        last order that was taken, so that it is an old one."""

    def lost(self) -> list[str]:
        """Adapters that the engine had before it restarted."""


def application(report: Callable[[], AgentReport], gate: Gate, agent: Wishes | None = None) -> web.Application:
    async def state(request: web.Request) -> web.Response:
        gate.admitted(request)
        return _json(report())

    async def adapters(request: web.Request) -> web.Response:
        proven = gate.admitted(request)
        if agent is None:
            raise web.HTTPNotFound
        body = await gate.body(request, proven)
        try:
            wish = decode_json(body, tuple[Adapter, ...], most=LARGEST_WISH)
        except DecodingError as error:
            raise web.HTTPBadRequest(text=f"the body is no list of adapters: {error}") from error
        if fault := _fault(wish):
            raise web.HTTPBadRequest(text=fault)
        if not agent.wants(wish, proven.issued):
            raise web.HTTPForbidden(text="the order is not later than the last one: it was sent before\n")
        return _json(report())

    async def healthy(_request: web.Request) -> web.Response:
        lost = agent.lost() if agent else []
        if lost:
            return web.Response(status=503, text=f"the engine has to load again: {', '.join(lost)}\n")
        return web.Response(text="ok\n")

    app = web.Application(client_max_size=LARGEST_WISH, middlewares=[_bounded()])
    app.router.add_get("/v1/state", state)
    app.router.add_put("/v1/adapters", adapters)
    app.router.add_get("/healthz", healthy)
    return app


def _bounded() -> Middleware:
    running = 0

    @web.middleware
    async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal running
        if running >= MOST_REQUESTS:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"})
        running += 1
        try:
            return await handler(request)
        finally:
            running -= 1

    return bounded


def _fault(wish: Sequence[Adapter]) -> str:
    """What is wrong with a wish; empty for a good one. A name becomes a folder; an address of the web could be one that
    only the pod can ask, and whoever writes Models may name any."""
    if len(wish) > MOST_ADAPTERS:
        return f"{len(wish)} adapters are more than {MOST_ADAPTERS}"
    if len({adapter.name for adapter in wish}) != len(wish):
        return "two adapters have one name"
    bad = [adapter.name for adapter in wish if not NAME.fullmatch(adapter.name)]
    if bad:
        return f"{bad[0]!r} is no name of an adapter"
    foreign = [adapter.url for adapter in wish if adapter.url.partition("://")[0] not in CACHED]
    return f"{public(foreign[0])!r} is no url of {', '.join(CACHED)}" if foreign else ""


def _json(report: AgentReport) -> web.Response:
    return web.Response(body=msgspec.json.encode(report), content_type="application/json")
