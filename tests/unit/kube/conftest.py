"""A small API server that does what a script says: lists, watches and writes as the runtime needs them, and faults."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import yaml
from aiohttp import web

from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.objects import MANAGED_BY, controller_owner
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.writes.write_only import OF_STRANGER, OF_VANISHED_OWNER

PATIENCE = 60.0
"""Seconds for what takes a moment on a machine that has nothing else to do."""
STEP = 0.01
"""Seconds between two checks of a condition."""
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Logged(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    at: float
    accept: str = ""


class Fault:
    """Answers the next ``times`` requests of a method whose path and query contain a text."""

    def __init__(self, method: str, text: str, answer: Answer, times: int) -> None:
        self.method, self.text, self.answer, self.times = method, text, answer, times

    def takes(self, request: web.Request) -> bool:
        return self.times > 0 and request.method == self.method and self.text in request.path_qs


def status(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
        "details": details,
    }


def refuse(
    code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None, **details: Any
) -> Answer:
    async def answer(_unused: web.Request) -> web.StreamResponse:
        return web.json_response(status(code, reason, message, **details), status=code, headers=headers)

    return answer


def stream(*lines: bytes, hold: float = 0.0) -> Answer:
    """A watch that sends these bytes, stays silent for ``hold`` seconds and ends without an end when that is over."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        await asyncio.sleep(hold)
        return response

    return answer


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Closes the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    raise asyncio.CancelledError


