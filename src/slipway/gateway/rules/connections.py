"""Connection limits for clients, and for requests that pass HAProxy a second time. Pure.

Some requests take a hop: a backend sends them to an internal frontend, where HAProxy counts them as connections again.
Each internal frontend has a separate limit, so neither clients nor requests in other hops can exhaust it. A single
client address can use at most seven eighths of each limit and of HAProxy's buffers.
"""

from __future__ import annotations

from slipway.gateway import errors, memory
from slipway.gateway.settings import LEAST_CONNECTIONS, InvalidSettingsError, Settings

ADDRESSES = "addresses"
"""Stick table that counts all users of buffers by address: client connections, HTTP/2 requests, requests in hops."""
HOPS = "hops"
"""Stick table that counts the requests of each client address in all hops."""
WAITS = "waits"
"""Stick table that counts the requests of each client address that wait for another server because theirs died."""
_EVERY_ADDRESS = "::"
"""Entry of ``WAITS`` that counts all addresses together."""
SLOTS = 7
"""Number of stick counters. 0 to 3 belong to backends, addresses, bodies and keys."""
_STREAM, _ALL_CONNECTIONS, _ALL_STREAMS = 4, 5, 6
_ALL_CLIENTS = "ff00::"
"""Entry of ``ADDRESSES`` that counts all addresses together. No client has this address."""
_FRONTENDS = 4
_HOP_DIVISOR = 4
"""The limit of each hop is the limit of clients divided by this."""
TRIES = "x-slipway-tries"
"""Header with the number of waits of a request because its server died."""
REFUSED = 498
"""Status that replaces 429 on its way to the backend ``turns``, which would retry a 429 with the next target. Engines
do not use this status."""
_BUFFERS = 2
"""Buffers that a request holds if its client does not read the answer. Each hop needs the same number. Measured."""
_OTHER_FILES = 1000
"""Open files for everything else: listeners, checks, maps."""
_FILES = 2
"""Open files of each connection: one on either side."""


def client_limit(settings: Settings) -> int:
    """Returns the limit of concurrent client connections."""
    return memory.max_connections(
        settings.max_connections, settings.threads, settings.max_body_bytes, settings.memory_bytes
    )


def address_limit(settings: Settings) -> int:
    """Returns the limit of connections and HTTP/2 requests of one client address.

    If buffers are scarce, it also includes the address's requests in hops.
    """
    share = _share(settings, client_limit(settings))
    return min(share, _buffer_share(settings)) if _buffers_are_scarce(settings) else share


