"""What the API servers of these tests have in common: a thread that serves, discovery, and answers in JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


class Kind(NamedTuple):
    """One that the server knows. ``version``: its apiVersion."""

    version: str
    name: str
    plural: str
    namespaced: bool


class ApiServer:
    """A thread that serves with handlers of this class, which find their server as ``api``."""

    def __init__(self, handler: type[ApiHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"api": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class ApiHandler(BaseHTTPRequestHandler):
    """Reads requests and writes answers."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests are quiet."""

    @property
    def place(self) -> str:
        """The path without slashes around it."""
        return urlsplit(self.path).path.strip("/")

    @property
    def query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}

    def body(self) -> Object:
        content: Object = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}") or {}
        return content

    def send(self, status: int, content: Object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code: int, reason: str, message: str) -> None:
        self.send(code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})


def discovery(path: str, kinds: Iterable[Kind], kubernetes: str = "v1.36.4") -> Object | None:
    """Returns the server's information about itself; None for objects."""
    versions = sorted({kind.version for kind in kinds})
    if path == "version":
        return {"major": "1", "minor": kubernetes.split(".")[1], "gitVersion": kubernetes}
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "apis":
        names = dict.fromkeys(version.split("/")[0] for version in versions if "/" in version)
        return {"kind": "APIGroupList", "groups": [_group(name, versions) for name in names]}
    version = path.removeprefix("apis/").removeprefix("api/")
    if version not in versions:
        return None
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    resources = [
        {"name": kind.plural, "singularName": "", "kind": kind.name, "namespaced": kind.namespaced, "verbs": verbs}
        for kind in kinds
        if kind.version == version
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def _group(name: str, versions: Iterable[str]) -> Object:
    mine = [version for version in versions if version.startswith(f"{name}/")]
    group_versions = [{"groupVersion": version, "version": version.split("/")[1]} for version in mine]
    return {"name": name, "versions": group_versions, "preferredVersion": group_versions[0]}
