"""Connection limits for clients, and for requests that pass HAProxy a second time. Pure.

Some requests take a hop: a backend sends a request to an internal frontend, where HAProxy counts it as a connection
again. Each internal frontend has a separate limit, which neither clients nor requests in other hops can exhaust. A
single client address can use at most seven eighths of each limit and of HAProxy's buffers.
"""

from __future__ import annotations

from slipway.gateway import errors, memory
from slipway.gateway.settings import LEAST_CONNECTIONS, InvalidSettingsError, Settings

ADDRESSES = "addresses"
"""Name of the stick table that counts, by client address, everything that uses buffers: client connections, HTTP/2
requests, and requests in hops."""
HOPS = "hops"
"""Name of the stick table that counts the requests in all hops, by client address."""
WAITS = "waits"
"""Name of the stick table that counts, by client address, the requests that wait for another server because their
server died."""
_EVERY_ADDRESS = "::"
"""Key of the entry in ``WAITS`` that counts the requests of all addresses in total."""
SLOTS = 7
"""Number of HAProxy's stick counters. Counters 0 to 3 belong to backends, addresses, bodies and keys."""
_STREAM, _ALL_CONNECTIONS, _ALL_STREAMS = 4, 5, 6
_ALL_CLIENTS = "ff00::"
"""Key of the entry in ``ADDRESSES`` that counts all addresses in total. No client can have this address."""
_FRONTENDS = 4
_HOP_DIVISOR = 4
"""Divisor for the limit of each hop: the client limit divided by this number."""
TRIES = "x-slipway-tries"
"""Header with the number of times that a request waited because its server died."""
REFUSED = 498
"""Status that a hop returns to the backend ``turns`` instead of 429, which ``turns`` would retry with the next target.
Engines do not use this status."""
_BUFFERS = 2
"""Number of buffers that a request holds in HAProxy, and in each hop, if the client does not read the answer.
Measured."""
_OTHER_FILES = 1000
"""Number of open files that HAProxy needs besides connections: for listeners, health checks and maps."""
_FILES = 2
"""Number of open files per connection: one for the client and one for the server."""


def client_limit(settings: Settings) -> int:
    """Return the maximum number of concurrent client connections."""
    return memory.max_connections(
        settings.max_connections, settings.threads, settings.max_body_bytes, settings.memory_bytes
    )


def address_limit(settings: Settings) -> int:
    """Return the maximum number of concurrent connections and HTTP/2 requests of one client address.

    If buffers are scarce, requests of the address in hops also count. 0 means no limit.
    """
    share = _share(settings, client_limit(settings))
    return min(share, _buffer_share(settings)) if _buffers_are_scarce(settings) else share


def stream_limit(settings: Settings) -> int:
    """Return the number of connections and HTTP/2 requests above which HAProxy rejects HTTP/2 requests."""
    return max(1, client_limit(settings) * 7 // 8)


def hop_limit(settings: Settings) -> int:
    """Return the maximum number of concurrent requests in one hop."""
    return max(1, client_limit(settings) // _HOP_DIVISOR)


def total_connections(settings: Settings) -> int:
    """Return the number of connections that HAProxy counts when all frontends are full."""
    return client_limit(settings) + _FRONTENDS * hop_limit(settings)


def limit_by_open_files(most: int, files: int) -> int:
    """Return the maximum number of clients: ``most``, or fewer if the limit of ``files`` open files requires it.

    Raise InvalidSettingsError if the limit allows fewer than ``LEAST_CONNECTIONS`` clients.
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
    """Return the rules of the public frontend that count connections, and reject connections above a limit.

    The settings may limit the connections of each client address, except for trusted proxies. If memory is limited, the
    total number of connections is also limited.
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
    """Return the rules of the public frontend that count HTTP/2 requests, and reject requests above a limit. The rules
    need ``txn.kind`` and ``txn.id``.

    HTTP/2 requests count as connections, because many requests share a connection and each may hold buffers. They are
    limited for each address. If memory is limited, their total number is also limited. The limit of the total leaves an
    eighth of all connections to new connections, for example of probes.
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
    """Return the first lines of a hop's frontend, which gets the client's address by the PROXY protocol.

    Requests above the hop's limit wait in the backlog. By default, the backlog is as long as the limit, and HAProxy
    would reject further requests.
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
    """Return the address and options of the server that leads to a hop.

    The options close idle connections. HAProxy could reuse them only for the same client port, but would count them as
    requests.
    """
    return f"unix@{run}/{socket} pool-max-conn 0 send-proxy-v2"


def refuse_crowded(settings: Settings, acl: str | None = None) -> str:
    """Return a hop's rules that reject requests of an address with too many requests, before their body is read.

    The rules need ``txn.kind`` and ``txn.id``. ``acl`` is the condition that a request comes from the backend
    ``turns``. It is empty if all requests come from there, and None if no request does.
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
    """Return the rules that limit first waits: to ``most`` requests in total, and to a share of them per client
    address.

    HAProxy rejects further requests. It neither counts nor rejects requests that have waited before.
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
    """Return the sections of haproxy.cfg with the stick tables ``ADDRESSES``, ``HOPS`` and ``WAITS``."""
    return "\n\n".join(
        f"backend {name} from base\n    stick-table type ipv6 size 100k expire 10s store conn_cur"
        for name in (ADDRESSES, HOPS, WAITS)
    )


def _buffers_are_scarce(settings: Settings) -> bool:
    """Whether one client address could use too many buffers without exceeding the limits of connections and hops."""
    shares = _share(settings, client_limit(settings)) + _share(settings, hop_limit(settings))
    return bool(settings.memory_bytes) and _buffer_share(settings) < shares


def _buffer_share(settings: Settings) -> int:
    """Return the number of requests of one slow client address that together use seven eighths of the buffers."""
    buffers = memory.max_buffers(settings.threads, settings.max_body_bytes, settings.memory_bytes)
    return buffers * 7 // 8 // _BUFFERS


def _share(settings: Settings, limit: int) -> int:
    return min(settings.max_connections_per_address, max(1, limit * 7 // 8))
