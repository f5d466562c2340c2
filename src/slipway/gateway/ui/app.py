"""HTTP handlers below ``/ui/``: the page's files, and its JSON API."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import NamedTuple

import msgspec
from aiohttp import web

from slipway import __version__
from slipway.gateway.haproxy.metrics import BackendCounters, RawCounters, parse_counters
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.keys import Rights, get_rights
from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules.limits import KEY_HEADER, permitted_backends
from slipway.gateway.rules.page import FILES
from slipway.gateway.ui.overview import (
    Cluster,
    Conflict,
    Detail,
    Model,
    build_detail,
    build_models,
    find_conflicts,
    restrict_to,
)

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FRESH_SECONDS = 1.0
"""Seconds for which an answer is cached, so that many open pages share it."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
"""Headers of every answer below ``/ui/``. They restrict browsers to the gateway's own files, and keep scripts from
interpreting text as markup."""


class CachedAnswer(NamedTuple):
    """A response body that several requests share, with its gzip-compressed form and its ETag."""

    content_type: str
    body: bytes
    packed: bytes
    tag: str

    def respond(self, request: web.Request) -> web.Response:
        """Return the response to a request: status 304 if the client already has the body, and otherwise the body,
        compressed if the client accepts gzip."""
        headers = {**HEADERS, "ETag": self.tag}
        if request.headers.get("If-None-Match") == self.tag:
            return web.Response(status=304, headers=headers)
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers["Content-Type"] = f"{self.content_type}; charset=utf-8"
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=self.packed if packed else self.body, headers=headers)


def build_answer(content_type: str, body: bytes) -> CachedAnswer:
    """Build a cached answer: compress the body, and compute its ETag."""
    tag = hashlib.sha256(body).hexdigest()[:20]
    return CachedAnswer(content_type, body, gzip.compress(body, 6, mtime=0), f'"{tag}"')


class Overview(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The JSON document for the initial view of the gateway's web page."""

    version: str
    replica: str
    """Name of the gateway pod that answers. Each pod counts only its own requests."""
    keys: bool
    """Whether requests need an API key."""
    away_since: int = 0
    """Unix time since which the API server has been unreachable; omitted while it responds."""
    unread: tuple[str, ...] = ()
    """Kinds of resources that cannot be read from the API server."""
    counted: bool
    """Whether HAProxy's counters are available."""
    models: tuple[Model, ...]
    conflicts: tuple[Conflict, ...]


class Page:
    """The HTTP handlers of the page."""

    def __init__(
        self,
        table: Callable[[], RoutingTable],
        cluster: Callable[[], Cluster],
        counters: Callable[[], Awaitable[RawCounters]],
        *,
        keys: bool,
        replica: str,
        rights: Callable[[], Mapping[str, Rights]] = dict,
    ) -> None:
        """``counters`` may raise CommandError. ``replica`` is the name of this pod. ``rights`` returns the rights by
        the name of the API key."""
        self._table, self._cluster, self._fetch_counters = table, cluster, counters
        self._keys, self._replica, self._rights = keys, replica, rights
        self._lock, self._counting = asyncio.Lock(), asyncio.Lock()
        self._last_reading: tuple[float, Mapping[str, BackendCounters] | None] = (-_FRESH_SECONDS, None)
        """Monotonic time of the last reading, and HAProxy's counters by backend; None if HAProxy did not respond."""
        self._overviews: dict[str, tuple[float, CachedAnswer]] = {}
        """Name of the API key -> monotonic time and answer. Keys that may use every model share the empty name."""

    def add_to(self, application: web.Application) -> None:
        """Add the routes below ``/ui/`` to an application."""
        files = {name: _file(name or "index.html") for name in FILES}

        async def send_file(request: web.Request) -> web.Response:
            return files[request.path.removeprefix("/ui/")].respond(request)

        async def list_models(request: web.Request) -> web.Response:
            return (await self.overview(request.headers.get(KEY_HEADER, ""))).respond(request)

        async def show_model(request: web.Request) -> web.Response:
            named = request.match_info
            namespace = "" if named["namespace"] == "-" else named["namespace"]
            own = request.headers.get(KEY_HEADER, "")
            document = await self.detail(named["kind"], namespace, named["name"], own)
            return (
                build_answer("application/json", msgspec.json.encode(document)).respond(request)
                if document
                else _model_not_found()
            )

        application.add_routes([web.get(f"/ui/{name}", send_file) for name in FILES])
        application.add_routes(
            [web.get("/ui/api/models", list_models), web.get("/ui/api/models/{kind}/{namespace}/{name}", show_model)]
        )
        application.router.add_get("/ui/{path:.*}", _path_not_found)

    async def overview(self, api_key: str = "") -> CachedAnswer:
        """Return the overview as JSON, with only the models and conflicts that the API key named ``api_key`` may see.
        An empty name may see everything."""
        name = api_key if get_rights(self._rights(), api_key).restricted else ""
        async with self._lock:
            now = time.monotonic()
            fresh = {key: one for key, one in self._overviews.items() if now - one[0] < _FRESH_SECONDS}
            if name not in fresh:
                fresh[name] = (
                    now,
                    build_answer("application/json", msgspec.json.encode(await self._build_overview(name))),
                )
            self._overviews = fresh
            return fresh[name][1]

    async def _build_overview(self, api_key: str) -> Overview:
        counters = await self._get_counters()
        cluster, table = self._visible_to(api_key)
        return Overview(
            version=__version__,
            replica=self._replica,
            keys=self._keys,
            away_since=int(cluster.away_since),
            unread=cluster.unread,
            counted=counters is not None,
            models=tuple(build_models(cluster, table, counters or {})),
            conflicts=tuple(find_conflicts(cluster, table)),
        )

    async def detail(self, kind: str, namespace: str, name: str, api_key: str = "") -> Detail | None:
        """Return all data of a model. Return None if the model does not exist, or the API key named ``api_key`` must
        not use it. An empty name may use every model. ``kind`` and ``namespace`` are as in ``Model``."""
        counters = await self._get_counters()
        cluster, table = self._visible_to(api_key)
        return build_detail(cluster, table, counters or {}, kind, namespace, name)

    def _visible_to(self, api_key: str) -> tuple[Cluster, RoutingTable]:
        cluster, table = self._cluster(), self._table()
        rights = get_rights(self._rights(), api_key)
        return restrict_to(cluster, table, permitted_backends(rights, table)) if rights.restricted else (cluster, table)

    async def _get_counters(self) -> Mapping[str, BackendCounters] | None:
        """Return HAProxy's counters, which are read at most once per second, or None if HAProxy does not respond."""
        async with self._counting:
            now = time.monotonic()
            if now - self._last_reading[0] >= _FRESH_SECONDS:
                self._last_reading = (now, await self._read_counters())
            return self._last_reading[1]

    async def _read_counters(self) -> Mapping[str, BackendCounters] | None:
        try:
            return parse_counters(await self._fetch_counters())
        except CommandError:
            return None


def _file(name: str) -> CachedAnswer:
    text = (resources.files(__package__) / "static" / name).read_bytes()
    return build_answer(_TYPES[name[name.index(".") :]], text)


def _model_not_found() -> web.Response:
    return web.json_response({"error": {"message": "There is no such model."}}, status=404, headers=HEADERS)


async def _path_not_found(_unused: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "There is nothing at this path."}}, status=404, headers=HEADERS)
