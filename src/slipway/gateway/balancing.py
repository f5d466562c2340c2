"""What HAProxy must know to choose endpoints by what requests share. Pure: the table in, entries of a map out.

The choice itself is made in ``lua/prefix.lua``. A model without an entry goes to the endpoint with the least to do.
"""

from __future__ import annotations

from slipway.gateway.table import Backend, RoutingTable

ENDPOINT_COOKIE = "slipway-endpoint"
"""Cookie that sends a request to a server: the only such means that backends made at run time have."""
SESSION_HEADERS = ("x-session-id", "session-id", "session_id", "x-claude-code-session-id")
"""Headers by which clients say that requests belong together, the one that counts most first."""
HASHED, AFFINE = "h", "a"
_KINDS = {"PrefixHash": HASHED, "Affinity": AFFINE}
"""How an entry of the map begins, by strategy. With others HAProxy chooses alone."""
_LONGEST = 12000
"""Characters of an entry: enough for 500 endpoints of IPv4, and few beside what a command for HAProxy may have."""
_MOST_CHARACTERS = 10000


def server_name(endpoint: str) -> str:
    """Name of an endpoint's server: the address without the brackets, which names cannot hold."""
    return endpoint.replace("[", "").replace("]", "")


def rings(table: RoutingTable, default: str = "LeastLoad") -> dict[str, str]:
    """By backend: kind and name, percent of the mean load that one endpoint may have, characters to hash, servers.

    `default`: the strategy of those whose routes say LeastLoad, or nothing.
    """
    return {name: ring for name, backend in table.backends.items() if (ring := _ring(backend, default))}


def _ring(backend: Backend, default: str) -> str:
    kind = _KINDS.get(default if backend.route.strategy == "LeastLoad" else backend.route.strategy)
    if kind is None or len(backend.endpoints) < 2:
        return ""
    chosen = backend.route.prefix_hash
    characters = min(chosen.prefix_char_length, _MOST_CHARACTERS)
    words = (
        kind,
        backend.name,
        str(max(chosen.mean_load_factor, 100)),
        str(characters),
        *map(server_name, backend.endpoints),
    )
    ring = ",".join(words)
    return ring if characters > 0 and len(ring) <= _LONGEST else ""
