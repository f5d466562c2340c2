"""The map with which HAProxy selects endpoints by prefix. Pure: table in, entries out.

``lua/prefix.lua`` makes the choice. Requests for a model without an entry go to the endpoint with the fewest requests.
"""

from __future__ import annotations

from slipway.gateway.routing.table import Backend, RoutingTable

ENDPOINT_COOKIE = "slipway-endpoint"
"""Cookie that selects the server of a request. Backends created at run time offer no other way."""
_LONGEST_ENTRY = 12000
"""Maximum characters of an entry: enough for 500 IPv4 endpoints, and much less than the longest command for HAProxy."""
_MOST_CHARACTERS = 10000


def server_name(endpoint: str) -> str:
    """Returns the name of an endpoint's server: its address without brackets, which names cannot contain."""
    return endpoint.replace("[", "").replace("]", "")


def rings(table: RoutingTable) -> dict[str, str]:
    """Returns the entries by backend: its name, maximum load in percent of the mean, characters to hash, servers."""
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
