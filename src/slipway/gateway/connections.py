"""How many connections there may be: of clients, and of requests that come back into HAProxy. Pure.

Some requests take a hop: a backend sends them to one of our own frontends. There they are connections again, which
count for HAProxy as clients do. Each such frontend has room of its own, so that neither clients nor the requests of
another hop can fill it, and leaves an eighth of it to others, whatever one client has.
"""

from __future__ import annotations

from slipway.gateway import errors, memory
from slipway.gateway.settings import LEAST_CONNECTIONS, InvalidSettingsError, Settings

ADDRESSES = "addresses"
"""Stick table: connections of each address to the public port."""
_HOPS = "hops"
"""Stick table: requests of each client in the frontends of hops."""
_FRONTENDS = 4
_PART = 4
"""Of the clients' number, the part that may be in one hop at a time."""
REFUSED = 498
"""Status of a hop's refusal on its way to the backend ``turns``, which would try 429 again, and with another target. No
engine answers with it."""
_OTHER_FILES = 1000
"""Files beside those of connections: listeners, checks, maps."""


def clients(settings: Settings) -> int:
    """How many clients may be connected."""
    return memory.connections(
        settings.max_connections, settings.threads, settings.max_body_bytes, settings.memory_bytes
    )


def room(settings: Settings) -> int:
    """How many requests may be in one hop."""
    return max(1, clients(settings) // _PART)


def in_all(settings: Settings) -> int:
    """What HAProxy counts when every frontend is full."""
    return clients(settings) + _FRONTENDS * room(settings)


def within(most: int, files: int) -> int:
    """`most` clients, or as many as HAProxy can have with so many open files: two for each connection. Raises
    InvalidSettingsError where those are too few."""
    served = (files - _OTHER_FILES) * _PART // (2 * (_PART + _FRONTENDS))
    if served < LEAST_CONNECTIONS:
        needed = _OTHER_FILES + LEAST_CONNECTIONS * 2 * (_PART + _FRONTENDS) // _PART
        raise InvalidSettingsError(
            f"{files} files may be open, and {LEAST_CONNECTIONS} clients need {needed}: raise the limit of open files"
            " (ulimit -n) of the container runtime"
        )
    return min(most, served)


def track(settings: Settings) -> str:
    """Of the public frontend. An address leaves an eighth to others, also where memory allows fewer connections."""
    trusted = f"    acl trusted fc_src {' '.join(settings.trusted_proxies)}\n" if settings.trusted_proxies else ""
    if not settings.max_connections_per_address:
        return f"{trusted}    # An address may have as many connections as there are."
    unless = " unless trusted" if trusted else ""
    return f"""\
{trusted}    tcp-request connection track-sc1 src,ipmask(32,64) table {ADDRESSES}{unless}
    tcp-request connection reject if {{ sc1_conn_cur gt {_share(settings, clients(settings))} }}"""


def hop(settings: Settings, socket: str) -> str:
    """Of a hop's frontend: where it listens, and how much room it has. Clients are known by the PROXY protocol.

    Requests beyond wait for room. Without a backlog of their own HAProxy would refuse them soon.
    """
    listen = f"""\
    bind unix@{settings.run_directory}/{socket} mode 600 accept-proxy
    maxconn {room(settings)}
    backlog {clients(settings)}"""
    if not settings.max_connections_per_address:
        return listen
    return f"{listen}\n    tcp-request session track-sc1 src,ipmask(32,64) table {_HOPS}"


def refuse(settings: Settings, turned: str | None = None) -> str:
    """Rules of a hop's frontend, once the variables are set by which an error gets the shape of its path. `turned`:
    condition of requests that came through the backend ``turns``; empty: all of them, None: none."""
    if not settings.max_connections_per_address:
        return "    # A client may have all of the room."
    crowded = f"{{ sc1_conn_cur gt {_share(settings, room(settings))} }}"
    rules = []
    if turned is not None:
        rules.append(f"{errors.return_rule(errors.CROWDED_HOP, REFUSED)} if {crowded} {turned}".rstrip())
    if turned != "":
        rules.append(f"{errors.return_rule(errors.CROWDED_HOP)} if {crowded}")
    return "\n".join(f"    http-request {rule}" for rule in rules)


def tables() -> str:
    """The stick tables."""
    return "\n\n".join(
        f"backend {name} from base\n    stick-table type ipv6 size 100k expire 10s store conn_cur"
        for name in (ADDRESSES, _HOPS)
    )


def _share(settings: Settings, connections: int) -> int:
    return min(settings.max_connections_per_address, max(1, connections * 7 // 8))
