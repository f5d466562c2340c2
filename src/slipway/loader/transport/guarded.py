"""Connections to hosts that a spec names, limited to addresses that the policy allows.

The addresses of a host are checked when a connection is opened, and the connection uses a checked address, so a later
change of the DNS record has no effect. The same applies to the hosts of redirects.
"""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NameResolutionError, NewConnectionError

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader.transport.selection import FaultError

MOST_REDIRECTS = 5
HINT = "ask the operator to allow it"


class GuardedAdapter(HTTPAdapter):
    """An HTTP adapter that connects only to addresses that the policy allows. A proxy resolves names itself, so through
    a proxy only literal addresses can be rejected."""

    def __init__(self, policy: AddressPolicy, connections: int) -> None:
        self._policy = policy
        super().__init__(pool_connections=connections, pool_maxsize=connections, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        """Create pools that check the address of each connection. The ``requests`` library calls this method."""
        self.poolmanager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **options)
        self.poolmanager.pool_classes_by_scheme = _pools(self._policy)

    def proxy_manager_for(self, proxy: str, **options: Any) -> ProxyManager:
        """Return the manager of connections to a proxy, which checks the proxy's address only if the policy requires
        it. The ``requests`` library calls this method."""
        manager: ProxyManager = super().proxy_manager_for(proxy, **options)
        if self._policy.proxies:
            manager.pool_classes_by_scheme = _pools(self._policy)
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request. Raise FaultError if the host is itself a forbidden address."""
        host = urlsplit(request.url or "").hostname or ""
        refused = self._policy.refusal_of_name(_canonical(host))
        if refused:
            raise FaultError("SourceNotAllowed", f"{refused}: {HINT}")
        return super().send(request, *args, **options)


def _canonical(host: str) -> str:
    """Return the usual form of an IPv4 address: ``2130706433``, for example, is ``127.0.0.1``. Return any other host
    unchanged."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host


def _pools(address_policy: AddressPolicy) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connected(self, address_policy)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connected(self, address_policy)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _connected(connection: HTTPConnection, address_policy: AddressPolicy) -> socket.socket:
    """Return a socket connected to the first of the host's addresses that answers. Raise FaultError if any of them is
    forbidden, because the owner of the host name decides which one is returned first."""
    host = connection.host.removeprefix("[").removesuffix("]")
    try:
        addresses = socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NameResolutionError(host, connection, error) from error  # type: ignore[arg-type] # accepts any error
    for _family, _kind, _protocol, _name, address in addresses:
        refused = address_policy.refusal(host, str(address[0]))
        if refused:
            raise FaultError("SourceNotAllowed", f"{refused}: {HINT}")
    failure: OSError | None = None
    for family, kind, protocol, _name, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                sock.setsockopt(*option)
            if isinstance(connection.timeout, int | float):
                sock.settimeout(connection.timeout)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise NewConnectionError(connection, "none of its addresses answers") from failure
