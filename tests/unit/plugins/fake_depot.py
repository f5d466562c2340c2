# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A depot's upload door in a thread, and models in the fake API server whose uploads it takes."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fake_api import FakeApi

Object = dict[str, Any]
API = "ai.deckhouse.io/v1alpha1"
MODELS = f"/apis/{API}/namespaces/models/models/"
SECRETS = "/api/v1/namespaces/models/secrets/"
TOKEN = "eyJ1c2UiOiJ1cGxvYWQifQ.signature"
DIGEST = f"sha256:{'a' * 64}"
PIECE = 100_000


class FakeDepot:
    """``there``: the bytes that it has. ``refusals``: (status, text) of the next requests that bring bytes; a cut is
    status 0, after ``cut_after`` bytes. ``full``: called when all bytes are there."""

    def __init__(self) -> None:
        self.there, self.length = b"", None  # type: tuple[bytes, int | None]
        self.name = ""
        self.token = TOKEN
        self.expired: set[str] = set()
        self.refusals: list[tuple[int, str]] = []
        self.cut_after = 0
        self.received = 0
        self.full: Callable[[], object] = lambda: None
        handler = type("Handler", (_Handler,), {"depot": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/upload/models/tiny/uid"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def keep(self, data: bytes, length: int) -> None:
        self.there, self.length = self.there + data, length
        self.received += len(data)
        if len(self.there) == length:
            self.full()

    @property
    def state(self) -> Object:
        pieces = [self.there[start : start + PIECE] for start in range(0, len(self.there), PIECE)]
        return {
            "offset": len(self.there),
            "length": self.length,
            "complete": self.length == len(self.there),
            "pieces": [
                {"digest": f"sha256:{hashlib.sha256(piece).hexdigest()}", "size": len(piece)} for piece in pieces
            ],
        }


class _Handler(BaseHTTPRequestHandler):
    depot: FakeDepot
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests are quiet."""

    def do_GET(self) -> None:
        if self._admitted():
            self._say(200, json.dumps(self.depot.state))

    def do_PUT(self) -> None:
        self._take(0)

    def do_PATCH(self) -> None:
        self._take(int(self.headers["Upload-Offset"]))

    def _take(self, offset: int) -> None:
        depot, size = self.depot, int(self.headers["Content-Length"])
        if not self._admitted():
            return
        length = int(self.headers.get("Upload-Length") or size)
        depot.name = self.headers.get("X-Upload-Filename", "")
        if self.command == "PUT":
            depot.there = b""
        elif offset != len(depot.there):
            self._say(409, "another offset")
            return
        status, text = depot.refusals.pop(0) if depot.refusals else (204, "")
        if not status:
            depot.keep(self.rfile.read(depot.cut_after), length)
            self.close_connection = True
            self.connection.close()
        elif status > 299:
            self._say(status, text)
        else:
            depot.keep(self.rfile.read(size), length)
            self._say(204)

    def _admitted(self) -> bool:
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if shown in self.depot.expired:
            self._say(410, "the token has expired")
        elif shown != self.depot.token:
            self._say(401, "send the token")
        else:
            return True
        return False

    def _say(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if status >= 300:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(text.encode())


def put_model(api: FakeApi, depot: FakeDepot, name: str = "tiny", **status: Any) -> None:
    """A model whose upload is awaited, unless the status says another phase. It is Ready once all bytes are there."""
    api.served.add(f"/apis/{API}")
    metadata = {"name": name, "namespace": "models"}
    api.put(
        MODELS + name, {"apiVersion": API, "kind": "Model", "metadata": metadata, "spec": {"source": {"upload": {}}}}
    )
    upload = {"secretName": f"{name}-upload", "secretNamespace": "models"}
    api.set_status(MODELS + name, **{"phase": "WaitForUpload", "upload": upload, **status})
    put_secret(api, depot, name)
    depot.full = lambda: api.set_status(MODELS + name, phase="Ready", artifact={"digest": DIGEST})


def put_secret(api: FakeApi, depot: FakeDepot, name: str = "tiny") -> None:
    fields = {"url": depot.url, "token": depot.token, "command": f"curl -H 'Authorization: Bearer {depot.token}'"}
    api.objects[f"{SECRETS}{name}-upload"] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-upload", "namespace": "models"},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in fields.items()},
    }


def waiting(reason: str, message: str) -> Object:
    """The condition of a model that is not Ready."""
    return {"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": message}]}