def stream_limit(settings: Settings) -> int:
    """Returns the number of connections and HTTP/2 requests above which HAProxy refuses HTTP/2 requests."""
    return max(1, client_limit(settings) * 7 // 8)


def hop_limit(settings: Settings) -> int:
    """Returns the limit of concurrent requests in one hop."""
    return max(1, client_limit(settings) // _HOP_DIVISOR)


def total_connections(settings: Settings) -> int:
    """Returns the number of connections that HAProxy counts if every frontend is full."""
    return client_limit(settings) + _FRONTENDS * hop_limit(settings)


def limit_by_open_files(most: int, files: int) -> int:
    """Returns ``most``, or the number of clients that ``files`` open files allow if that is less.

    Raises InvalidSettingsError if that is too few.
    """
    files_of_clients = _FILES * (_HOP_DIVISOR + _FRONTENDS)
    allowed = (files - _OTHER_FILES) * _HOP_DIVISOR // files_of_clients
    if allowed < LEAST_CONNECTIONS:
        needed = _OTHER_FILES + LEAST_CONNECTIONS * files_of_clients // _HOP_DIVISOR
        raise InvalidSettingsError(
            f"The limit of open files is {files}, but {LEAST_CONNECTIONS} clients need {needed}. Raise the limit"
            " (ulimit -n) of the node's container runtime."
        )
    return min(most, allowed)


def track_connections(settings: Settings) -> str:
    """Returns the public frontend's rules that count connections and reject those above a limit.

    If set, each client address has a limit, except trusted proxies. If memory is limited, there is also a limit for all
    addresses together.
    """
    rules = []
    if settings.trusted_proxies:
        rules.append(f"acl trusted fc_src {' '.join(settings.trusted_proxies)}")
    if settings.max_connections_per_address:
        unless = " unless trusted" if settings.trusted_proxies else ""
        rules.append(f"tcp-request connection track-sc1 src,ipmask(32,64) table {ADDRESSES}{unless}")
        rules.append(f"tcp-request connection reject if {{ sc1_conn_cur gt {address_limit(settings)} }}")
    else:
        rules.append("# Connections of an address are not limited.")
    if settings.memory_bytes:
        rules.append(f"tcp-request connection track-sc{_ALL_CONNECTIONS} str({_ALL_CLIENTS}) table {ADDRESSES}")
        rules.append(f"tcp-request connection reject if {_is_above(client_limit(settings), _ALL_CONNECTIONS)}")
    return "\n".join(f"    {rule}" for rule in rules)


def track_streams(settings: Settings) -> str:
    """Returns the public frontend's rules that count and refuse HTTP/2 requests. They need txn.kind and txn.id.

    HTTP/2 requests count as connections, because each may hold buffers, and many of them share a connection. They are
    limited for each address, and if memory is limited, also for all addresses together. This second limit leaves an
    eighth of the connections, which HAProxy can only accept or close, to new ones such as probes.
    """
    tracked, refused = [], []
    if settings.max_connections_per_address:
        untrusted = " !trusted" if settings.trusted_proxies else ""
        tracked.append(f"track-sc{_STREAM} src,ipmask(32,64) table {ADDRESSES} if http2{untrusted}")
        crowded = f"{{ sc_conn_cur({_STREAM}) gt {address_limit(settings)} }}"
        refused.append(f"{errors.return_rule(errors.CROWDED_HOP)} if {crowded}")
    if settings.memory_bytes:
        tracked.append(f"track-sc{_ALL_STREAMS} str({_ALL_CLIENTS}) table {ADDRESSES} if http2")
        refused.append(f"{errors.return_rule(errors.ALL_CROWDED)} if {_is_above(stream_limit(settings), _ALL_STREAMS)}")
    if not tracked:
        return "    # HTTP/2 requests of an address are not limited."
    return "\n".join(("    acl http2 fc_http_major 2", *(f"    http-request {rule}" for rule in tracked + refused)))


def _is_above(limit: int, counter: int) -> str:
    return f"{{ sc_conn_cur({counter}) gt {limit} }}"


def hop_listener(settings: Settings, socket: str) -> str:
    """Returns the first lines of a hop's frontend. The PROXY protocol passes the client's address.

    Requests above the limit wait in the backlog. Its default length is the limit, and HAProxy would refuse the rest.
    """
    lines = f"""\
    bind unix@{settings.run_directory}/{socket} mode 600 accept-proxy
    maxconn {hop_limit(settings)}
    backlog {client_limit(settings)}"""
    if not settings.max_connections_per_address:
        return lines
    lines += f"\n    tcp-request session track-sc1 src,ipmask(32,64) table {HOPS}"
    if not _buffers_are_scarce(settings):
        return lines
    return f"{lines}\n    tcp-request session track-sc{_STREAM} src,ipmask(32,64) table {ADDRESSES}"


def hop_server(run: str, socket: str) -> str:
    """Returns the address and options of the server that leads to a hop.

    HAProxy reuses such connections for the same client port only. Idle ones would count as requests, with little gain.
    """
    return f"unix@{run}/{socket} pool-max-conn 0 send-proxy-v2"


def refuse_crowded(settings: Settings, acl: str | None = None) -> str:
    """Returns a hop's rules that refuse requests of an address with too many requests, before their body is read.

    The errors need txn.kind and txn.id. ``turned``: condition of requests from the backend ``turns``. Empty: all
    requests come from it; None: none does.
    """
    if not settings.max_connections_per_address:
        return "    # Requests of an address are not limited here."
    crowded = [f"{{ sc1_conn_cur gt {_share(settings, hop_limit(settings))} }}"]
    if _buffers_are_scarce(settings):
        crowded.append(f"{{ sc_conn_cur({_STREAM}) gt {address_limit(settings)} }}")
    rules = []
    if acl is not None:
        turns = " || ".join(f"{one} {acl}".rstrip() for one in crowded)
        rules.append(f"{errors.return_rule(errors.CROWDED_HOP, REFUSED)} if {turns}")
    if acl != "":
        rules.append(f"{errors.return_rule(errors.CROWDED_HOP)} if {' || '.join(crowded)}")
    return "\n".join(f"    http-request {rule}" for rule in rules)


def refuse_waits(settings: Settings, most: int) -> str:
    """Returns the rules that refuse a first wait if ``most`` such requests wait, or the address has used its share.

    Requests that have waited before are not counted.
    """
    first = f"!{{ req.fhdr({TRIES}) -m found }}"
    unreachable = errors.return_rule(errors.UNREACHABLE)
    of_address = ""
    if settings.max_connections_per_address:
        of_address = f"""\
    http-request track-sc2 src,ipmask(32,64) table {WAITS} if {first}
    http-request {unreachable} if {{ sc2_conn_cur gt {_share(settings, most)} }}
"""
    return f"""\
{of_address}\
    http-request track-sc3 str({_EVERY_ADDRESS}) table {WAITS} if {first}
    http-request {unreachable} if {{ sc_conn_cur(3) gt {most} }}"""


def tables() -> str:
    """Returns the sections with the stick tables."""
    return "\n\n".join(
        f"backend {name} from base\n    stick-table type ipv6 size 100k expire 10s store conn_cur"
        for name in (ADDRESSES, HOPS, WAITS)
    )


def _buffers_are_scarce(settings: Settings) -> bool:
    """Whether one client address could hold too many buffers within the limits of connections and hops."""
    shares = _share(settings, client_limit(settings)) + _share(settings, hop_limit(settings))
    return bool(settings.memory_bytes) and _buffer_share(settings) < shares


def _buffer_share(settings: Settings) -> int:
    """Returns how many requests of one client address, even a slow one, leave an eighth of the buffers to others."""
    buffers = memory.max_buffers(settings.threads, settings.max_body_bytes, settings.memory_bytes)
    return buffers * 7 // 8 // _BUFFERS


def _share(settings: Settings, limit: int) -> int:
    return min(settings.max_connections_per_address, max(1, limit * 7 // 8))
