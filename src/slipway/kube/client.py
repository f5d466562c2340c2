"""Client: requests to the API server with raw JSON bodies, typed errors, a timeout on each, and counted.

Credentials, TLS and proxies come from the official client (:mod:`slipway.kube.credentials`); bodies are encoded and
decoded by msgspec into plain dictionaries, since generated models cost many times the CPU and memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from slipway.kube.credentials import Credentials
from slipway.kube.errors import (
    ConnectionFailed,
    NotLeader,
    RequestTimeout,
    ServerError,
    Unauthorized,
    error_from_body,
    error_from_status,
)
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key, Kind, Object, key, resource_version

PAGE_SIZE = 500
REQUEST_SECONDS = 30.0
"""A request that takes longer is given up."""
IDLE_SECONDS = 80.0
"""A watch that is silent for longer is dead (half-open TCP): bookmarks come about each minute."""
WATCH_SECONDS = 300
"""The server is asked to end a watch after this time, so that long-lived connections spread over API servers."""

_JSON = "application/json"
_REQUEST_LIMIT = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=10)
_WATCH_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=IDLE_SECONDS)


class Page(NamedTuple):
    """One page of a list, and the version of the collection that all its pages show."""

    items: list[Object]
    resource_version: str


class WatchEvent(NamedTuple):
    """``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object."""

    type: str
    object: Object


class _Request(NamedTuple):
    """One request; parameters with an empty value are left out."""

    method: str
    path: str
    parameters: Mapping[str, str]
    limit: aiohttp.ClientTimeout
    data: bytes | None = None
    content_type: str = _JSON


class Client:
    """Reads and writes objects of any kind. Every method raises :class:`slipway.kube.errors.ApiError`.

    A request that was refused because of the token is sent once more with a fresh one; nothing else is retried here.
    """

    def __init__(
        self,
        credentials: Credentials,
        session: aiohttp.ClientSession,
        metrics: Metrics,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._credentials = credentials
        self._session = session
        self._proxy = credentials.proxy
        self.metrics = metrics
        self._may_write = may_write

    @classmethod
    async def connect(cls, kubeconfig: str = "", *, metrics: Metrics, further_connections: int = 0) -> Client:
        """A client for the named kubeconfig, or for the cluster that the environment says (see Credentials.find).

        ``further_connections``: how many there may be beyond the usual ones.
        """
        credentials = await Credentials.find(kubeconfig)
        return cls(credentials, credentials.session(further_connections), metrics)

    def fenced(self, may_write: Callable[[], bool]) -> Client:
        """The same connection, but each write first asks ``may_write`` and raises NotLeader when it says no."""
        return Client(self._credentials, self._session, self.metrics, may_write)

    async def close(self) -> None:
        """Closes the connections, those of fenced clients too."""
        await self._session.close()

    async def get(self, kind: Kind, name: Key, *, subresource: str = "", cached: bool = False) -> Object:
        """Reads one object. Raises NotFound. ``cached``: what the server has in memory will do, however old it is."""
        return await self._object("GET", kind.path(*name, subresource), {"resourceVersion": "0" if cached else ""})

    async def create(self, kind: Kind, obj: Object, *, field_manager: str = "") -> Object:
        """Creates one object. Raises Conflict when the name is taken."""
        path = kind.path(obj["metadata"].get("namespace", ""))
        return await self._object("POST", path, {"fieldManager": field_manager}, obj)

    async def apply(
        self, kind: Kind, obj: Object, *, field_manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        """Server-side apply of the complete intent of ``field_manager``: a field left out is released."""
        parameters = {"fieldManager": field_manager, "force": "true" if force else "false"}
        path = kind.path(*key(obj), subresource)
        return await self._object("PATCH", path, parameters, obj, "application/apply-patch+yaml")

    async def json_patch(
        self, kind: Kind, name: Key, operations: list[Object], *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """RFC 6902. A ``test`` that fails raises Invalid; a replaced resourceVersion that is old raises Conflict."""
        path = kind.path(*name, subresource)
        parameters = {"fieldManager": field_manager}
        return await self._object("PATCH", path, parameters, operations, "application/json-patch+json")

    async def merge_patch(
        self, kind: Kind, name: Key, patch: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """RFC 7386: given fields replace, ``None`` removes."""
        path = kind.path(*name, subresource)
        parameters = {"fieldManager": field_manager}
        return await self._object("PATCH", path, parameters, patch, "application/merge-patch+json")

    async def replace(self, kind: Kind, obj: Object, *, field_manager: str = "", subresource: str = "") -> Object:
        """Replaces the object as a whole. Raises Conflict when its resourceVersion is old."""
        path = kind.path(*key(obj), subresource)
        return await self._object("PUT", path, {"fieldManager": field_manager}, obj)

    async def delete(
        self, kind: Kind, name: Key, *, uid: str = "", resource_version: str = "", propagation: str = "Background"
    ) -> None:
        """Deletes an object. Raises Conflict when it is not the one that ``uid`` and ``resource_version`` mean."""
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {field: value for field, value in wanted.items() if value}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if preconditions:
            options["preconditions"] = preconditions
        await self._object("DELETE", kind.path(*name), body=options)

    async def pages(self, kind: Kind, *, namespace: str = "", labels: str = "") -> AsyncIterator[Page]:
        """A consistent list in pages of 500. Raises Gone when it took so long that the rest is no longer there."""
        parameters = {"limit": str(PAGE_SIZE), "labelSelector": labels}
        while True:
            answer = await self._object("GET", kind.path(namespace), parameters)
            items: list[Object] = answer.get("items") or []
            for item in items:  # the items of a list do not say what they are
                item["apiVersion"], item["kind"] = kind.api_version, kind.kind
            yield Page(items, resource_version(answer))
            token = answer["metadata"].get("continue")
            if not token:
                return
            parameters["continue"] = token

    async def watch(
        self, kind: Kind, *, since: str, namespace: str = "", labels: str = "", seconds: int = WATCH_SECONDS
    ) -> AsyncIterator[WatchEvent]:
        """Changes after the resource version ``since``, bookmarks among them, until the server ends the stream.

        Raises Gone when ``since`` is too old, be it told by HTTP or in the stream; RequestTimeout after IDLE_SECONDS
        of silence; ConnectionFailed when the stream breaks, also in the middle of a line.
        """
        parameters = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "labelSelector": labels,
            "timeoutSeconds": str(seconds),
        }
        response = await self._send(_Request("GET", kind.path(namespace), parameters, _WATCH_LIMIT))
        rest = b""
        try:
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _event(line)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_answer("watch", error) from error
        finally:
            response.close()
        if rest.strip():
            raise ConnectionFailed("the watch ended in the middle of a line")

    async def _object(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
    ) -> Object:
        """Sends one request and decodes the object that comes back."""
        if method != "GET" and not self._may_write():
            raise NotLeader(f"{method} {path} not sent: this process does not lead")
        data = msgspec.json.encode(body) if body is not None else None
        try:
            response = await self._send(_Request(method, path, parameters or {}, _REQUEST_LIMIT, data, content_type))
            async with response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_answer(f"{method} {path}", error) from error
        return _decode(answer)

    async def _send(self, request: _Request) -> aiohttp.ClientResponse:
        """Sends a request, a second time with a fresh token after a 401. Returns what succeeded, raises the rest."""
        try:
            return await self._once(request)
        except Unauthorized:
            await self._credentials.refresh()
            return await self._once(request)

    async def _once(self, request: _Request) -> aiohttp.ClientResponse:
        headers = {"Accept": _JSON, "User-Agent": "slipway"}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        if request.data is not None:
            headers["Content-Type"] = request.content_type
        settings = self._credentials.configuration
        query = {name: value for name, value in request.parameters.items() if value}
        try:
            response = await self._session.request(
                request.method,
                URL(self._credentials.host + request.path, encoded=True).with_query(query),
                data=request.data,
                headers=headers,
                timeout=request.limit,
                proxy=self._proxy,
                proxy_headers=settings.proxy_headers,
                server_hostname=settings.tls_server_name,
            )
            self.metrics.requests.labels(str(response.status), request.method).inc()
            if response.status < 300:
                return response
            async with response:
                raise error_from_body(response.status, await response.read(), response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.metrics.requests.labels("<error>", request.method).inc()
            raise _no_answer(f"{request.method} {request.path}", error) from error


def _no_answer(what: str, error: Exception) -> ConnectionFailed | RequestTimeout:
    kind = RequestTimeout if isinstance(error, asyncio.TimeoutError) else ConnectionFailed
    return kind(f"{what}: {error or type(error).__name__}")


def _decode(data: bytes) -> Object:
    try:
        decoded = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ServerError(f"the answer is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ServerError("the answer is not an object")
    return decoded


def _event(line: bytes) -> WatchEvent:
    """Decodes a line of a watch. An ERROR event and an unknown one are raised."""
    try:
        event = _decode(line)
        kind, obj = event["type"], event["object"]
    except KeyError as error:
        raise ServerError(f"a watch event without {error}") from error
    if kind == "ERROR":
        raise error_from_status(obj)
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise ServerError(f"unknown watch event {kind!r}")
    return WatchEvent(kind, obj)
