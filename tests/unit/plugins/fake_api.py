# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small API server in threads: list, get, watch, server-side apply, dry run, delete, and trouble on demand.

It keeps what the modules rely on: generations, resource versions, managed fields with conflicts, the status Objects of
errors, watches that continue from a version. It does not know schemas; `refuse` sets what it must reject.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Object = dict[str, Any]
# Plurals of all kinds.
COLLECTIONS = (
    *("models", "clustermodels", "basemodels", "clusterbasemodels", "finetunedweights"),
    *("inferenceservices", "benchmarkjobs", "events", "pods", "nodes"),
)
# What the server fills in where a spec does not say it, by apiVersion.
DEFAULTS: dict[str, Object] = {
    "krypton.ai/v1alpha1": {"port": 8080, "minReplicas": 1},
    "kubeai.org/v1": {"targetRequests": 100, "scaleDownDelaySeconds": 30},
}


@dataclass
class Call:
    """A request that the server received."""

    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass
class Answer:
    """What to answer instead; consumed in order by requests that `matches` accepts."""

    matches: Callable[[Call], bool]
    status: int = 0
    reason: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    cut: bool = False


class FakeApi:
    """The server and its state. ``url`` is where it listens; ``calls`` is what it was asked."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.namespaces = {"models", "other"}
        self.served = {
            "/apis/krypton.ai/v1alpha1",
            "/apis/kubeai.org/v1",
            "/apis/inference.llmkube.dev/v1alpha1",
            "/apis/ome.io/v1beta1",
            "/api/v1",
        }
        self.calls: list[Call] = []
        self.answers: list[Answer] = []
        self.warnings: list[str] = []
        self.logs: dict[str, str] = {}
        self.finalizers: set[str] = set()
        # Called with each object that was applied for real; a controller that acts at once.
        self.controller: Callable[[FakeApi, Object], None] = lambda _api, _resource: None
        self._actions: list[tuple[str, Callable[[], object]]] = []
        self._version = 100
        self._history: list[tuple[int, str, Object]] = []
        self._oldest = 0
        self._changed = threading.Condition(threading.RLock())
        # Keeps the port while the server is away: a bound socket that does not listen, which refuses connections.
        self._keeper = socket.socket()
        self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._keeper.bind(("127.0.0.1", 0))
        self._port: int = self._keeper.getsockname()[1]
        self._server: ThreadingHTTPServer | None = None
        self._streams: set[Any] = set()
        self.start()

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Stops: it accepts no connections, and cuts every stream. Its objects stay, as etcd would keep them."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.cut_streams()

    def cut_streams(self) -> None:
        with self._changed:
            self._streams.clear()
            self._changed.notify_all()

    def forget(self) -> None:
        """Forgets the history and cuts every stream: watches from any earlier version get a 410."""
        with self._changed:
            self._version += 1
            self._oldest = self._version
            self._history.clear()
            self.cut_streams()

    def once(self, verb: str, action: Callable[[], object]) -> None:
        """Does something, in a thread, when it is next asked to do this; actions of one verb take turns."""
        self._actions.append((verb, action))

    def act(self, verb: str) -> None:
        with self._changed:
            action = next((entry for entry in self._actions if entry[0] == verb), None)
            if action is None:
                return
            self._actions.remove(action)
        threading.Thread(target=action[1], daemon=True).start()

    def calls_of(self, *verbs: str) -> list[Call]:
        return [call for call in self.calls if call.verb in verbs]

    # --- state --------------------------------------------------------------------------------------------------------

    def put(self, path: str, resource: Object, *, manager: str = "kubectl") -> Object:
        """Puts an object there as if another manager had applied it."""
        with self._changed:
            return self._merge(path, resource, manager, force=True, dry_run=False)

    def set_status(self, path: str, **status: Any) -> None:
        """What a controller does: writes a status that speaks of the newest generation."""
        with self._changed:
            resource = copy.deepcopy(self.objects[path])
            resource["status"] = {"observedGeneration": resource["metadata"]["generation"], **status}
            self._store(path, resource, "MODIFIED")

    def remove(self, path: str) -> None:
        with self._changed:
            resource = self.objects.pop(path)
            self._record("DELETED", resource)

    def _store(self, path: str, resource: Object, change: str) -> None:
        self._version += 1
        resource["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = resource
        self._history.append((self._version, change, copy.deepcopy(resource)))
        self._changed.notify_all()

    def _record(self, change: str, resource: Object) -> None:
        self._version += 1
        gone = copy.deepcopy(resource)
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, change, gone))
        self._changed.notify_all()

    # --- requests -----------------------------------------------------------------------------------------------------

    def list(self, path: str, query: dict[str, str]) -> Object:
        with self._changed:
            items = [copy.deepcopy(item) for key, item in sorted(self.objects.items()) if _inside(key, path)]
            items = [item for item in items if _selected(item, query)]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": items}

    def apply(self, path: str, body: Object, query: dict[str, str]) -> tuple[int, Object]:
        _root, _namespaces, below = path.partition("/namespaces/")
        namespace = below.split("/", maxsplit=1)[0]
        if below and namespace not in self.namespaces:
            details = {"name": namespace, "kind": "namespaces"}
            return _failure(404, "NotFound", f'namespaces "{namespace}" not found', details)
        with self._changed:
            try:
                applied = self._merge(
                    path,
                    body,
                    query["fieldManager"],
                    force=query.get("force") == "true",
                    dry_run=query.get("dryRun") == "All",
                )
            except _ConflictError as conflict:
                causes = [
                    {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"', "field": name}
                    for manager, name in conflict.owners
                ]
                return _failure(409, "Conflict", "Apply failed with conflicts", {"causes": causes})
        if query.get("dryRun") != "All":
            self.controller(self, applied)
        return 200, applied

    def delete(self, path: str, body: Object, query: dict[str, str]) -> tuple[int, Object]:
        with self._changed:
            resource = self.objects.get(path)
            if resource is None:
                return _missing(path)
            uid = (body.get("preconditions") or {}).get("uid")
            if uid and uid != resource["metadata"]["uid"]:
                return _failure(409, "Conflict", "the uid differs", {})
            # As the API server does: options in the query count only where there is no body.
            if "All" not in (body or {"dryRun": [query.get("dryRun")]}).get("dryRun", []):
                if path in self.finalizers:
                    going = copy.deepcopy(resource)
                    going["metadata"].update(deletionTimestamp="now", finalizers=["example.org/held"])
                    self._store(path, going, "MODIFIED")
                else:
                    self.remove(path)
            return 200, copy.deepcopy(resource)

    def _merge(self, path: str, body: Object, manager: str, *, force: bool, dry_run: bool) -> Object:
        live = self.objects.get(path)
        new = copy.deepcopy(live) if live else {key: body[key] for key in ("apiVersion", "kind")}
        metadata = new.setdefault("metadata", {})
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.update({name: body["metadata"][name] for name in ("name", "namespace") if name in body["metadata"]})
        leaves = _leaves(_owned_fields(body))
        owners = {
            entry["manager"]: _paths(entry["fieldsV1"])
            for entry in metadata.get("managedFields", [])
            if entry["operation"] == "Apply"
        }
        _settle(new, leaves, owners, manager, force=force)
        for dropped in owners.get(manager, set()) - set(leaves):
            _unset(new, dropped)
        owners[manager] = set(leaves)
        for name, value in DEFAULTS.get(new["apiVersion"], {}).items():
            new.setdefault("spec", {}).setdefault(name, value)
        for field_name in ("labels", "annotations"):
            if not metadata.get(field_name, True):
                del metadata[field_name]
        metadata["managedFields"] = [
            {
                "manager": name,
                "operation": "Apply",
                "apiVersion": body["apiVersion"],
                "fieldsType": "FieldsV1",
                "fieldsV1": _tree(paths),
            }
            for name, paths in owners.items()
        ]
        if live is None or live.get("spec") != new.get("spec"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        if not dry_run and new != live:
            self._store(path, new, "MODIFIED" if live else "ADDED")
        return copy.deepcopy(new)

    def events(self, path: str, query: dict[str, str], write: Callable[[Object], None]) -> None:
        """Writes the events of a watch until its time is up or it is cut."""
        version = int(query.get("resourceVersion") or 0)
        until = time.monotonic() + float(query.get("timeoutSeconds", 60))
        stream = object()
        with self._changed:
            self._streams.add(stream)
            if version < self._oldest:
                write({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
                return
        self.act("watch")
        while time.monotonic() < until:
            with self._changed:
                ready = [entry for entry in self._history if entry[0] > version]
                if not ready:
                    self._changed.wait(min(0.2, max(0.0, until - time.monotonic())))
                if stream not in self._streams:
                    raise ConnectionResetError
            for number, change, resource in ready:
                version = number
                if _inside(path_of(resource), path) and _selected(resource, query):
                    write({"type": change, "object": resource})
            if ready:
                write({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}})

    def answer_for(self, call: Call) -> Answer | None:
        with self._changed:
            self.calls.append(call)
            for answer in self.answers:
                if answer.matches(call):
                    self.answers.remove(answer)
                    return answer
        return None


class _ConflictError(Exception):
    def __init__(self, owners: list[tuple[str, str]]) -> None:
        super().__init__("conflict")
        self.owners = owners


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP for a FakeApi."""

    api: FakeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests are quiet."""

    def do_GET(self) -> None:
        self._serve("get")

    def do_PATCH(self) -> None:
        self._serve("apply")

    def do_DELETE(self) -> None:
        self._serve("delete")

    def _serve(self, verb: str) -> None:
        split = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = unquote(split.path)
        if verb == "get":
            verb = (
                "watch"
                if "watch" in query
                else "list"
                if _is_collection(path)
                else "log"
                if path.endswith("/log")
                else "get"
            )
        call = Call(verb, path, query, dict(self.headers.items()))
        answer = self.api.answer_for(call)
        if answer is not None and answer.cut:
            self.close_connection = True
            self.connection.close()
        elif answer is not None and answer.text is not None:
            self._send(answer.status, answer.text.encode(), answer.headers)
        elif answer is not None:
            _status, failure = _failure(answer.status, answer.reason, answer.message, {})
            self._send(answer.status, json.dumps(failure).encode(), answer.headers)
        elif not any(path.startswith(root) for root in self.api.served):
            self._send(404, b"404 page not found\n")
        elif verb == "watch":
            self._watch(path, query)
        else:
            self._send(*self._result(verb, path, body, query))
            self.api.act(verb)

    def _result(self, verb: str, path: str, body: Object, query: dict[str, str]) -> tuple[int, bytes]:
        if verb == "list":
            status, result = 200, self.api.list(path, query)
        elif verb == "log":
            return 200, self.api.logs.get(path.split("/")[-2], "").encode()
        elif verb == "apply":
            status, result = self.api.apply(path, body, query)
        elif verb == "delete":
            status, result = self.api.delete(path, body, query)
        else:
            resource = self.api.objects.get(path)
            status, result = (200, resource) if resource else _missing(path)
        return status, json.dumps(result).encode()

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        for warning in self.api.warnings:
            self.send_header("Warning", f'299 - "{warning}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, path: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def write(event: Object) -> None:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

        try:
            self.api.events(path, query, write)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
            self.connection.close()


# --- small helpers ----------------------------------------------------------------------------------------------------


def _failure(status: int, reason: str, message: str, details: Object) -> tuple[int, Object]:
    return status, {"kind": "Status", "code": status, "reason": reason, "message": message, "details": details}


def _missing(path: str) -> tuple[int, Object]:
    name = path.rsplit("/", maxsplit=1)[-1]
    return _failure(404, "NotFound", f'models "{name}" not found', {"name": name, "kind": "models"})


def _is_collection(path: str) -> bool:
    return path.rsplit("/", maxsplit=1)[-1] in COLLECTIONS


def path_of(resource: Object) -> str:
    metadata = resource["metadata"]
    root = "/api/v1" if resource["apiVersion"] == "v1" else f"/apis/{resource['apiVersion']}"
    scope = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{scope}/{resource['kind'].lower()}s/{metadata['name']}"


def _inside(path: str, collection: str) -> bool:
    """Whether an object's path lies in a collection, which may be one of all namespaces."""
    if "/namespaces/" in collection:
        return path.startswith(f"{collection}/")
    root, _slash, plural = collection.rpartition("/")
    return path.startswith(f"{root}/") and path.split("/")[-2] == plural


