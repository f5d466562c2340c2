"""The map with which HAProxy selects endpoints by the prefix of the prompt. Pure.

``lua/prefix.lua`` selects the endpoint. Requests for a model without an entry in the map go to the endpoint with the
fewest requests.
"""

from __future__ import annotations

from slipway.gateway.routing.table import Backend, RoutingTable

ENDPOINT_COOKIE = "slipway-endpoint"
"""Cookie that selects the server of a request. Backends that are created at run time support no other method."""
_LONGEST_ENTRY = 12000
"""Maximum length of a map entry in characters. It is enough for 500 IPv4 endpoints, and much shorter than HAProxy's
longest command."""
_MOST_CHARACTERS = 10000


def server_name(endpoint: str) -> str:
    """Return the name of an endpoint's HAProxy server: the endpoint without brackets, which names cannot contain."""
    return endpoint.replace("[", "").replace("]", "")


def rings(table: RoutingTable) -> dict[str, str]:
    """Return the map entry of each model with prefix hashing, by backend name. An entry contains, separated by commas,
    the backend name, the maximum load in percent of the mean, the number of characters to hash, and the servers.

    Omit models with fewer than two endpoints, with no characters to hash, or with too long an entry.
    """
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
