"""A file at a web address that somebody named in a spec: asked only where the guard lets it.

The addresses of a name are looked at when a connection is made, and the one that was looked at is connected to, so that
no name can lead somewhere else a moment later. The same goes for every host that a redirect leads to.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError

from slipway.artifacts.guard import Guard
from slipway.loader.selection import FaultError
from slipway.loader.source import Source
from slipway.loader.sources.web import WebFile

MOST_REDIRECTS = 5
HINT = "ask the operator to allow it"


class GuardedFile(WebFile):
    """See :class:`slipway.loader.sources.web.WebFile`."""

    def __init__(self, url: str, env: Mapping[str, str], guard: Guard) -> None:
        super().__init__(url, env)
        self._client.max_redirects = MOST_REDIRECTS
        for prefix in ("http://", "https://"):
            self._client.mount(prefix, GuardedAdapter(guard))


class GuardedAdapter(HTTPAdapter):
    """Makes connections to addresses that the guard allows. Through a proxy, which looks names up itself, it can only
    refuse those that are addresses."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        super().__init__(max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        self.poolmanager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **options)
        self.poolmanager.pool_classes_by_scheme = _pools(self._guard)

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        host = urlsplit(request.url or "").hostname or ""
        refused = self._guard.refusal_of_name(_canonical(host))
        if refused:
            raise FaultError("SourceNotAllowed", f"{refused}: {HINT}")
        return super().send(request, *args, **options)


def _canonical(host: str) -> str:
    """An IPv4 address in the usual form, if it is one in any: ``2130706433`` is 127.0.0.1."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host


def _pools(guard: Guard) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connected(self, guard)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connected(self, guard)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _connected(connection: HTTPConnection, guard: Guard) -> socket.socket:
    """A socket to the first address that answers. One that is refused refuses all: a name leads to one place or another
    as its owner likes."""
    host = connection.host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NewConnectionError(connection, "its name is not known") from error
    for _family, _kind, _protocol, _name, address in found:
        refused = guard.refusal(host, str(address[0]))
        if refused:
            raise FaultError("SourceNotAllowed", f"{refused}: {HINT}")
    failure: OSError | None = None
    for family, kind, protocol, _name, address in found:
        made = socket.socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                made.setsockopt(*option)
            if isinstance(connection.timeout, int | float):
                made.settimeout(connection.timeout)
            made.connect(address)
        except OSError as error:
            made.close()
            failure = error
        else:
            return made
    raise NewConnectionError(connection, "none of its addresses answers") from failure


def open_source(url: str, env: Mapping[str, str], guard: Guard) -> Source:
    return GuardedFile(url, env, guard)