def nested(obj: dict[str, Any], depth: int = 1500) -> bytes:
    """An object with a field that is nested deeper than a decoder goes."""
    text = json.dumps({**obj, "deep": "DEEP"})
    return text.replace('"DEEP"', "[" * depth + "]" * depth).encode()


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class ApiServer:
    """Objects by path. Versions count up over all kinds; a watch tells what came after its version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.version = 100
        self.oldest = 0
        """Watches from before this version get 410."""
        self.log: list[Logged] = []
        self.conflicts: list[str] = []
        """Paths of requests that were answered with 409."""
        self.faults: list[Fault] = []
        self.page = 500
        self.changed = asyncio.Condition()
        self.url = ""
        self.deliver = asyncio.Event()
        """Watches hold back their events while it is not set."""
        self.deliver.set()
        self.following: set[asyncio.Transport] = set()
        self.propagation: dict[str, str] = {}
        """How each path was last asked to be deleted."""

    # What tests do to it

    def fault(self, method: str, text: str, answer: Answer, times: int = 1) -> Fault:
        self.faults.append(Fault(method, text, answer, times))
        return self.faults[-1]

    async def put(self, path: str, **fields: Any) -> dict[str, Any]:
        """Creates or replaces an object behind everybody's back."""
        collection, _unused, name = path.rpartition("/")
        namespace = collection.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in collection else ""
        metadata = {"name": name, "namespace": namespace, **fields.pop("metadata", {})}
        return await self.store(path, {"metadata": metadata, **fields})

    async def store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        old = self.objects.get(path)
        obj = copy.deepcopy(obj)
        self.version += 1
        metadata = obj["metadata"]
        metadata["uid"] = old["metadata"]["uid"] if old else metadata.get("uid") or str(uuid.uuid4())
        metadata["resourceVersion"] = str(self.version)
        metadata["generation"] = old["metadata"]["generation"] + (old.get("spec") != obj.get("spec")) if old else 1
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.objects[path] = obj
        await self.tell("MODIFIED" if old else "ADDED", path, obj)
        return obj

    async def remove(self, path: str, *, silently: bool = False) -> None:
        obj = self.objects.pop(path)
        self.version += 1
        gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if not silently:
            await self.tell("DELETED", path, gone)

    def cut(self) -> None:
        """Breaks the watches that run."""
        for transport in self.following:
            transport.abort()

    async def tell(self, kind: str, path: str, obj: dict[str, Any]) -> None:
        async with self.changed:
            self.history.append((self.version, kind, path, copy.deepcopy(obj)))
            self.changed.notify_all()

    def requests(self, method: str, text: str = "") -> list[Logged]:
        return [one for one in self.log if one.method == method and text in one.path]

    @property
    def writes(self) -> list[Logged]:
        return [one for one in self.log if one.method != "GET"]

    def is_seen_by(self, informer: Informer) -> bool:
        """Whether an informer has received all changes of its objects."""
        plural, namespace = f"/{informer.kind.plural}/", informer._namespace
        mine = [
            version
            for version, _unused, path, obj in self.history
            if plural in path
            and namespace in ("", obj["metadata"].get("namespace", ""))
            and _selected(obj["metadata"].get("labels") or {}, informer._labels)
        ]
        return not mine or informer.store.revision(namespace) >= mine[-1]

    @property
    def lists(self) -> list[Logged]:
        return [one for one in self.log if one.method == "GET" and "limit" in one.query]

    @property
    def watches(self) -> list[Logged]:
        return [one for one in self.log if "watch" in one.query]

    # What it does

    async def handle(self, request: web.Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        self.log.append(Logged(request.method, request.path, dict(request.query), time.monotonic(), accept))
        for fault in self.faults:
            if fault.takes(request):
                fault.times -= 1
                return await fault.answer(request)
        if request.method == "GET" and "watch" in request.query:
            return await self.watch(request)
        if request.method == "GET" and "limit" in request.query:
            return self.list(request)
        body = json.loads(await request.read() or b"null")
        answers = {"GET": self.get, "POST": self.post, "PUT": self.replace, "PATCH": self.patch, "DELETE": self.delete}
        answer = await answers[request.method](request, body)
        if answer.status == 409:
            self.conflicts.append(request.path)
        return answer

    def matches(self, path: str, obj: dict[str, Any], request: web.Request) -> bool:
        prefix, _unused, plural = request.path.rpartition("/")
        inside = path.startswith(f"{prefix}/") and path.rpartition("/")[0].endswith(f"/{plural}")
        return inside and _selected(obj["metadata"].get("labels") or {}, request.query.get("labelSelector", ""))

    def list(self, request: web.Request) -> web.Response:
        objects = [obj for path, obj in sorted(self.objects.items()) if self.matches(path, obj, request)]
        items = [_as_requested(request, obj) for obj in objects]
        start = int(request.query.get("continue") or 0)
        metadata, end = {"resourceVersion": str(self.version)}, start + min(self.page, int(request.query["limit"]))
        if end < len(items):
            metadata["continue"] = str(end)
        return web.json_response({"metadata": metadata, "items": items[start:end]})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            await response.write(event("ERROR", status(410, "Expired", "too old resource version")))
            return response
        transport = request.transport
        assert transport is not None
        self.following.add(transport)
        try:
            await self.follow(request, response, sum(version <= since for version, *_unused in self.history))
        finally:
            self.following.discard(transport)
        return response

    async def follow(self, request: web.Request, response: web.StreamResponse, offset: int) -> None:
        while True:
            async with self.changed:
                while len(self.history) == offset:
                    await self.changed.wait()
            await self.deliver.wait()
            news, offset = self.history[offset:], len(self.history)
            for _unused, kind, path, obj in news:
                if self.matches(path, obj, request) and request.transport is not None:
                    await response.write(event(kind, _as_requested(request, obj)))

    async def get(self, request: web.Request, _unused: Any) -> web.Response:
        if request.path not in self.objects:
            return web.json_response(status(404, "NotFound", name=request.path.rpartition("/")[2]), status=404)
        return web.json_response(_as_requested(request, self.objects[request.path]))

    async def post(self, request: web.Request, body: Any) -> web.Response:
        path = f"{request.path}/{body['metadata']['name']}"
        if path in self.objects:
            return web.json_response(status(409, "AlreadyExists"), status=409)
        return web.json_response(await self.store(path, _born_now(body)), status=201)

    async def replace(self, request: web.Request, body: Any) -> web.Response:
        current = self.objects.get(request.path)
        if current is None:
            return web.json_response(status(404, "NotFound"), status=404)
        if body["metadata"].get("resourceVersion") not in (None, current["metadata"]["resourceVersion"]):
            return web.json_response(status(409, "Conflict"), status=409)
        # Only the controller says for which field manager it replaces, and only it is held by the policy.
        if (
            "/secrets/" in request.path
            and "fieldManager" in request.query
            and (refusal := _refused_secret(current, body))
        ):
            return web.json_response(status(403, "Forbidden", refusal), status=403)
        kept = {
            field: current["metadata"][field] for field in ("uid", "resourceVersion", "generation", "creationTimestamp")
        }
        body = {**body, "metadata": {**body["metadata"], **kept}}
        return web.json_response(body if body == current else await self.store(request.path, body))

    async def patch(self, request: web.Request, body: Any) -> web.Response:
        path = request.path.removesuffix("/status").removesuffix("/scale")
        current = copy.deepcopy(self.objects.get(path))
        applying = "apply" in request.headers["Content-Type"]
        if current is None and not applying:
            return web.json_response(status(404, "NotFound"), status=404)
        if isinstance(body, list):
            return await self.json_patch(path, current, body)
        if "merge" in request.headers["Content-Type"]:
            given = {field: body.get("metadata", {}).pop(field, None) for field in ("uid", "resourceVersion")}
            if any(value not in (None, current["metadata"][field]) for field, value in given.items()):
                return web.json_response(status(409, "Conflict"), status=409)
        merged = _merge(current or {}, body)
        if merged == current:
            return web.json_response(current)
        return web.json_response(await self.store(path, merged if current else _born_now(merged)))

    async def json_patch(self, path: str, obj: dict[str, Any], steps: Any) -> web.Response:
        """Whole fields only. A replaced resourceVersion is a precondition, as in a real server."""
        before = copy.deepcopy(obj)
        for step in steps:
            *parents, field = (part.replace("~1", "/") for part in step["path"].strip("/").split("/"))
            holder: Any = obj
            for parent in parents:
                holder = holder[int(parent)] if isinstance(holder, list) else holder.setdefault(parent, {})
            if field == "resourceVersion" and holder[field] != step["value"]:
                return web.json_response(status(409, "Conflict"), status=409)
            if step["op"] == "remove":
                del holder[field]
                continue
            if step["op"] == "test" and holder.get(field) != step["value"]:
                return web.json_response(status(422, "Invalid", "test failed"), status=422)
            holder[field] = step["value"]
        return web.json_response(obj if obj == before else await self.store(path, obj))

    async def delete(self, request: web.Request, body: Any) -> web.Response:
        current = self.objects.get(request.path)
        self.propagation[request.path] = (body or {}).get("propagationPolicy", "")
        if current is None:
            return web.json_response(status(404, "NotFound"), status=404)
        preconditions = (body or {}).get("preconditions") or {}
        if any(current["metadata"][field] != value for field, value in preconditions.items()):
            return web.json_response(status(409, "Conflict"), status=409)
        await self.remove(request.path)
        return web.json_response({"kind": "Status", "status": "Success"})


def _born_now(obj: dict[str, Any]) -> dict[str, Any]:
    """A real server stamps what clients create. Decisions look at how old a Job is."""
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": timestamp(time.time())}}


def _refused_secret(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What the admission policy of the role ``controller`` says of a Secret that is replaced."""
    old, new = controller_owner(before), controller_owner(after)
    if old is None or new is None or (before["metadata"].get("labels") or {}).get(MANAGED_BY) != "slipway":
        return f"denied request: this one {OF_STRANGER}."
    if (old.kind, old.name) != (new.kind, new.name):
        return f"denied request: this one {OF_STRANGER}."
    return "" if old.uid == new.uid else f"denied request: this one {OF_VANISHED_OWNER}."


def _as_requested(request: web.Request, obj: dict[str, Any]) -> dict[str, Any]:
    """An object, or its metadata alone where no more is asked for."""
    if "as=PartialObjectMetadata" not in request.headers.get("Accept", ""):
        return obj
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        merged = {**old, **{name: _merge(old.get(name, {}), value) for name, value in new.items()}}
        return {name: value for name, value in merged.items() if value is not None}
    return _merge({}, new) if isinstance(new, dict) and new else copy.deepcopy(new)


def _selected(labels: dict[str, str], selector: str) -> bool:
    """``name=value`` and ``name in (one,other)``, joined by commas."""
    for name, listed, value in re.findall(r"([^,=()\s]+)(?: in \(([^)]*)\)|=([^,]*))", selector):
        if labels.get(name) not in (listed.split(",") if listed else [value]):
            return False
    return True


@asynccontextmanager
async def serving() -> AsyncIterator[ApiServer]:
    """An API server that answers."""
    api = ApiServer()
    application = web.Application(client_max_size=2**24)

    application.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    yield api
    await runner.cleanup()


def kubeconfig_of(server: ApiServer, folder: Any) -> str:
    """A file in the folder that leads to the server."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server.url}}],
        "users": [{"name": "test", "user": {"tokenFile": str(folder / "token")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    (folder / "token").write_text("first")
    (folder / "config").write_text(yaml.safe_dump(config))
    return str(folder / "config")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with serving() as api:
        yield api


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Any) -> str:
    return kubeconfig_of(server, tmp_path)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def client(kubeconfig: str, metrics: Metrics) -> AsyncIterator[Client]:
    connected = await Client.connect(kubeconfig, metrics=metrics)
    yield connected
    await connected.close()


@pytest.fixture
async def start() -> AsyncIterator[Callable[[Awaitable[Any]], asyncio.Task[Any]]]:
    """Runs coroutines in the background until the test ends. One that failed fails the test."""
    tasks: list[asyncio.Task[Any]] = []

    def run(work: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    yield run
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [one for one in outcomes if isinstance(one, Exception)]


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits until a test holds, at most ``seconds``."""

    async def wait(test: Callable[[], Any], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not test():
            assert time.monotonic() < deadline, "did not happen in time"
            await asyncio.sleep(STEP)

    return wait


@pytest.fixture
def rest() -> Callable[..., Awaitable[None]]:
    """Waits until a number has stayed the same for ``seconds``, in small steps that let other tasks run. A stall of the
    machine counts as one step."""

    async def wait(number: Callable[[], int], seconds: float = 0.3) -> None:
        deadline, before, steps = time.monotonic() + PATIENCE, number(), 0.0
        while steps < seconds:
            assert time.monotonic() < deadline, "never comes to rest"
            await asyncio.sleep(STEP)
            before, steps = (before, steps + STEP) if number() == before else (number(), 0.0)

    return wait


@pytest.fixture
def script() -> Any:
    """The words in which tests tell the server what to do."""

    class Script:
        refuse = staticmethod(refuse)
        stream = staticmethod(stream)
        hang_up = staticmethod(hang_up)
        event = staticmethod(event)
        status = staticmethod(status)

    return Script
