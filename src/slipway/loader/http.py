"""What a loader answers on its port: its state, and where it has an agent the wish and the readiness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slipway.artifacts.addresses import public
from slipway.artifacts.urls import CACHED
from slipway.loader.agent.store import NAME
from slipway.serving.agent import Adapter, AgentReport

LARGEST_WISH = 1 << 20
"""Bytes."""
MOST_ADAPTERS = 1024
MOST_REQUESTS = 32
"""At a time; one controller asks once in a while."""


class Wishes(Protocol):
    """An agent, as its port sees it."""

    def wants(self, wish: Sequence[Adapter]) -> None:
        """Takes what is to be there from now on."""

    def lost(self) -> list[str]:
        """Adapters that the engine had before it restarted."""


def application(report: Callable[[], AgentReport], agent: Wishes | None = None) -> web.Application:
    async def state(_request: web.Request) -> web.Response:
        return _json(report())

    async def adapters(request: web.Request) -> web.Response:
        if agent is None:
            raise web.HTTPNotFound
        try:
            wish = msgspec.json.decode(await request.read(), type=tuple[Adapter, ...])
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"the body is no list of adapters: {error}") from error
        if fault := _fault(wish):
            raise web.HTTPBadRequest(text=fault)
        agent.wants(wish)
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
    """What is wrong with a wish; empty for a good one. Name and digest become folders; an address of the web could be
    one that only the pod can ask, and whoever reaches the port may wish."""
    if len(wish) > MOST_ADAPTERS:
        return f"{len(wish)} adapters are more than {MOST_ADAPTERS}"
    if len({adapter.name for adapter in wish}) != len(wish):
        return "two adapters have one name"
    bad = [word for adapter in wish for word in (adapter.name, adapter.digest) if not NAME.fullmatch(word)]
    if bad:
        return f"{bad[0]!r} is neither a name nor a digest"
    foreign = [adapter.url for adapter in wish if adapter.url.partition("://")[0] not in CACHED]
    return f"{public(foreign[0])!r} is no url of {', '.join(CACHED)}" if foreign else ""


def _json(report: AgentReport) -> web.Response:
    return web.Response(body=msgspec.json.encode(report), content_type="application/json")
