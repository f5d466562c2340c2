"""A registry of artifacts in memory that does what a test tells it: cuts, lies, refuses, is full or read-only.

It answers like the CNCF's registry: uploads have an offset, a challenge requests a token, and unreferenced blobs are
collected. The tests in tests/registry run against a real one.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from aiohttp import web

if TYPE_CHECKING:
    from .conftest import Service

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def gone(code: str, status: int = 404) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": "no"}]}, status=status)


@dataclass
class Oci:
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, dict[str, tuple[bytes, str]]] = field(default_factory=dict)
    """Repository -> digest -> content and type."""
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    received: int = 0
    """Bytes of uploads, those that were cut among them."""
    cuts: list[int] = field(default_factory=list)
    """Of each next long PATCH: bytes after which its connection ends."""
    spoil: str = ""
    """A digest whose blob is sent with another byte in the content of its first file."""
    commit_error: tuple[str, int] | None = None
    """Code and status of the answer to the end of each long upload, which is then lost."""
    read_only: int = 0
    """Writes that are still refused."""
    token: str = ""
    """That is asked for; empty: none."""
    realm: str = ""
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    """Of each token: the query, and who asked."""
    seen: list[str] = field(default_factory=list)
    service: Service | None = None

    @property
    def host(self) -> str:
        assert self.service
        return self.service.url.partition("://")[2]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30, middlewares=[self._gate])
        app.router.add_get("/token", self._token)
        app.router.add_post("/v2/{name:.+}/blobs/uploads/", self._begin)
        app.router.add_route("*", "/v2/{name:.+}/blobs/uploads/{id}", self._upload)
        app.router.add_get("/v2/{name:.+}/blobs/{digest}", self._blob)
        app.router.add_route("*", "/v2/{name:.+}/manifests/{version}", self._manifest)
        return app

    def artifact(self, repository: str, tag: str = "published") -> dict[str, object]:
        content, _type = self.manifests[repository][self.tags[repository][tag]]
        manifest: dict[str, object] = json.loads(content)
        return manifest

    def collect(self) -> None:
        """What no manifest names goes."""
        kept = set()
        for manifests in self.manifests.values():
            for content, _type in manifests.values():
                document = json.loads(content)
                kept |= {document["config"]["digest"], *(layer["digest"] for layer in document["layers"])}
        self.blobs = {digest: content for digest, content in self.blobs.items() if digest in kept}

    @web.middleware
    async def _gate(self, request: web.Request, handler: object) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.path}")
        writes = request.method not in ("GET", "HEAD")
        opens = request.headers.get("Authorization", "").removeprefix("Bearer ").split(":")
        allowed = opens[0] == self.token and (not writes or "push" in opens[-1])
        if self.token and request.path != "/token" and not allowed:
            name = request.path.removeprefix("/v2/").partition("/blobs/")[0].partition("/manifests/")[0]
            actions = "pull,push" if writes else "pull"
            scope = f"repository:{name}:{actions}"
            challenge = f'Bearer realm="{self.realm}",service="registry",scope="{scope}"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if self.read_only and writes:
            self.read_only -= 1
            return web.Response(status=405)
        return await handler(request)  # type: ignore[operator,no-any-return]

    async def _token(self, request: web.Request) -> web.Response:
        self.asked.append({**parse_qs(request.query_string), "who": [request.headers.get("Authorization", "")]})
        actions = request.query["scope"].rpartition(":")[2]
        return web.json_response({"token": f"{self.token}:{actions}", "expires_in": 300})

    async def _begin(self, request: web.Request) -> web.Response:
        name, mount = request.match_info["name"], request.query.get("mount", "")
        if mount and mount in self.blobs:
            return web.Response(status=201, headers={"Location": f"/v2/{name}/blobs/{mount}"})
        key = f"u{len(self.seen)}-{time.monotonic_ns()}"
        self.uploads[key] = bytearray()
        return web.Response(status=202, headers=self._at(name, key))

    def _at(self, name: str, key: str) -> dict[str, str]:
        last = max(0, len(self.uploads[key]) - 1)
        return {"Location": f"/v2/{name}/blobs/uploads/{key}?_state=x", "Range": f"0-{last}"}

    async def _upload(self, request: web.Request) -> web.Response:
        name, key = request.match_info["name"], request.match_info["id"]
        if key not in self.uploads:
            return gone("BLOB_UPLOAD_UNKNOWN")
        held = self.uploads[key]
        if request.method == "GET":
            return web.Response(status=204, headers=self._at(name, key))
        if request.method == "DELETE":
            del self.uploads[key]
            return web.Response(status=204)
        if request.method == "PATCH":
            if int(request.headers["Content-Range"].partition("-")[0]) != len(held):
                return gone("RANGE_INVALID", 416)
            long = int(request.headers["Content-Length"]) > 50_000
            cut = self.cuts.pop(0) if self.cuts and long else None
            remaining = cut
            async for chunk in request.content.iter_chunked(1 << 16):
                taken = chunk if remaining is None else chunk[:remaining]
                held += taken
                self.received += len(taken)
                if remaining is not None:
                    remaining -= len(taken)
                    if not remaining:
                        assert request.transport
                        request.transport.abort()
                        return web.Response()
            return web.Response(status=202, headers=self._at(name, key))
        digest = request.query["digest"]
        content = bytes(self.uploads.pop(key))
        if self.commit_error and len(content) > 50_000:
            return gone(*self.commit_error)
        if sha(content) != digest:
            return gone("DIGEST_INVALID", 400)
        self.blobs[digest] = content
        return web.Response(status=201)

    async def _blob(self, request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        content = self.blobs.get(digest)
        if content is None:
            return gone("BLOB_UNKNOWN")
        if digest == self.spoil:
            content = content[:600] + bytes([content[600] ^ 1]) + content[601:]
        start = request.http_range.start or 0
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        return web.Response(status=206 if start else 200, body=content[start:], headers=headers)

    async def _manifest(self, request: web.Request) -> web.Response:
        name, version = request.match_info["name"], request.match_info["version"]
        manifests, tags = self.manifests.setdefault(name, {}), self.tags.setdefault(name, {})
        if request.method == "PUT":
            content = await request.read()
            document = json.loads(content)
            named = [document["config"]["digest"], *(layer["digest"] for layer in document["layers"])]
            if not all(digest in self.blobs for digest in named):
                return gone("MANIFEST_BLOB_UNKNOWN", 400)
            manifests[sha(content)] = (content, request.headers["Content-Type"])
            if ":" not in version:
                tags[version] = sha(content)
            return web.Response(status=201)
        digest = tags.get(version, version)
        if digest not in manifests:
            return gone("MANIFEST_UNKNOWN")
        if request.method == "DELETE":
            del manifests[digest]
            self.tags[name] = {tag: other for tag, other in tags.items() if other != digest}
            return web.Response(status=202)
        return web.Response(body=manifests[digest][0], content_type=manifests[digest][1])
