"""Prefill and decode apart: a prefill server reads prompts, and hands what it read to a decode server by rooms.

The router sends each request to both, with the same ``bootstrap_room`` and the prefill's ``bootstrap_host`` and
``bootstrap_port``. There the decode server asks for the room, and waits until the prompt has been read.
"""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from standin.generation import Generator
from standin.openai import OpenAI
from standin.web import Answer, Handler, Refused, Request, Server, routes

PORT = 8998
"""SGLang's own for rooms, which a request that names none means."""
SECONDS = 30.0
"""A room is waited for."""
GENERATES = ("POST /v1/chat/completions", "POST /v1/completions")


def prefill(generator: Generator, host: str, port: int) -> dict[str, Handler]:
    """Routes of a prefill server. Its rooms are open on a port of their own, as SGLang's bootstrap server is."""
    rooms: set[str] = set()

    def room(request: Request) -> Answer:
        name = request.query.get("name", "")
        return Answer(socket.gethostname().encode() if name in rooms else b"", 200 if name in rooms else 404)

    server = Server(routes({"GET /room": room}), host, port, log=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def fill(of: Callable[[Request], Answer], request: Request) -> Answer:
        _host, _port, name = place(request.json())
        answer = of(request)
        rooms.add(name)
        return answer

    table = OpenAI(generator, lambda _model: "prefill").table()
    return {route: _bound(fill, table[route]) for route in GENERATES}


def decode(generator: Generator) -> dict[str, Handler]:
    """Routes of a decode server. The second word of its answers is the prefill's pod."""

    def answer(route: str, request: Request) -> Answer:
        reader = wait_for_room(*place(request.json()))
        return OpenAI(generator, lambda _model: reader).table()[route](request)

    return {route: _bound(answer, route) for route in GENERATES}


def place(body: dict[str, Any]) -> tuple[str, int, str]:
    """Host and port of the rooms, and the one of this request."""
    room = body.get("bootstrap_room")
    if room is None or not body.get("bootstrap_host"):
        raise Refused(400, "BadRequestError", "Disaggregated request received without bootstrap room id.")
    return str(body["bootstrap_host"]), int(body.get("bootstrap_port") or PORT), str(room)


def wait_for_room(host: str, port: int, room: str) -> str:
    """The pod that read the prompt."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{host}:{port}/room?name={room}", timeout=5) as response:
                pod: str = response.read().decode()
                return pod
        except urllib.error.HTTPError:
            time.sleep(0.02)
        except OSError as error:
            raise Refused(500, "InternalServerError", f"Could not reach the bootstrap server: {error}") from error
    raise Refused(500, "InternalServerError", f"Decode transfer failed for request rank=0 bootstrap_room={room}")


def _bound(function: Callable[[Any, Request], Answer], first: Any) -> Handler:
    return lambda request: function(first, request)
