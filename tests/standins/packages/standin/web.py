"""A web server for stand-ins: handlers take a Request and give an Answer.

It ends as uvicorn does, which most engines run in: on SIGTERM it takes no new connection at once, finishes what is
under way, and leaves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Without the query, percent escapes resolved."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    target: str
    """Path and query as they were sent."""

    def json(self) -> dict[str, Any]:
        """The body as an object; raises Refused."""
        try:
            body = json.loads(self.body)
        except ValueError as error:
            raise Refused(400, "BadRequestError", f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, "BadRequestError", "the body is not an object")
        return body


@dataclass(frozen=True)
class Answer:
    body: bytes = b""
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Iterable[bytes] | None = None
    """Sent one by one, in place of ``body``; as they are where ``headers`` say how long they are together."""


class Refused(Exception):
    """Answered with this status and vLLM's form of an error, which OpenAI's clients read."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.answer = as_json(
            {"error": {"message": message, "type": kind, "param": param, "code": status}}, status=status
        )


Handler = Callable[[Request], Answer]


def as_json(body: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(body).encode(), status)


def as_events(events: Iterable[Any]) -> Answer:
    """Server-sent events, closed by OpenAI's ``[DONE]``."""

    def chunks() -> Iterator[bytes]:
        for event in events:
            yield f"data: {json.dumps(event)}\n\n".encode()
        yield b"data: [DONE]\n\n"

    return Answer(kind="text/event-stream; charset=utf-8", chunks=chunks())


def as_named_events(events: Iterable[dict[str, Any]]) -> Answer:
    """Events under the name of their ``type``, as in OpenAI's responses: nothing follows the last one."""
    chunks = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    return Answer(kind="text/event-stream; charset=utf-8", chunks=chunks)


def routes(table: Mapping[str, Handler]) -> Handler:
    """Chooses by ``METHOD /path``; others are not found, as FastAPI says it."""

    def route(request: Request) -> Answer:
        handler = table.get(f"{request.method} {request.path}")
        if handler:
            return handler(request)
        path_exists = any(key.split(" ", 1)[1] == request.path for key in table)
        return as_json({"detail": "Method Not Allowed"}, 405) if path_exists else as_json({"detail": "Not Found"}, 404)

    return route


def serve(
    handler: Handler,
    host: str,
    port: int,
    log: bool = True,
    tls: ssl.SSLContext | None = None,
    ending: Callable[[], None] = lambda: None,
    keep_alive: float | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then ends the process. ``ending`` is called before it stops to listen.

    ``keep_alive``: after how many seconds without a request it closes a connection that had one; None: never. uvicorn
    does after five.
    """
    server = Server(handler, host, port, log, keep_alive)
    if tls:
        # Hands are shaken by the thread of a connection: a client that is slow at it holds up no other one.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: (ending(), threading.Thread(target=server.end).start()))
    server.serve_forever(poll_interval=0.05)
    server.server_close()
    server.idle.wait()
    sys.stdout.flush()
    os._exit(0)  # connections that wait for a next request keep their threads


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self, handler: Handler, host: str, port: int, log: bool = True, keep_alive: float | None = None
    ) -> None:
        self.handler = handler
        self.log = log
        self.keep_alive = keep_alive
        self.ending = False
        self.idle = threading.Event()
        self.idle.set()
        self._under_way = 0
        self._lock = threading.Lock()
        # On ``::`` IPv4 as well, as with llama.cpp, vLLM and TGI.
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Connection)

    def end(self) -> None:
        self.ending = True
        self.shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no fault."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def count(self, change: int) -> None:
        with self._lock:
            self._under_way += change
            if self._under_way:
                self.idle.clear()
            else:
                self.idle.set()


class Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def _handle(self) -> None:
        self.server.count(1)
        self.connection.settimeout(None)
        try:
            self._answer()
        finally:
            self.server.count(-1)
        self.connection.settimeout(self.server.keep_alive)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - the names that http.server calls

    def _answer(self) -> None:
        url = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=unquote(url.path),
            query={name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._body(),
            target=self.path,
        )
        try:
            answer = self.server.handler(request)
        except Refused as refused:
            answer = refused.answer
        self._send(answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        if answer.kind:
            self.send_header("Content-Type", answer.kind)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.server.ending:
            self.send_header("Connection", "close")
        if answer.chunks is None:
            if "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else answer.body)
            return
        if "Content-Length" in answer.headers:
            self.end_headers()
            for chunk in answer.chunks:
                self.wfile.write(chunk)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in answer.chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """As uvicorn writes it, but for probes, which would hide the rest."""
        if self.server.log and self.path not in ("/health", "/metrics", "/"):
            print(f'INFO:     {self.client_address[0]} - "{self.command} {self.path} HTTP/1.1" {int(code)}', flush=True)
