"""What the control process answers itself: the model list (behind HAProxy, on a Unix socket), health and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from slipway.gateway import errors, selector
from slipway.gateway.settings import address
from slipway.gateway.table import Card, RoutingTable

TEXT_GENERATION = "TextGeneration"
"""Models that say what they can do are listed by default where this is among it."""


def model_list(current: Callable[[], RoutingTable]) -> web.Application:
    """``/v1/models`` and ``/v1/models/{id}``; ids may hold slashes. Both obey label selectors."""

    async def listed(request: web.Request) -> web.Response:
        try:
            wanted = _wanted(request)
        except selector.InvalidSelector:
            return _refusal(errors.BAD_SELECTOR)
        table, features = current(), request.query.getall("feature", [])
        cards = map(table.cards.__getitem__, table.listed)
        found = [c.public() for c in cards if shown(c, features) and selector.chosen(wanted, c.labels)]
        return web.json_response({"object": "list", "data": found})

    async def one(request: web.Request) -> web.Response:
        try:
            wanted = _wanted(request)
        except selector.InvalidSelector:
            return _refusal(errors.BAD_SELECTOR)
        model = request.match_info["model"]
        card = current().cards.get(model)
        if card and selector.chosen(wanted, card.labels):
            return web.json_response(card.public())
        return _refusal(_unknown(model))

    application = web.Application()
    application.add_routes([web.get("/v1/models", listed), web.get("/v1/models/{model:.+}", one)])
    return application


def shown(card: Card, features: Sequence[str]) -> bool:
    """Whether the list shows a model: by any feature asked for; else text generators, and those that tell none."""
    if features:
        return not set(features).isdisjoint(card.features)
    return not card.features or TEXT_GENERATION in card.features


def _wanted(request: web.Request) -> Sequence[selector.Requirement]:
    return selector.parse(*request.headers.getall(selector.HEADER, []))


def _unknown(model: str) -> errors.Failure:
    return errors.Failure(404, f"The model `{model[:128]}` does not exist.", param="model", code="model_not_found")


def _refusal(failure: errors.Failure) -> web.Response:
    return web.Response(status=failure.status, text=failure.body(), content_type="application/json")


def operations(ready: Callable[[], bool], numbers: Callable[[], Awaitable[bytes]]) -> web.Application:
    """``/healthz`` (the process runs), ``/readyz`` (the first table is applied and no end is near), ``/metrics``."""

    async def healthz(_unused: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_unused: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="not ready")

    async def metrics(_unused: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await numbers(), headers=headers)

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application


@asynccontextmanager
async def served(application: web.Application, where: Path | str) -> AsyncIterator[None]:
    """Serves on a Unix socket (a path) or on ``[host]:port`` (text) while the context lasts."""
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site: web.BaseSite
        if isinstance(where, Path):
            where.unlink(missing_ok=True)  # noqa: ASYNC240  # one call at start
            site = web.UnixSite(runner, str(where))
        else:
            site = web.TCPSite(runner, *address(where))
        await site.start()
        yield
    finally:
        await runner.cleanup()
