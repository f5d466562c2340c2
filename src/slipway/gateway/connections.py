"""Connection limits: for clients, and for requests that pass HAProxy a second time. Pure.

Some requests take a hop: a backend sends them to an internal frontend, where HAProxy counts them as connections again.
Each internal frontend has a separate limit, so that neither clients nor requests in another hop can use it up. One
client address leaves an eighth of each limit to others.
"""

from __future__ import annotations

from slipway.gateway import errors, memory
from slipway.gateway.settings import LEAST_CONNECTIONS, InvalidSettingsError, Settings

ADDRESSES = "addresses"
"""Stick table: connections of each address to the public port."""
HOPS = "hops"
"""Stick table: requests of each client address in all hops."""
_FRONTENDS = 4
_PART = 4
"""Each hop has the clients' limit divided by this."""
REFUSED = 498
"""Status of a refusal on its way to the backend ``turns``, which would retry a 429 with the next target. Engines do not
use it."""
_OTHER_FILES = 1000
"""Open files for everything else: listeners, checks, maps."""
_FILES = 2
"""Open files of each connection: one on either side."""


def client_limit(settings: Settings) -> int:
    """Concurrent connections of clients."""
    return memory.connections(
        settings.max_connections, settings.threads, settings.max_body_bytes, settings.memory_bytes
    )


def hop_limit(settings: Settings) -> int:
    """Concurrent requests in one hop."""
    return max(1, client_limit(settings) // _PART)


def total(settings: Settings) -> int:
    """Connections that HAProxy counts when every frontend is full."""
    return client_limit(settings) + _FRONTENDS * hop_limit(settings)


def within_open_files(most: int, files: int) -> int:
    """`most` clients, or as many as `files` open files allow. Raises InvalidSettingsError if that is too few."""
    files_of_clients = _FILES * (_PART + _FRONTENDS)
    allowed = (files - _OTHER_FILES) * _PART // files_of_clients
    if allowed < LEAST_CONNECTIONS:
        needed = _OTHER_FILES + LEAST_CONNECTIONS * files_of_clients // _PART
        raise InvalidSettingsError(
            f"The limit of open files is {files}, but {LEAST_CONNECTIONS} clients need {needed}. Raise the limit"
            " (ulimit -n) of the node's container runtime."
        )
    return min(most, allowed)


def track(settings: Settings) -> str:
    """Rules of the public frontend. They also hold if memory allows fewer connections than the settings."""
    trusted = f"    acl trusted fc_src {' '.join(settings.trusted_proxies)}\n" if settings.trusted_proxies else ""
    if not settings.max_connections_per_address:
        return f"{trusted}    # An address may have as many connections as there are."
    unless = " unless trusted" if trusted else ""
    return f"""\
{trusted}    tcp-request connection track-sc1 src,ipmask(32,64) table {ADDRESSES}{unless}
    tcp-request connection reject if {{ sc1_conn_cur gt {_share(settings, client_limit(settings))} }}"""


def listen(settings: Settings, socket: str) -> str:
    """First lines of a hop's frontend. The PROXY protocol names the client.

    Requests beyond the limit wait in the backlog. By default it is as long as the limit, and HAProxy refuses the rest.
    """
    lines = f"""\
    bind unix@{settings.run_directory}/{socket} mode 600 accept-proxy
    maxconn {hop_limit(settings)}
    backlog {client_limit(settings)}"""
    if not settings.max_connections_per_address:
        return lines
    return f"{lines}\n    tcp-request session track-sc1 src,ipmask(32,64) table {HOPS}"


def connect(run: str, socket: str) -> str:
    """Address and options of the server that leads to a hop.

    HAProxy reuses such a connection for the same client port only. Idle ones would count as requests and gain little.
    """
    return f"unix@{run}/{socket} pool-max-conn 0 send-proxy-v2"


def refuse(settings: Settings, turned: str | None = None) -> str:
    """Rules of a hop's frontend that refuse an address with too many requests, before anything is read.

    Needs txn.kind and txn.id, which shape errors. `turned`: the condition of requests that come from the backend
    ``turns``; empty: all do, None: none does.
    """
    if not settings.max_connections_per_address:
        return "    # An address may have as many requests here as there are."
    crowded = f"{{ sc1_conn_cur gt {_share(settings, hop_limit(settings))} }}"
    rules = []
    if turned is not None:
        rules.append(f"{errors.return_rule(errors.CROWDED_HOP, REFUSED)} if {crowded} {turned}".rstrip())
    if turned != "":
        rules.append(f"{errors.return_rule(errors.CROWDED_HOP)} if {crowded}")
    return "\n".join(f"    http-request {rule}" for rule in rules)


def tables() -> str:
    """Sections with the stick tables."""
    return "\n\n".join(
        f"backend {name} from base\n    stick-table type ipv6 size 100k expire 10s store conn_cur"
        for name in (ADDRESSES, HOPS)
    )


def _share(settings: Settings, limit: int) -> int:
    return min(settings.max_connections_per_address, max(1, limit * 7 // 8))
