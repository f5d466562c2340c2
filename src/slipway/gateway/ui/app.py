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
from slipway.gateway.haproxy.metrics import Answers, Figures, figures
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.keys import Rights, rights_of
from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules.limits import KEY_HEADER, backends_of
from slipway.gateway.rules.page import FILES
from slipway.gateway.ui.overview import Cluster, Conflict, Detail, Model, conflicts, detail, models, permitted

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


class Answer(NamedTuple):
    """A body that may be asked for again."""

    content_type: str
    body: bytes
    packed: bytes
    tag: str

    def to(self, request: web.Request) -> web.Response:
        """The response: nothing where the client has it, packed where it takes that."""
        headers = {**HEADERS, "ETag": self.tag}
        if request.headers.get("If-None-Match") == self.tag:
            return web.Response(status=304, headers=headers)
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers["Content-Type"] = f"{self.content_type}; charset=utf-8"
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=self.packed if packed else self.body, headers=headers)


def answer(content_type: str, body: bytes) -> Answer:
    """An answer with this body."""
    tag = hashlib.sha256(body).hexdigest()[:20]
    return Answer(content_type, body, gzip.compress(body, 6, mtime=0), f'"{tag}"')


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
        counters: Callable[[], Awaitable[Answers]],
        *,
        keys: bool,
        replica: str,
        rights: Callable[[], Mapping[str, Rights]] = dict,
    ) -> None:
        """``counters`` may raise CommandError. ``replica``: this pod. ``rights``: by name of the API key."""
        self._table, self._cluster, self._counters = table, cluster, counters
        self._keys, self._replica, self._rights = keys, replica, rights
        self._lock, self._counting = asyncio.Lock(), asyncio.Lock()
        self._counted: tuple[float, Mapping[str, Figures] | None] = (-_FRESH_SECONDS, None)
        """When HAProxy's counters were read, and the figures."""
        self._overviews: dict[str, tuple[float, Answer]] = {}
        """When each was made, and the answer; by API key, or by no name for all keys that may ask every model."""

    def add_to(self, application: web.Application) -> None:
        """Adds the routes below ``/ui/``."""
        files = {name: _file(name or "index.html") for name in FILES}

        async def file(request: web.Request) -> web.Response:
            return files[request.path.removeprefix("/ui/")].to(request)

        async def listed(request: web.Request) -> web.Response:
            return (await self.overview(request.headers.get(KEY_HEADER, ""))).to(request)

        async def one(request: web.Request) -> web.Response:
            named = request.match_info
            namespace = "" if named["namespace"] == "-" else named["namespace"]
            own = request.headers.get(KEY_HEADER, "")
            document = await self.detail(named["kind"], namespace, named["name"], own)
            return answer("application/json", msgspec.json.encode(document)).to(request) if document else _missing()

        application.add_routes([web.get(f"/ui/{name}", file) for name in FILES])
        application.add_routes(
            [web.get("/ui/api/models", listed), web.get("/ui/api/models/{kind}/{namespace}/{name}", one)]
        )
        application.router.add_get("/ui/{path:.*}", _nothing)

    async def overview(self, api_key: str = "") -> Answer:
        """The list of models and conflicts, as far as the key of this name may ask them."""
        name = api_key if rights_of(self._rights(), api_key).restricted else ""
        async with self._lock:
            now = time.monotonic()
            fresh = {key: one for key, one in self._overviews.items() if now - one[0] < _FRESH_SECONDS}
            if name not in fresh:
                fresh[name] = (now, answer("application/json", msgspec.json.encode(await self._listed(name))))
            self._overviews = fresh
            return fresh[name][1]

    async def _listed(self, api_key: str) -> Overview:
        counted = await self._count()
        cluster, table = self._seen_by(api_key)
        return Overview(
            version=__version__,
            replica=self._replica,
            keys=self._keys,
            away_since=int(cluster.away_since),
            unread=cluster.unread,
            counted=counted is not None,
            models=tuple(models(cluster, table, counted or {})),
            conflicts=tuple(conflicts(cluster, table)),
        )

    async def detail(self, kind: str, namespace: str, name: str, api_key: str = "") -> Detail | None:
        """One model in full, if the key of this name may ask it."""
        counted = await self._count()
        cluster, table = self._seen_by(api_key)
        return detail(cluster, table, counted or {}, kind, namespace, name)

    def _seen_by(self, api_key: str) -> tuple[Cluster, RoutingTable]:
        cluster, table = self._cluster(), self._table()
        rights = rights_of(self._rights(), api_key)
        return permitted(cluster, table, backends_of(rights, table)) if rights.restricted else (cluster, table)

    async def _count(self) -> Mapping[str, Figures] | None:
        """HAProxy's figures; None if it does not return them. All clients share one reading."""
        async with self._counting:
            now = time.monotonic()
            if now - self._counted[0] >= _FRESH_SECONDS:
                self._counted = (now, await self._read_figures())
            return self._counted[1]

    async def _read_figures(self) -> Mapping[str, Figures] | None:
        try:
            return figures(await self._counters())
        except CommandError:
            return None


def _file(name: str) -> Answer:
    text = (resources.files(__package__) / "static" / name).read_bytes()
    return answer(_TYPES[name[name.index(".") :]], text)


def _missing() -> web.Response:
    return web.json_response({"error": {"message": "There is no such model."}}, status=404, headers=HEADERS)


async def _nothing(_unused: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "There is nothing at this path."}}, status=404, headers=HEADERS)
