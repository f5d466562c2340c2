"""Client: sends requests with raw JSON bodies to the API server, with typed errors, timeouts and metrics.

Credentials, TLS and proxies come from the official client (:mod:`slipway.kube.api.credentials`); bodies are encoded and
decoded by msgspec into plain dictionaries, since generated models cost many times the CPU and memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from slipway.decoding import DecodingError, decode_json
from slipway.kube.api.answers import OBJECT_BYTES, Lines, Page, WatchEvent, read_event, read_page
from slipway.kube.api.credentials import Credentials
from slipway.kube.api.errors import (
    STATUS_BYTES,
    ConnectionFailedError,
    NotLeaderError,
    RequestTimeoutError,
    ServerError,
    UnauthorizedError,
    error_from_body,
)
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key, Kind, Object, key

FIRST_PAGE, PAGE_SIZE = 100, 500
"""Number of objects to request in the first page of a list, and at most in later pages."""
PAGE_BYTES, MOST_PAGE_BYTES = 1 << 20, 2 << 20
"""Target size of a page, and the size above which a page is abandoned and requested again with fewer objects."""
REQUEST_SECONDS = 30.0
"""Timeout of a request."""
IDLE_SECONDS = 80.0
"""A watch that is silent for longer is considered dead (half-open TCP), because bookmarks arrive about once a
minute."""
WATCH_SECONDS = 300
"""The server is asked to end a watch after this time, which spreads long-lived connections over the API servers."""

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_REQUEST_LIMIT = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=10)
_WATCH_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=IDLE_SECONDS)


class _Request(NamedTuple):
    """One request. Parameters with empty values are omitted."""

    method: str
    path: str
    parameters: Mapping[str, str]
    limit: aiohttp.ClientTimeout
    data: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON


class Client:
    """Reads and writes objects of any kind. Every method raises :class:`slipway.kube.api.errors.ApiError`.

    A request rejected because of its token is sent a second time with a fresh token. The client retries nothing else.
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
        self._counter = cache(metrics.requests.labels)
        self._may_write = may_write

    @classmethod
    async def connect(cls, kubeconfig: str = "", *, metrics: Metrics, further_connections: int = 0) -> Client:
        """Returns a client for the named kubeconfig, or for the cluster in the environment (see Credentials.find).

        ``further_connections``: the number of connections allowed beyond the usual limit.
        """
        credentials = await Credentials.find(kubeconfig)
        return cls(credentials, credentials.session(further_connections), metrics)

    def fenced(self, may_write: Callable[[], bool]) -> Client:
        """Returns a client on the same connection whose writes first call ``may_write``, and raise NotLeaderError if it
        returns False."""
        return Client(self._credentials, self._session, self.metrics, may_write)

    async def close(self) -> None:
        """Closes the connections, including those of fenced clients."""
        await self._session.close()

    async def get(self, kind: Kind, name: Key, *, subresource: str = "", cached: bool = False) -> Object:
        """Reads one object. Raises NotFoundError. ``cached``: accept an object from the server's cache, however old."""
        path, parameters = kind.path(*name, subresource), {"resourceVersion": "0" if cached else ""}
        return await self._object("GET", path, parameters, accept=_accept(kind))

    async def create(self, kind: Kind, obj: Object, *, field_manager: str = "") -> Object:
        """Creates one object. Raises ConflictError if the name is taken."""
        path = kind.path(obj["metadata"].get("namespace", ""))
        return await self._object("POST", path, {"fieldManager": field_manager}, obj)

    async def apply(
        self, kind: Kind, obj: Object, *, field_manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        """Applies the complete intent of ``field_manager`` (server-side apply). Omitted fields are released."""
        parameters = {"fieldManager": field_manager, "force": "true" if force else "false"}
        path = kind.path(*key(obj), subresource)
        return await self._object("PATCH", path, parameters, obj, "application/apply-patch+yaml")

    async def json_patch(
        self, kind: Kind, name: Key, operations: list[Object], *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """Applies a JSON patch (RFC 6902). Raises InvalidObjectError if a ``test`` fails, ConflictError if its
        resourceVersion is old."""
        path = kind.path(*name, subresource)
        parameters = {"fieldManager": field_manager}
        return await self._object("PATCH", path, parameters, operations, "application/json-patch+json")

    async def merge_patch(
        self, kind: Kind, name: Key, patch: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """Applies a merge patch (RFC 7386): given fields replace the current ones, ``None`` removes a field."""
        path = kind.path(*name, subresource)
        parameters = {"fieldManager": field_manager}
        return await self._object("PATCH", path, parameters, patch, "application/merge-patch+json")

    async def replace(self, kind: Kind, obj: Object, *, field_manager: str = "", subresource: str = "") -> Object:
        """Replaces the whole object. Raises ConflictError if its resourceVersion is old."""
        path = kind.path(*key(obj), subresource)
        return await self._object("PUT", path, {"fieldManager": field_manager}, obj)

    async def delete(
        self, kind: Kind, name: Key, *, uid: str = "", resource_version: str = "", propagation: str = "Background"
    ) -> None:
        """Deletes an object. Raises ConflictError if its current uid or resource version differs from the given one."""
        expected = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {field: value for field, value in expected.items() if value}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if preconditions:
            options["preconditions"] = preconditions
        await self._object("DELETE", kind.path(*name), body=options)

    async def pages(self, kind: Kind, *, namespace: str = "", labels: str = "") -> AsyncIterator[Page]:
        """Yields a consistent list in pages of about PAGE_BYTES, whatever the size of the objects.

        An object that cannot be decoded affects no other object. For a ``metadata_only`` kind the server sends only
        metadata, as in ``watch``. Raises GoneError if listing took so long that the continue token expired.
        """
        limit, token, accept = FIRST_PAGE, "", _METADATA_LIST if kind.metadata_only else _JSON
        while True:
            parameters = {"limit": str(limit), "labelSelector": labels, "continue": token}
            most = MOST_PAGE_BYTES if limit > 1 else OBJECT_BYTES
            request = _Request("GET", kind.path(namespace), parameters, _REQUEST_LIMIT, accept=accept)
            body = await self._body(request, most)
            if body is None and limit == 1:
                raise ServerError(f"listing {kind.kind}: an object is larger than {most} bytes")
            if body is None:
                limit = max(1, limit // 8)
                continue
            page, token = read_page(kind, body)
            yield page
            if not token:
                return
            limit = min(PAGE_SIZE, max(1, PAGE_BYTES * len(page.items) // len(body))) if page.items else limit

    async def watch(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: str = "",
        seconds: int = WATCH_SECONDS,
    ) -> AsyncIterator[WatchEvent]:
        """Yields changes after the resource version ``since``, including bookmarks, until the server ends the stream.

        Raises GoneError if ``since`` is too old, whether HTTP or the stream reports it; RequestTimeoutError after
        IDLE_SECONDS of silence; ConnectionFailedError if the stream breaks, even in the middle of a line; ServerError
        for a line that is not an event or exceeds OBJECT_BYTES.
        """
        parameters = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "labelSelector": labels,
            "timeoutSeconds": str(seconds),
        }
        request = _Request("GET", kind.path(namespace), parameters, _WATCH_LIMIT, accept=_accept(kind))
        response = await self._send(request)
        lines = Lines(OBJECT_BYTES)
        try:
            async for chunk in response.content.iter_any():
                for line in lines.feed(chunk):
                    yield read_event(kind, line)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_answer("watch", error) from error
        finally:
            response.close()
        if lines.rest.strip():
            raise ConnectionFailedError("the watch ended in the middle of a line")

    async def _object(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Object:
        """Sends one request and decodes the returned object."""
        if method != "GET" and not self._may_write():
            raise NotLeaderError(f"{method} {path} not sent: this process does not lead")
        data = msgspec.json.encode(body) if body is not None else None
        request = _Request(method, path, parameters or {}, _REQUEST_LIMIT, data, content_type, accept)
        answer = await self._body(request, OBJECT_BYTES)
        if answer is None:
            raise ServerError(f"{method} {path}: the answer is larger than {OBJECT_BYTES} bytes")
        try:
            decoded = decode_json(answer, most=OBJECT_BYTES)
        except DecodingError as error:
            raise ServerError(f"{method} {path}: the answer is not JSON: {error}") from error
        if not isinstance(decoded, dict) or not isinstance(decoded.get("metadata", {}), dict):
            raise ServerError(f"{method} {path}: the answer is not an object")
        return decoded

    async def _body(self, request: _Request, most: int) -> bytearray | None:
        """Sends one request. Returns the response body, or None if it exceeds ``most`` bytes."""
        try:
            async with await self._send(request) as response:
                return await _read_body(response, most)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_answer(f"{request.method} {request.path}", error) from error

    async def _send(self, request: _Request) -> aiohttp.ClientResponse:
        """Sends a request, and repeats it with a fresh token after a 401. Returns a successful response and raises an
        error for any other."""
        try:
            return await self._once(request)
        except UnauthorizedError:
            await self._credentials.refresh()
            return await self._once(request)

    async def _once(self, request: _Request) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept, "User-Agent": "slipway"}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        if request.data is not None:
            headers["Content-Type"] = request.content_type
        settings = self._credentials.configuration
        query = _query(tuple(request.parameters.items()))
        try:
            response = await self._session.request(
                request.method,
                URL(f"{self._credentials.host}{request.path}{query}", encoded=True),
                data=request.data,
                headers=headers,
                timeout=request.limit,
                proxy=self._proxy,
                proxy_headers=settings.proxy_headers,
                server_hostname=settings.tls_server_name,
            )
            self._counter(str(response.status), request.method).inc()
            if response.status < 300:
                return response
            async with response:
                body = await _read_body(response, STATUS_BYTES) or bytearray()
                raise error_from_body(response.status, body, response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._counter("<error>", request.method).inc()
            raise _no_answer(f"{request.method} {request.path}", error) from error


def _accept(kind: Kind) -> str:
    """Returns the Accept header for the kind."""
    return _METADATA if kind.metadata_only else _JSON


@lru_cache(maxsize=64)
def _query(parameters: tuple[tuple[str, str], ...]) -> str:
    """Returns the query string of parameters with a value; empty if there are none. It is cached, because nearly all
    requests use one of a few."""
    query = urlencode([(name, value) for name, value in parameters if value])
    return f"?{query}" if query else ""


def _no_answer(what: str, error: Exception) -> ConnectionFailedError | RequestTimeoutError:
    kind = RequestTimeoutError if isinstance(error, asyncio.TimeoutError) else ConnectionFailedError
    return kind(f"{what}: {error or type(error).__name__}")


async def _read_body(response: aiohttp.ClientResponse, most: int) -> bytearray | None:
    """Returns the body, or None if it exceeds ``most`` bytes. Stops reading there."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            response.close()
            return None
    return body
