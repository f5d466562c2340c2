"""Another cluster's catalog, for tests, with configured responses."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from slipway.artifacts.locations.address_policy import EVERYWHERE, AddressPolicy
from slipway.serving.wire.catalogs import VERSION

ANYWHERE = AddressPolicy(allowed=EVERYWHERE)
"""Tests' servers are on this machine."""
TOKEN = "a-credential"
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


def entry(name: str = "tiny", digest: str = DIGEST, **fields: Any) -> dict[str, Any]:
    return {"name": name, "digest": digest, "mediaType": "application/vnd.example", "size": 5, **fields}


def catalog(*entries: dict[str, Any], revision: str = "one", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "revision": revision, "entries": list(entries), **fields}


def grant(digest: str = DIGEST, **fields: Any) -> dict[str, Any]:
    place = {"registry": "registry.example:5000", "repository": "cluster/tiny/uid"}
    given = {"digest": digest, "token": "pull-token", "expiresAt": "2026-01-01T00:05:00Z"}
    return {"apiVersion": VERSION, **place, **given, **fields}


def data(**values: str) -> dict[str, str]:
    """Of a Secret."""
    return {name.replace("_", "."): b64encode(value.encode()).decode() for name, value in values.items()}


class CatalogServer:
    """Answers at ``/v1/catalog`` and ``/v1/grants``."""

    def __init__(self) -> None:
        self.document: Any = catalog(entry())
        self.grant: Any = grant()
        self.status = 200
        self.redirect = ""
        self.instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.accepted = {f"Bearer {TOKEN}"}
        self.requests: list[tuple[str, str]] = []
        """Path and If-None-Match of each request."""
        self.credentials: list[str] = []
        self.bodies: list[Any] = []

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/v1/catalog", self.catalog)
        application.router.add_post("/v1/grants", self.grants)
        application.router.add_get("/elsewhere", self.catalog)
        return application

    async def catalog(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, self.document)

    async def grants(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        return await self._answer(request, self.grant)

    async def _answer(self, request: web.Request, body: Any) -> web.StreamResponse:
        tag = request.headers.get("If-None-Match", "")
        self.requests.append((request.path, tag))
        self.credentials.append(request.headers.get("Authorization", ""))
        if self.instead is not None:
            return await self.instead(request)
        if self.redirect:
            raise web.HTTPTemporaryRedirect(self.redirect)
        if self.status != 200 or self.credentials[-1] not in self.accepted:
            return web.Response(status=self.status if self.status != 200 else 401)
        own = f'"{body.get("revision", "")}"' if isinstance(body, dict) else ""
        if own and tag == own:
            return web.Response(status=304)
        return web.Response(body=msgspec.json.encode(body), headers={"ETag": own})


class Endless:
    """A response that continues while the client reads, up to 1 GiB. ``sent`` counts the MiB."""

    def __init__(self) -> None:
        self.sent = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while self.sent < 1024:
                await response.write(b" " * (1 << 20))
                self.sent += 1
        except ConnectionError:
            pass
        return response


async def silent(request: web.Request) -> web.StreamResponse:
    """An answer that begins and never ends."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.sleep(3600)
    return response
