"""A client that sends requests with raw JSON bodies to the API server, with typed errors, timeouts and metrics.

Credentials, TLS and proxies come from the official client (:mod:`slipway.kube.api.credentials`). msgspec converts
between bodies and plain dictionaries, because generated models need many times the CPU and memory.
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
"""Number of objects to request in the first page of a list, and the maximum for later pages."""
PAGE_BYTES, MOST_PAGE_BYTES = 1 << 20, 2 << 20
"""Target size of a page in bytes, and the size above which the client requests the page again with fewer objects."""
REQUEST_SECONDS = 30.0
"""Timeout of a request in seconds, except for watches."""
IDLE_SECONDS = 80.0
"""Seconds without an event after which a watch counts as dead (half-open TCP). Bookmarks arrive about once a minute."""
WATCH_SECONDS = 300
"""Seconds after which the server should end a watch. This limit distributes long-lived connections over the API
servers."""

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_REQUEST_LIMIT = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=10)
_WATCH_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=IDLE_SECONDS)


class _Request(NamedTuple):
    """A request to the API server. Query parameters with empty values are omitted."""

    method: str
    path: str
    parameters: Mapping[str, str]
    limit: aiohttp.ClientTimeout
    data: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON


class Client:
    """A client that reads and writes objects of any kind. Every method raises
    :class:`slipway.kube.api.errors.ApiError`.

    If the API server rejects the token, the client sends the request again with a fresh token. It retries nothing else.

    The methods that write, except ``delete``, return the object as the API server stored it. ``field_manager`` is the
    name under which the API server records the written fields; empty means one that it derives from the User-Agent.
    ``subresource`` is a part of the object, such as ``status``; empty means the object itself. An empty ``namespace``
    means all namespaces, and ``labels`` is a label selector; empty means all objects.
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
        """Return a client with the credentials in the file ``kubeconfig``, or for the cluster in the environment if it
        is empty (see Credentials.find).

        ``further_connections`` is the number of connections allowed beyond the usual limit.
        """
        credentials = await Credentials.find(kubeconfig)
        return cls(credentials, credentials.session(further_connections), metrics)

    def fenced(self, may_write: Callable[[], bool]) -> Client:
        """Return a client on the same connections that calls ``may_write`` before each write. If it returns False, the
        write raises NotLeaderError."""
        return Client(self._credentials, self._session, self.metrics, may_write)

    async def close(self) -> None:
        """Close all connections, which fenced clients share."""
        await self._session.close()

    async def get(self, kind: Kind, name: Key, *, subresource: str = "", cached: bool = False) -> Object:
        """Read one object. Raise NotFoundError if it does not exist. With ``cached``, accept an object of any age from
        the server's cache."""
        path, parameters = kind.path(*name, subresource), {"resourceVersion": "0" if cached else ""}
        return await self._object("GET", path, parameters, accept=_accept(kind))

    async def create(self, kind: Kind, obj: Object, *, field_manager: str = "") -> Object:
        """Create one object. Raise ConflictError if an object with the same name exists."""
        path = kind.path(obj["metadata"].get("namespace", ""))
        return await self._object("POST", path, {"fieldManager": field_manager}, obj)

    async def apply(
        self, kind: Kind, obj: Object, *, field_manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        """Apply all fields that ``field_manager`` should own (server-side apply). It gives up the ownership of omitted
        fields. With ``force``, it takes over fields of other managers. Otherwise raise ConflictError for such
        fields."""
        parameters = {"fieldManager": field_manager, "force": "true" if force else "false"}
        path = kind.path(*key(obj), subresource)
        return await self._object("PATCH", path, parameters, obj, "application/apply-patch+yaml")

    async def json_patch(
        self, kind: Kind, name: Key, operations: list[Object], *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """Apply a JSON patch (RFC 6902). Raise InvalidObjectError if a ``test`` fails, and ConflictError if the patch's
        resourceVersion is old."""
        path = kind.path(*name, subresource)
        parameters = {"fieldManager": field_manager}
        return await self._object("PATCH", path, parameters, operations, "application/json-patch+json")

    async def merge_patch(
        self, kind: Kind, name: Key, patch: Object, *, field_manager: str = "", subresource: str = ""
    ) -> Object:
        """Apply a merge patch (RFC 7386). Given fields replace the current ones, and None removes a field."""
        path = kind.path(*name, subresource)
        parameters = {"fieldManager": field_manager}
        return await self._object("PATCH", path, parameters, patch, "application/merge-patch+json")

    async def replace(self, kind: Kind, obj: Object, *, field_manager: str = "", subresource: str = "") -> Object:
        """Replace the whole object. Raise ConflictError if the object's resourceVersion is old."""
        path = kind.path(*key(obj), subresource)
        return await self._object("PUT", path, {"fieldManager": field_manager}, obj)

    async def delete(
        self, kind: Kind, name: Key, *, uid: str = "", resource_version: str = "", propagation: str = "Background"
    ) -> None:
        """Delete an object. Raise NotFoundError if it does not exist, and ConflictError if its current UID or resource
        version differs from the given one. An empty UID or resource version is not compared. ``propagation`` is
        ``Background``, ``Foreground`` or ``Orphan``, and decides what happens to the object's dependents."""
        expected = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {field: value for field, value in expected.items() if value}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if preconditions:
            options["preconditions"] = preconditions
        await self._object("DELETE", kind.path(*name), body=options)

    async def pages(self, kind: Kind, *, namespace: str = "", labels: str = "") -> AsyncIterator[Page]:
        """Yield a consistent list in pages of about PAGE_BYTES, regardless of the size of the objects.

        An object that cannot be decoded affects no other object. For a ``metadata_only`` kind, the server sends only
        metadata, as in ``watch``. Raise GoneError if listing takes so long that the continue token expires.
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
        """Yield changes after the resource version ``since``, including bookmarks, until the server ends the stream,
        which it should do after ``seconds``.

        Raise GoneError if ``since`` is too old, RequestTimeoutError after IDLE_SECONDS without an event,
        ConnectionFailedError if the connection breaks or a line is incomplete, and ServerError for a line that is not
        an event or exceeds OBJECT_BYTES.
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
        """Send one request and return the object in the response. Raise NotLeaderError for a write that ``may_write``
        does not allow."""
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
        """Send one request. Return the response body, or None if it exceeds ``most`` bytes."""
        try:
            async with await self._send(request) as response:
                return await _read_body(response, most)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_answer(f"{request.method} {request.path}", error) from error

    async def _send(self, request: _Request) -> aiohttp.ClientResponse:
        """Send a request and return a successful response. Repeat the request with a fresh token after a 401, and raise
        the error of any other error response."""
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
    """Return the Accept header for a kind, which may limit the response to metadata."""
    return _METADATA if kind.metadata_only else _JSON


@lru_cache(maxsize=64)
def _query(parameters: tuple[tuple[str, str], ...]) -> str:
    """Return the query string of the parameters whose values are not empty, or an empty string if all values are empty.
    The result is cached, because nearly all requests use one of a few query strings."""
    query = urlencode([(name, value) for name, value in parameters if value])
    return f"?{query}" if query else ""


def _no_answer(what: str, error: Exception) -> ConnectionFailedError | RequestTimeoutError:
    kind = RequestTimeoutError if isinstance(error, asyncio.TimeoutError) else ConnectionFailedError
    return kind(f"{what}: {error or type(error).__name__}")


async def _read_body(response: aiohttp.ClientResponse, most: int) -> bytearray | None:
    """Return the response body. If it exceeds ``most`` bytes, close the connection and return None."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            response.close()
            return None
    return body
