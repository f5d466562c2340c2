"""The HTTP API of a loader: its progress and, in a sidecar, the desired adapters and the readiness.

Only the controller may call the API, except for the readiness endpoint, which the kubelet probes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slipway.artifacts.locations.redaction import redact_url
from slipway.artifacts.locations.weights import FETCHED
from slipway.decoding import DecodingError, decode_json
from slipway.loader.agent.gate import Gate
from slipway.loader.agent.store import NAME
from slipway.serving.wire.agent import IN_PLACE, Adapter, AgentReport

LARGEST_BODY = 1 << 20
"""Maximum size of a request body in bytes."""
MOST_ADAPTERS = 1024
MOST_REQUESTS = 32
"""Maximum number of concurrent requests. The only client, the controller, rarely sends more than one."""


class AdapterAgent(Protocol):
    """The methods of the agent that the HTTP API calls."""

    def accept(self, desired: Sequence[Adapter], order: int) -> bool:
        """Replace the list of adapters to load. ``order`` is the time at which the controller signed the request, in
        Unix nanoseconds. Return False, and change nothing, if the last accepted request was signed at this time or
        later: the new request is then a replay."""

    def missing_adapters(self) -> list[str]:
        """Return the names of the adapters that the engine lost in a restart and must load again. Adapters that are not
        on the disk, or that the engine rejected, are left out."""


def application(report: Callable[[], AgentReport], gate: Gate, agent: AdapterAgent | None = None) -> web.Application:
    """Return the API as an application. ``report`` returns the loader's current state. Without an ``agent``, the
    endpoint for adapters returns 404, and the readiness endpoint always returns 200."""

    async def state(request: web.Request) -> web.Response:
        gate.verify(request)
        return _json(report())

    async def adapters(request: web.Request) -> web.Response:
        proven = gate.verify(request)
        if agent is None:
            raise web.HTTPNotFound
        body = await gate.body(request, proven)
        try:
            desired = decode_json(body, tuple[Adapter, ...], most=LARGEST_BODY)
        except DecodingError as error:
            raise web.HTTPBadRequest(text=f"the body is not a list of adapters: {error}") from error
        if fault := _fault(desired):
            raise web.HTTPBadRequest(text=fault)
        if not agent.accept(desired, proven.issued):
            raise web.HTTPForbidden(text="the order is not newer than the last one\n")
        return _json(report())

    async def healthy(_request: web.Request) -> web.Response:
        missing = agent.missing_adapters() if agent else []
        if missing:
            return web.Response(status=503, text=f"the engine restarted without: {', '.join(missing)}\n")
        return web.Response(text="ok\n")

    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_bounded()])
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


def _fault(desired: Sequence[Adapter]) -> str:
    """Return the problem with the desired adapters, or an empty string if there is none. Each adapter needs its own
    name, which becomes the name of a directory. Its URL must begin with ``IN_PLACE`` or have a scheme in ``FETCHED``.
    HTTP URLs are not allowed, because the author of a Model chooses the URL freely, and the pod may reach servers that
    the author cannot."""
    if len(desired) > MOST_ADAPTERS:
        return f"{len(desired)} adapters exceed the limit of {MOST_ADAPTERS}"
    if len({adapter.name for adapter in desired}) != len(desired):
        return "two adapters have the same name"
    bad = [adapter.name for adapter in desired if not NAME.fullmatch(adapter.name)]
    if bad:
        return f"{bad[0]!r} is not a valid adapter name"
    fetched = (adapter.url for adapter in desired if not adapter.url.startswith(IN_PLACE))
    foreign = [url for url in fetched if url.partition("://")[0] not in FETCHED]
    return f"{redact_url(foreign[0])!r} is not a URL of {', '.join(FETCHED)}" if foreign else ""


def _json(report: AgentReport) -> web.Response:
    return web.Response(body=msgspec.json.encode(report), content_type="application/json")
