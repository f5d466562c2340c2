"""The depot's HTTP application: its endpoints, and the behavior that they share.

All responses forbid caching. Neither responses nor log lines contain credentials of a request.
"""

from __future__ import annotations

import logging
from collections import Counter as Counts
from collections.abc import Iterable, Sequence
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import Counter, Gauge

from slipway.decoding import describe_error
from slipway.kube.api.errors import ApiError, ForbiddenError
from slipway.kube.metrics import Metrics

log = logging.getLogger(__name__)

LARGEST_BODY = 64 << 10
"""Maximum size in bytes of a body that is read completely. Uploads are streamed instead."""
HEADERS = {
    "Cache-Control": "no-store",
    "Pragma": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
CLIENT_CLOSED_REQUEST = 499
"""Status in metrics if the client disconnects before the response."""
RIGHTS = "If a right is missing, run the role depot again"
BUSY_SECONDS = 5
"""Seconds in the header ``Retry-After`` for a client that the busy depot rejects."""


class Endpoint(Protocol):
    """A group of routes with their handlers."""

    name: str
    """Name of the endpoint in metrics."""

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the paths and their handlers. A handler raises RefusedError to reject a request."""


class RefusedError(Exception):
    """A rejected request: the HTTP status, one line of text, and headers of the response."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        """Set the response's status, text and headers. Names of ``headers`` have ``_`` instead of ``-``."""
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def busy(message: str) -> RefusedError:
    """Return the error for a request that the client should repeat in a moment: 503 with ``Retry-After``."""
    return RefusedError(503, message, Retry_After=str(BUSY_SECONDS))


def application(endpoints: Sequence[Endpoint], metrics: Metrics, *, at_once: int) -> web.Application:
    """Return the application with the routes of all endpoints. The application handles at most ``at_once`` requests at
    the same time, and at most half of them from one address. It rejects other requests with status 503."""
    shared = _Shared(endpoints, metrics, at_once)
    app = web.Application(middlewares=[shared.middleware], client_max_size=LARGEST_BODY)
    for endpoint in endpoints:
        app.add_routes(endpoint.routes())
    app.on_response_prepare.append(_add_headers)
    return app


class _Shared:
    def __init__(self, endpoints: Sequence[Endpoint], metrics: Metrics, at_once: int) -> None:
        self._endpoints = {route.path: endpoint.name for endpoint in endpoints for route in endpoint.routes()}
        self._at_once = at_once
        self._running = Gauge("slipway_depot_requests_running", "Requests in flight.", registry=metrics.registry)
        self._answers = Counter(
            "slipway_depot_answers", "Responses by endpoint and status.", ["door", "code"], registry=metrics.registry
        )
        self._in_flight, self._of_address = 0, Counts[str]()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        endpoint = self._endpoints.get(resource.canonical, "none") if resource else "none"
        address = request.remote or ""
        self._count(address, 1)
        status = CLIENT_CLOSED_REQUEST
        try:
            response = await self._answer(request, handler)
            status = response.status
        finally:
            self._count(address, -1)
            self._answers.labels(endpoint, str(status)).inc()
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if self._in_flight > self._at_once:
                raise busy("too many requests are being answered")
            if self._of_address[request.remote or ""] > max(self._at_once // 2, 1):
                raise busy("too many requests of this address are being answered")
            return await handler(request)
        except RefusedError as refused:
            return answer(refused)
        except web.HTTPException as error:
            return answer(RefusedError(error.status, error.reason, **_allowed(error)))
        except ForbiddenError as error:
            log.warning("%s: the API server rejected the request: %s", request.method, describe_error(error))
            return answer(RefusedError(403, f"the depot is not allowed to do this: {describe_error(error)}. {RIGHTS}"))
        except ApiError as error:
            log.warning("%s: the API server did not respond: %s", request.method, describe_error(error))
            return answer(busy("the API server did not respond: retry"))

    def _count(self, address: str, change: int) -> None:
        self._of_address[address] += change
        if not self._of_address[address]:
            del self._of_address[address]
        self._in_flight += change
        self._running.set(self._in_flight)


def answer(refused: RefusedError) -> web.Response:
    """Return the response to a rejected request. The response closes the connection, so that the server need not read
    the rest of the body."""
    response = web.Response(status=refused.status, text=f"{refused}\n", headers=refused.headers)
    response.force_close()
    return response


def _allowed(refused: web.HTTPException) -> dict[str, str]:
    return {"Allow": refused.headers["Allow"]} if "Allow" in refused.headers else {}


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
