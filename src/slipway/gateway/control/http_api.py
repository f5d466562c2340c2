"""HTTP server of the control process: the model list (on a Unix socket, behind HAProxy), health and metrics."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slipway.gateway import errors
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing import keys
from slipway.gateway.routing.keys import UNLIMITED, Rights
from slipway.gateway.routing.selector import HEADER
from slipway.gateway.routing.table import EMPTY, Card, RoutingTable
from slipway.gateway.rules.limits import KEY_HEADER, may_learn_refusal, permitted_backends
from slipway.gateway.settings import split_address
from slipway.serving.routing.route import TEXT_GENERATION
from slipway.serving.routing.selector import InvalidSelectorError, Requirement, chosen, parse

MOST_SELECTOR = 1024
"""Maximum total length in characters of a request's label selectors, which are evaluated for every model in the
list."""
MOST_COUNTED = 256
"""Maximum number of Services in one request for counts."""
TABLE_SECONDS = 30.0
"""Seconds for which requests for the model list wait for the first routing table."""
BAD_REQUEST, INTERNAL_ERROR = 400, 500
HEADER_BYTES = 65536
"""Maximum length of a header line in bytes. HAProxy accepts less, so the framework's parser never rejects a request."""
log = logging.getLogger(__name__)
_BACKLOG = 1024
_BATCH_SIZE = 200
"""Number of models to filter before other tasks of the process may run."""


class ModelList:
    """The model list of the latest routing table. It encodes the cards and the default list once per table."""

    def __init__(self, current: Callable[[], RoutingTable]) -> None:
        self._get_table = current
        self._encoded_table = EMPTY
        self._encoded_cards: Mapping[str, bytes] = {}
        self._default_list = _encode_list(())

    async def encode(
        self, features: frozenset[str], requirements: Sequence[Requirement], rights: Rights = UNLIMITED
    ) -> bytes:
        """Return the list as JSON. A model must be allowed by ``rights``, have any of ``features`` (see ``is_listed``),
        and meet all ``requirements``."""
        table = self._get_table()
        if table is not self._encoded_table:
            self._encoded_cards = {model: msgspec.json.encode(table.cards[model].to_json()) for model in table.listed}
            self._default_list = _encode_list(
                self._encoded_cards[model] for model in table.listed if is_listed(table.cards[model], frozenset())
            )
            self._encoded_table = table
        if not features and not requirements and not rights.restricted:
            return self._default_list
        texts, entries = self._encoded_cards, []
        allowed = permitted_backends(rights, table) if rights.restricted else None
        for start in range(0, len(table.listed), _BATCH_SIZE):
            for model in table.listed[start : start + _BATCH_SIZE]:
                card = table.cards[model]
                permitted = allowed is None or table.models[model] in allowed
                if permitted and is_listed(card, features) and chosen(requirements, card.labels):
                    entries.append(texts[model])
            await asyncio.sleep(0)
        return _encode_list(entries)


def _encode_list(cards: Iterable[bytes]) -> bytes:
    return b'{"object":"list","data":[' + b",".join(cards) + b"]}"


def build_model_list(
    current: Callable[[], RoutingTable], rights: Callable[[], Mapping[str, Rights]] = dict
) -> web.Application:
    """Return the application for ``/v1/models`` and ``/v1/models/{id}``. IDs may contain slashes.

    Both paths support label selectors, and show only models that the rights of the request's API key allow. ``rights``
    returns the rights by the name of the key.
    """
    models = ModelList(current)

    def rights_of(request: web.Request) -> Rights:
        return keys.get_rights(rights(), request.headers.get(KEY_HEADER, ""))

    async def list_models(request: web.Request) -> web.Response:
        try:
            requirements = _parse_selectors(request)
        except RequestError as error:
            return _error_response(error.response)
        body = await models.encode(frozenset(request.query.getall("feature", [])), requirements, rights_of(request))
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def show_model(request: web.Request) -> web.Response:
        try:
            requirements = _parse_selectors(request)
        except RequestError as error:
            return _error_response(error.response)
        model = request.match_info["model"]
        table, own = current(), rights_of(request)
        card = table.cards.get(model)
        permitted = not own.restricted or table.models.get(model) in permitted_backends(own, table)
        if card and permitted and chosen(requirements, card.labels):
            return web.json_response(card.to_json())
        reason = table.refused.get(model)
        if reason and may_learn_refusal(own, model):
            body = errors.not_ready(model, "is rejected", reason)
            return web.Response(status=503, text=body, content_type="application/json", headers={"Retry-After": "10"})
        return _error_response(_unknown_model(model))

    application = web.Application(middlewares=[format_errors])
    application.add_routes(
        [
            web.get("/v1/models", list_models),
            web.get("/v1/models/", list_models),
            web.get(r"/v1/models/{model:[\s\S]+}", show_model),
        ]
    )
    return application


