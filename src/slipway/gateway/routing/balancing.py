"""What HAProxy must know to choose endpoints by prefix. Pure: the table in, entries of a map out.

The choice itself is made in ``lua/prefix.lua``. A model without an entry goes to the endpoint with the least to do.
"""

from __future__ import annotations

from slipway.gateway.routing.table import Backend, RoutingTable

ENDPOINT_COOKIE = "slipway-endpoint"
"""Cookie that sends a request to a server: the only such means that backends made at run time have."""
_LONGEST_ENTRY = 12000
"""Characters of an entry: enough for 500 endpoints of IPv4, and few beside what a command for HAProxy may have."""
_MOST_CHARACTERS = 10000


def server_name(endpoint: str) -> str:
    """Name of an endpoint's server: the address without the brackets, which names cannot hold."""
    return endpoint.replace("[", "").replace("]", "")


def rings(table: RoutingTable) -> dict[str, str]:
    """By backend: its name, percent of the mean load that one endpoint may have, characters to hash, its servers."""
    return {name: ring for name, backend in table.backends.items() if (ring := _ring(backend))}


def _ring(backend: Backend) -> str:
    if backend.route.strategy != "PrefixHash" or len(backend.endpoints) < 2:
        return ""
    settings = backend.route.prefix_hash
    characters = min(settings.prefix_char_length, _MOST_CHARACTERS)
    words = (
        backend.name,
        str(max(settings.mean_load_factor, 100)),
        str(characters),
        *map(server_name, backend.endpoints),
    )
    ring = ",".join(words)
    return ring if characters > 0 and len(ring) <= _LONGEST_ENTRY else ""
