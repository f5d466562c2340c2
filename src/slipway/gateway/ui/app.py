"""What the control process answers below ``/ui/``: the page's files, and its JSON interface."""

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
"""For so long an answer is given again: what many open pages ask for is made once."""

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
"""Of every answer. What a browser runs, loads and asks comes from here alone, and no text becomes markup."""


class CachedAnswer(NamedTuple):
    """A body that may be asked for again."""

    content_type: str
    body: bytes
    packed: bytes
    tag: str

    def respond(self, request: web.Request) -> web.Response:
        """The response: nothing where the client has it, packed where it takes that."""
        headers = {**HEADERS, "ETag": self.tag}
        if request.headers.get("If-None-Match") == self.tag:
            return web.Response(status=304, headers=headers)
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers["Content-Type"] = f"{self.content_type}; charset=utf-8"
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=self.packed if packed else self.body, headers=headers)


def build_answer(content_type: str, body: bytes) -> CachedAnswer:
    """An answer with this body."""
    tag = hashlib.sha256(body).hexdigest()[:20]
    return CachedAnswer(content_type, body, gzip.compress(body, 6, mtime=0), f'"{tag}"')


class Overview(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that the page shows at first."""

    version: str
    replica: str
    """Which of the gateway's pods says this. Requests are counted by each for itself."""
    keys: bool
    """Whether requests need an API key."""
    away_since: int = 0
    """Unix time since when the API server does not answer; missing while it does."""
    unread: tuple[str, ...] = ()
    """Kinds that cannot be read."""
    counted: bool
    """Whether HAProxy told its counters."""
    models: tuple[Model, ...]
    conflicts: tuple[Conflict, ...]


class Page:
    """The page's view of cluster and gateway."""

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
        """``counters`` may raise CommandError. ``replica``: this pod. ``rights``: by name of the API key."""
        self._table, self._cluster, self._fetch_counters = table, cluster, counters
        self._keys, self._replica, self._rights = keys, replica, rights
        self._lock, self._counting = asyncio.Lock(), asyncio.Lock()
        self._last_reading: tuple[float, Mapping[str, BackendCounters] | None] = (-_FRESH_SECONDS, None)
        """When HAProxy's counters were read, and the figures."""
        self._overviews: dict[str, tuple[float, CachedAnswer]] = {}
        """When each was made, and the answer; by API key, or by no name for all keys that may ask every model."""

    def add_to(self, application: web.Application) -> None:
        """Adds the routes below ``/ui/``."""
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
        """The list of models and conflicts, as far as the key of this name may ask them."""
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
        """One model in full, if the key of this name may ask it."""
        counters = await self._get_counters()
        cluster, table = self._visible_to(api_key)
        return build_detail(cluster, table, counters or {}, kind, namespace, name)

    def _visible_to(self, api_key: str) -> tuple[Cluster, RoutingTable]:
        cluster, table = self._cluster(), self._table()
        rights = get_rights(self._rights(), api_key)
        return restrict_to(cluster, table, permitted_backends(rights, table)) if rights.restricted else (cluster, table)

    async def _get_counters(self) -> Mapping[str, BackendCounters] | None:
        """HAProxy's figures; None if it does not return them. All clients share one reading."""
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
