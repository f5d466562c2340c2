"""A small Cloud Storage: its JSON API, and the token service that service accounts ask."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import unquote

import google_crc32c
from aiohttp import web

PAGE = 2


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


class Store:
    """``objects`` of the one bucket ``models``; composite ones have no MD5."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.composite: set[str] = set()
        self.crc: dict[str, str] = {}
        """Object -> the hash to report instead of the real one."""
        self.generation = "7"
        """Of all objects."""
        self.token = ""
        """Asked of every request where it is set."""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/storage/v1/b/{bucket}/o", self._list)
        app.router.add_get("/storage/v1/b/{bucket}/o/{name:.*}", self._get)
        app.router.add_post("/token", self._exchange)
        return app

    def _row(self, name: str) -> dict[str, str]:
        body = self.objects[name]
        crc = google_crc32c.value(body).to_bytes(4, "big")
        row = {
            "name": name,
            "size": str(len(body)),
            "generation": self.generation,
            "crc32c": self.crc.get(name) or b64(crc),
        }
        if name not in self.composite:
            row["md5Hash"] = b64(hashlib.md5(body).digest())  # noqa: S324
        return row

    def _check(self, request: web.Request) -> None:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise web.HTTPUnauthorized
        if request.match_info["bucket"] != "models":
            raise web.HTTPNotFound

    async def _list(self, request: web.Request) -> web.Response:
        self._check(request)
        names = [name for name in sorted(self.objects) if name.startswith(request.query.get("prefix", ""))]
        start = int(request.query.get("pageToken", "0"))
        page: dict[str, object] = {"items": [self._row(name) for name in names[start : start + PAGE]]}
        if start + PAGE < len(names):
            page["nextPageToken"] = str(start + PAGE)
        return web.json_response(page)

    async def _get(self, request: web.Request) -> web.Response:
        self._check(request)
        body = self.objects.get(unquote(request.match_info["name"]))
        assert request.query["alt"] == "media"
        if body is None or request.query["generation"] != self.generation:
            raise web.HTTPNotFound
        start = request.http_range.start
        if start is None:
            return web.Response(body=body)
        headers = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        return web.Response(status=206, body=body[start:], headers=headers)

    async def _exchange(self, _request: web.Request) -> web.Response:
        return web.json_response({"access_token": self.token, "expires_in": 3600, "token_type": "Bearer"})
