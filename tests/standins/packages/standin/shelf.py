"""A web server with one file under every name: ``python3 -m standin.shelf FILE``, which ``/any/path`` gives.

Each path is told for itself what becomes of it, and remembers who asked for it. ``PUT /-/any/path`` with some of
``{"edition": 2, "bytesPerSecond": 10000}`` changes the file there, and how fast it comes (0: at once). ``GET`` of the
same tells its ``sha256``, ``size`` and ``requests``, the oldest first: range asked for and status.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .files import file_answer
from .web import Answer, Handler, Request, as_json, serve

CONTROL = "/-/"
STEPS = 10
"""Pieces that a second's bytes come in."""


@dataclass
class Item:
    """What becomes of one path."""

    edition: int = 1
    bytes_per_second: int = 0
    requests: list[dict[str, object]] = field(default_factory=list)


def application(content: bytes) -> Handler:
    items: dict[str, Item] = {}
    lock = threading.Lock()

    def handle(request: Request) -> Answer:
        controlled = request.path.startswith(CONTROL)
        name = request.path.removeprefix(CONTROL if controlled else "/")
        with lock:
            item = items.setdefault(name, Item())
            if controlled:
                return control(item, request, edition(content, item.edition))
            answer = given(request, edition(content, item.edition), item.bytes_per_second)
            item.requests.append({"range": request.headers.get("range", ""), "status": answer.status})
            return answer

    return handle


def control(item: Item, request: Request, current: bytes) -> Answer:
    if request.method == "PUT":
        changes = request.json()
        item.edition = changes.get("edition", item.edition)
        item.bytes_per_second = changes.get("bytesPerSecond", item.bytes_per_second)
        return as_json({})
    digest = hashlib.sha256(current).hexdigest()
    return as_json({"sha256": digest, "size": len(current), "requests": item.requests})


def edition(content: bytes, number: int) -> bytes:
    """Other bytes for each number but 1; programs that read headers first do not mind what stands behind."""
    return content if number == 1 else content + f"edition {number}".encode()


def given(request: Request, content: bytes, bytes_per_second: int) -> Answer:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    if request.headers.get("if-range", tag) != tag:
        kept = {name: value for name, value in request.headers.items() if name != "range"}
        request = replace(request, headers=kept)
    answer = file_answer(request, content, {"ETag": tag})
    if not (bytes_per_second and answer.body and request.method == "GET"):
        return answer
    return replace(answer, body=b"", chunks=slowly(answer.body, bytes_per_second))


def slowly(body: bytes, bytes_per_second: int) -> Iterator[bytes]:
    size = max(bytes_per_second // STEPS, 1)
    for start in range(0, len(body), size):
        yield body[start : start + size]
        time.sleep(1 / STEPS)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="standin.shelf")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("file", type=Path)
    flags = parser.parse_args(arguments)
    serve(application(flags.file.read_bytes()), "0.0.0.0", flags.port)


if __name__ == "__main__":
    main(sys.argv[1:])