@web.middleware
async def format_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert errors of the framework, for example for unknown paths, to OpenAI's format. Unexpected exceptions become
    status 500."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < BAD_REQUEST:
            raise
        error_response = next((one for one in errors.BY_STATUS if one.status == error.status), None)
        return _error_response(error_response or errors.ErrorResponse(error.status, f"{error.reason}."))
    except Exception:
        log.exception("Cannot answer %s %s", request.method, request.path[:200])
        return _error_response(next(one for one in errors.BY_STATUS if one.status == INTERNAL_ERROR))


def wait_for_table(ready: asyncio.Event) -> Middleware:
    """Return middleware that delays requests below ``/v1/`` until ``ready``, when the first table exists. An empty
    model list would be wrong. After ``TABLE_SECONDS``, the middleware returns status 503."""

    @web.middleware
    async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/v1/"):
            try:
                async with asyncio.timeout(TABLE_SECONDS):
                    await ready.wait()
            except TimeoutError:
                return _error_response(errors.UNKNOWN_YET)
        return await handler(request)

    return wait


def is_listed(card: Card, features: frozenset[str]) -> bool:
    """Whether the list contains a model. The model must have any of ``features``. If none are given, it must support
    text generation or have no features."""
    if features:
        return not features.isdisjoint(card.features)
    return not card.features or TEXT_GENERATION in card.features


class RequestError(Exception):
    """The request is invalid. ``response`` is the error response to send."""

    def __init__(self, response: errors.ErrorResponse) -> None:
        super().__init__(response.message)
        self.response = response


def _parse_selectors(request: web.Request) -> Sequence[Requirement]:
    """Parse the label selectors in a request's headers. Raise RequestError if they are too long or invalid."""
    selectors = request.headers.getall(HEADER, [])
    if sum(map(len, selectors)) > MOST_SELECTOR:
        raise RequestError(errors.LONG_SELECTOR)
    try:
        return parse(*selectors)
    except InvalidSelectorError as error:
        raise RequestError(errors.BAD_SELECTOR) from error


def _unknown_model(model: str) -> errors.ErrorResponse:
    return errors.ErrorResponse(
        404, f"The model `{model[:128]}` does not exist. {errors.LIST_MODELS}", param="model", code="model_not_found"
    )


def _error_response(error: errors.ErrorResponse) -> web.Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    return web.Response(status=error.status, text=error.body(), content_type="application/json", headers=headers)


def build_operations(
    ready: Callable[[], bool],
    refresh: Callable[[], Awaitable[None]],
    text: Callable[[], bytes],
    requests: Callable[[Sequence[str]], Awaitable[Mapping[str, int]]],
) -> web.Application:
    """Return the application for health checks and metrics.

    - ``/healthz`` succeeds while the process runs.
    - ``/readyz`` succeeds if the first table is applied and the gateway is not shutting down.
    - ``/metrics`` awaits ``refresh``, and then returns ``text``.
    - ``/requests`` returns the number of in-flight and waiting requests of the Services in the parameters ``service``.
      ``requests`` gets their names as ``namespace/name``, returns the numbers by name, and may raise CommandError.
    """

    async def healthz(_unused: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_unused: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="not ready")

    async def metrics(_unused: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        await refresh()
        return web.Response(body=text(), headers=headers)

    async def count_requests(request: web.Request) -> web.Response:
        services = request.query.getall("service", [])
        if len(services) > MOST_COUNTED:
            raise web.HTTPBadRequest(reason=f"More than {MOST_COUNTED} Services")
        try:
            return web.json_response(dict(await requests(services)))
        except CommandError as error:
            raise web.HTTPServiceUnavailable(reason="HAProxy does not answer") from error

    application = web.Application(middlewares=[format_errors])
    application.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
            web.get("/requests", count_requests),
        ]
    )
    return application


def open_unix_socket(path: Path) -> socket.socket:
    """Open a listening Unix socket, in place of an existing one. Clients can connect to it even while no server answers
    them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    opened = socket.socket(socket.AF_UNIX)
    opened.bind(str(path))
    opened.listen(_BACKLOG)
    return opened


@asynccontextmanager
async def serve(application: web.Application, listener: socket.socket | str) -> AsyncIterator[None]:
    """Serve an application while the context is active. ``listener`` is a listening socket, or ``[host]:port``."""
    runner = web.AppRunner(application, access_log=None, max_line_size=HEADER_BYTES, max_field_size=HEADER_BYTES)
    await runner.setup()
    try:
        site: web.BaseSite
        if isinstance(listener, str):
            host, port = split_address(listener)
            site = web.TCPSite(runner, host or None, port)
        else:
            site = web.SockSite(runner, listener, backlog=_BACKLOG)
        await site.start()
        yield
    finally:
        await runner.cleanup()
