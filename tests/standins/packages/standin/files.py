"""A file's bytes as web servers give them: whole, or the range that was asked for."""

from __future__ import annotations

import re

from .web import Answer, Request


def file_answer(request: Request, content: bytes, headers: dict[str, str]) -> Answer:
    """200, 206 or 416; a HEAD tells the length only."""
    kind, size = "application/octet-stream", len(content)
    headers = headers | {"Accept-Ranges": "bytes"}
    byte_range = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if not byte_range:
        return Answer(content, 200, kind, headers | {"Content-Length": str(size)})
    first, last = int(byte_range[1]), min(int(byte_range[2] or size), size - 1)
    if first >= size:
        return Answer(b"", 416, kind, headers | {"Content-Range": f"bytes */{size}"})
    part = content[first : last + 1]
    ranged = {"Content-Range": f"bytes {first}-{last}/{size}", "Content-Length": str(len(part))}
    return Answer(part, 206, kind, headers | ranged)
