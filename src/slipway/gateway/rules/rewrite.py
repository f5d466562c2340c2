"""Rules for requests whose body must be changed, and for the hop that these requests take. Pure.

Engines get bodies as clients sent them, except in three cases:

- An engine would interpret a form's field ``model``, so the field is renamed.
- An engine only accepts the plain name of its model, so an ID ``namespace/name`` is shortened.
- An engine answers requests for an ID of another route, but uses another name for its model. The ID is replaced with
  this name, and the body may become longer.

HAProxy can change a body only with a filter, which costs CPU time for every request of its section. The filter is
therefore in a separate backend. This backend sends requests back to HAProxy, to the frontend ``again``, which passes
them to the model's backend.
"""

from __future__ import annotations

from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import connections, fallback_server
from slipway.gateway.settings import Settings

DROPPED_MAP, NAMES_MAP = "dropped.map", "names.map"
CHANGED = "{ var(txn.text) -m found }"
"""HAProxy condition that is true if the request takes the hop, because its body must be changed or its answer must
begin in time."""
_SOCKET = "again.sock"
_BACKEND_HEADER = "x-slipway-backend"


def maps(table: RoutingTable) -> dict[str, dict[str, str]]:
    """Return two maps by file name: backends whose engines must not get the field ``model``, and plain names of models
    by ID."""
    return {
        DROPPED_MAP: {name: "1" for name, backend in table.backends.items() if backend.route.drop_model_field},
        NAMES_MAP: dict(_plain_names(table)),
    }


def _plain_names(table: RoutingTable) -> list[tuple[str, str]]:
    """Return pairs of an ID ``namespace/name`` and the engine's name for the model, if the name is shorter. The
    engine's name is the first ID of the route, or the Service's name if the route has no IDs."""
    pairs = []
    for model, name in table.models.items():
        backend = table.backends[name]
        first = backend.route.models[0] if backend.route.models else backend.service
        if model == f"{backend.namespace}/{backend.route.name or backend.service}" and len(first) < len(model):
            pairs.append((model, first))
    return pairs


def rules(run: str) -> str:
    """Return the rules of the public frontend that make ``CHANGED`` true if the body must be changed. They need
    ``txn.be``, the name of the backend."""
    return f"""\
    http-request set-var(txn.text) str(-) if form {{ var(txn.be),map_str({run}/{DROPPED_MAP}) -m found }}
    http-request set-var(txn.at) var(txn.field) if {CHANGED}
    http-request set-var(txn.name,ifnotexists) var(txn.model),map_str({run}/{NAMES_MAP})\
 if !form {{ var(txn.model) -m sub / }}
    http-request lua.place_model if {{ var(txn.name) -m found }}
    http-request set-header {_BACKEND_HEADER} %[var(txn.be)] if {CHANGED}"""


def sections(settings: Settings, last_rules: str) -> str:
    """Return the sections of haproxy.cfg for the hop. ``last_rules`` are the rules for every request to a model."""
    run = settings.run_directory
    is_next = f"{{ req.fhdr({fallback_server.NEXT}) -m found }}"
    return f"""\
# Requests whose body changes, or whose answer must begin in time. They pass the filter and return to this process.
backend rewrite from base
    option httpclose
    http-request set-timeout server var(txn.within) if {{ var(txn.within) -m found }}
    http-response set-timeout server {settings.stream_idle_seconds}s if {{ var(txn.within) -m found }}
    filter lua.rewrite
    server again {connections.hop_server(run, _SOCKET)}

frontend again from base
{connections.hop_listener(settings, _SOCKET)}
    http-request set-var(txn.id) req.fhdr(x-request-id)
    http-request set-var(txn.kind) path,map_str_int({run}/paths.map)
{connections.refuse_crowded(settings, is_next)}
    http-request set-var(txn.be) req.fhdr({_BACKEND_HEADER})
    http-request del-header {_BACKEND_HEADER}
    http-request del-header connection
    # Waits for the part that fits in a buffer. A complete request can be resent; others pass as they arrive.
    http-request wait-for-body time 60s
{last_rules}
    use_backend %[var(txn.be)]"""
