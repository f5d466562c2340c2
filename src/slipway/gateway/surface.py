"""What the control process answers itself: the model list (behind HAProxy, on a Unix socket), health and metrics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from slipway.gateway.settings import address
from slipway.gateway.table import RoutingTable


def model_list(current: Callable[[], RoutingTable]) -> web.Application:
    """``/v1/models`` and ``/v1/models/{id}``; ids may hold slashes."""

    async def listed(_unused: web.Request) -> web.Response:
        table = current()
        return web.json_response({"object": "list", "data": [table.cards[model].public() for model in table.listed]})

    async def one(request: web.Request) -> web.Response:
        model = request.match_info["model"]
        card = current().cards.get(model)
        return web.json_response(card.public()) if card else _unknown(model)

    application = web.Application()
    application.add_routes([web.get("/v1/models", listed), web.get("/v1/models/{model:.+}", one)])
    return application


def _unknown(model: str) -> web.Response:
    error = {
        "message": f"The model `{model[:128]}` does not exist.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    return web.Response(status=404, text=json.dumps({"error": error}), content_type="application/json")


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
