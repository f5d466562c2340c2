"""A registry in memory, as far as the depot asks one: uploads, blobs, manifests, and what can go wrong with them."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from .test_signing import read

Answer = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class FakeRegistry:
    def __init__(self) -> None:
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.tags: dict[tuple[str, str], str] = {}
        self.uploads: dict[str, bytearray] = {}
        self.log: list[tuple[str, str]] = []
        self.url = ""
        self.interfere: Answer | None = None
        """Its answer, if any, replaces the registry's."""

    def tagged(self, repository: str, tag: str = "session") -> dict[str, Any]:
        return json.loads(self.manifests[repository, self.tags[repository, tag]])

    def content(self, repository: str, tag: str = "session") -> bytes:
        """All layers of a manifest, one after the other."""
        return b"".join(self.blobs[repository, layer["digest"]] for layer in self.tagged(repository, tag)["layers"])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.log.append((request.method, request.path))
        if self.interfere is not None and (answer := await self.interfere(request)) is not None:
            return answer
        if request.path == "/v2/_catalog":
            return self._catalog(request)
        matched = re.fullmatch(r"/v2/(.+)/(blobs|manifests|tags)/(.+|uploads/)", request.path)
        assert matched, request.path
        repository, kind, what = matched.groups()
        if what.startswith("uploads/"):
            kind, what = "uploads", what.removeprefix("uploads/")
        _header, claims = read(request.headers["Authorization"].removeprefix("Bearer "))
        assert claims["access"] == [{"type": "repository", "name": repository, "actions": ["pull", "push", "delete"]}]
        return await getattr(self, f"{kind}_{request.method.lower()}")(request, repository, what)

    def _accepted(self, repository: str, upload: str, status: int) -> web.Response:
        size = len(self.uploads[upload])
        place = f"http://registry.test/v2/{repository}/blobs/uploads/{upload}?_state={size}"
        return web.Response(status=status, headers={"Location": place, "Range": f"0-{max(size - 1, 0)}"})

    async def uploads_post(self, _request: web.Request, repository: str, _what: str) -> web.Response:
        upload = str(uuid.uuid4())
        self.uploads[upload] = bytearray()
        return self._accepted(repository, upload, 202)

    async def uploads_patch(self, request: web.Request, repository: str, upload: str) -> web.Response:
        if upload not in self.uploads or request.query["_state"] != str(len(self.uploads[upload])):
            return web.Response(status=404)
        async for chunk in request.content.iter_any():
            self.uploads[upload] += chunk
        return self._accepted(repository, upload, 202)

    async def uploads_put(self, request: web.Request, repository: str, upload: str) -> web.Response:
        if upload not in self.uploads:
            return web.Response(status=404)
        content = bytes(self.uploads[upload] + await request.read())
        if digest_of(content) != request.query["digest"]:
            return web.Response(status=400)
        del self.uploads[upload]
        self.blobs[repository, digest_of(content)] = content
        return web.Response(status=201, headers={"Docker-Content-Digest": digest_of(content)})

    async def uploads_delete(self, _request: web.Request, _repository: str, upload: str) -> web.Response:
        return web.Response(status=204 if self.uploads.pop(upload, None) is not None else 404)

    async def blobs_head(self, _request: web.Request, repository: str, digest: str) -> web.Response:
        content = self.blobs.get((repository, digest))
        return (
            web.Response(status=404) if content is None else web.Response(headers={"Content-Length": str(len(content))})
        )

    def _catalog(self, request: web.Request) -> web.Response:
        _header, claims = read(request.headers["Authorization"].removeprefix("Bearer "))
        assert claims["access"] == [{"type": "registry", "name": "catalog", "actions": ["*"]}]
        after = [one for one in self.repositories if one > request.query.get("last", "")]
        return web.json_response({"repositories": after[: int(request.query["n"])]})

    @property
    def repositories(self) -> list[str]:
        return sorted({one for one, _digest in (*self.manifests, *self.blobs)})

    async def tags_get(self, request: web.Request, repository: str, _list: str) -> web.Response:
        if repository not in self.repositories:
            return web.Response(status=404)
        after = sorted(tag for one, tag in self.tags if one == repository and tag > request.query.get("last", ""))
        return web.json_response({"tags": after[: int(request.query["n"])] or None})

    async def manifests_get(self, _request: web.Request, repository: str, tag: str) -> web.Response:
        digest = self.tags.get((repository, tag))
        if digest is None:
            return web.Response(status=404)
        headers = {"Docker-Content-Digest": digest}
        return web.Response(body=self.manifests[repository, digest], headers=headers)

    manifests_head = manifests_get

    async def manifests_put(self, request: web.Request, repository: str, tag: str) -> web.Response:
        content = await request.read()
        manifest = json.loads(content)
        named = [manifest["config"], *manifest["layers"]]
        if any(len(self.blobs.get((repository, one["digest"]), b"")) != one["size"] for one in named):
            return web.Response(status=400)
        self.manifests[repository, digest_of(content)] = content
        self.tags[repository, tag] = digest_of(content)
        return web.Response(status=201, headers={"Docker-Content-Digest": digest_of(content)})

    async def manifests_delete(self, _request: web.Request, repository: str, digest: str) -> web.Response:
        self.manifests.pop((repository, digest), None)
        self.tags = {key: value for key, value in self.tags.items() if key[0] != repository or value != digest}
        return web.Response(status=202)


@asynccontextmanager
async def running() -> AsyncIterator[FakeRegistry]:
    registry = FakeRegistry()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", registry.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    registry.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield registry
    await runner.cleanup()