def _selected(resource: Object, query: dict[str, str]) -> bool:
    labels = resource["metadata"].get("labels") or {}
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, _equals, value = part.partition("=")
        if labels.get(key) != value:
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        key, _equals, value = part.partition("=")
        node: Any = resource
        for name in key.split("."):
            node = (node or {}).get(name)
        if node != value:
            return False
    return True


def _owned_fields(body: Object) -> Object:
    """Returns the fields of a manifest that a field manager can own."""
    metadata = {key: value for key, value in body["metadata"].items() if key in ("labels", "annotations")}
    return {key: value for key, value in (("metadata", metadata), ("spec", body.get("spec"))) if value}


def _leaves(value: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Fields by their paths. Lists are atomic, as in the definitions; so are objects of resources and env."""
    if not isinstance(value, dict) or not value or at[-1:] == ("resources",):
        return {at: value}
    return {path: leaf for key, part in value.items() for path, leaf in _leaves(part, (*at, key)).items()}


def _settle(
    resource: Object,
    leaves: dict[tuple[str, ...], Any],
    owners: dict[str, set[tuple[str, ...]]],
    manager: str,
    *,
    force: bool,
) -> None:
    conflicts: list[tuple[str, str]] = []
    for path, value in leaves.items():
        current = _get(resource, path)
        for other, paths in owners.items():
            if other != manager and path in paths and current != value:
                conflicts.append((other, "." + ".".join(path)))
                if force:
                    paths.discard(path)
    if conflicts and not force:
        raise _ConflictError(conflicts)
    for path, value in leaves.items():
        _set(resource, path, value)


def _get(resource: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        resource = resource.get(key) if isinstance(resource, dict) else None
    return resource


def _set(resource: Object, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        resource = resource.setdefault(key, {})
    resource[path[-1]] = copy.deepcopy(value)


def _unset(resource: Object, path: tuple[str, ...]) -> None:
    for key in path[:-1]:
        resource = resource.get(key) or {}
    resource.pop(path[-1], None)


def _tree(paths: set[tuple[str, ...]]) -> Object:
    tree: Object = {}
    for path in paths:
        below = tree
        for key in path:
            below = below.setdefault(f"f:{key}", {})
    return tree


def _paths(tree: Object, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not tree:
        return {at}
    return {path for key, below in tree.items() for path in _paths(below, (*at, key[2:]))}
