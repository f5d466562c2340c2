"""A web server with one file, whose content and ETag tests change, and what a load of it needs."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from aiohttp import web

from slipway.loader.transport.selection import FileRequest

if TYPE_CHECKING:
    from .conftest import Service

WHOLE = FileRequest()
TEXTS = {"general.architecture": "llama", "general.name": "Tiny", "general.license": "mit"}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


GGUF = (
    b"GGUF"
    + struct.pack("<IQQ", 3, 7, len(TEXTS))
    + b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in TEXTS.items())
    + bytes(300_000)
)
SHA = hashlib.sha256(GGUF).hexdigest()
OTHER = "ab" * 32


class Site:
    """One file at an address, whose content and ETag tests change."""

    def __init__(self) -> None:
        self.content, self.etag, self.ranges = GGUF, '"v1"', True
        self.service: Service | None = None

    @property
    def url(self) -> str:
        assert self.service
        return f"{self.service.url}/tiny.gguf"

    async def get(self, request: web.Request) -> web.StreamResponse:
        headers = {"ETag": self.etag} if self.etag else {}
        start = request.http_range.start
        if start is None or not self.ranges or request.headers.get("If-Range") != self.etag:
            return web.Response(body=self.content, headers=headers)
        part = {"Content-Range": f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"}
        return web.Response(status=206, body=self.content[start:], headers={**headers, **part})
