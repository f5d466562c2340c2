"""Responses that send a file, or a range of its bytes, from the disk to the client.

The kernel copies the bytes (sendfile), so memory does not grow with the size and number of downloads.
"""

from __future__ import annotations

import asyncio
from typing import IO

from aiohttp import web

from slipway.hub.folder import open_file
from slipway.hub.repository import File

PLAIN = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"


def headers_of(file: File, commit: str) -> dict[str, str]:
    """Return the response headers that describe a file: its commit, ETag and type, and for LFS files also the SHA-256
    and the size."""
    headers = {
        "X-Repo-Commit": commit,
        "ETag": f'"{file.etag}"',
        "Accept-Ranges": "bytes",
        "Content-Type": BINARY if file.sha256 else PLAIN,
        "X-Content-Type-Options": "nosniff",
    }
    if file.sha256:
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
    return headers


def parse_range(request: web.Request, file: File) -> range | None:
    """Return the requested range of bytes, which is empty if it is outside of the file, or None for the whole file.

    A request for an invalid range, for several ranges, or for a range of another version of the file (If-Range) gets
    the whole file, as RFC 9110 allows.
    """
    if request.headers.get("If-Range", f'"{file.etag}"') != f'"{file.etag}"':
        return None
    try:
        part = request.http_range
    except ValueError:
        return None
    if part.start is None and part.stop is None:
        return None
    return range(*part.indices(file.size))


async def send(request: web.Request, file: File, commit: str) -> web.StreamResponse:
    """Answer a GET or HEAD request for ``file``. For GET, raise UnstableError if the file has changed since it was
    hashed."""
    headers = headers_of(file, commit)
    part = parse_range(request, file)
    if part is not None and not part:
        headers["Content-Range"] = f"bytes */{file.size}"
        return web.Response(status=416, headers=headers)
    status, start, count = 200, 0, file.size
    if part is not None:
        status, start, count = 206, part.start, len(part)
        headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{file.size}"
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = count
    if request.method == "HEAD":
        await response.prepare(request)
        return response
    stream = await asyncio.to_thread(open_file, file)
    try:
        await response.prepare(request)
        await _copy(request, stream, start, count)
        await response.write_eof()
    finally:
        stream.close()
    return response


async def _copy(request: web.Request, stream: IO[bytes], start: int, count: int) -> None:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client is gone")
    if count and await asyncio.get_running_loop().sendfile(transport, stream, start, count) != count:
        # The file was truncated while it was sent. Only a broken connection shows the client that bytes are missing.
        transport.abort()
