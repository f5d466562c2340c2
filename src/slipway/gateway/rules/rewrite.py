"""Rules for requests whose body must be changed, and their additional hop. Pure.

Engines get bodies as clients sent them, except in three cases:

- An engine would interpret a form's field ``model``, so the field is renamed.
- An engine only knows the plain name of its model, so an ID ``namespace/name`` is shortened.
- An engine answers for an ID of another route and knows its model by another name, so that name is written. The body
  may become longer.

Only a filter can change a body in HAProxy, and a filter costs every request of its section. A separate backend
therefore has the filter. It sends requests back to HAProxy, to the frontend ``again``, which passes them to the model's
backend.
"""

from __future__ import annotations

from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import connections, fallback_server
from slipway.gateway.settings import Settings

DROPPED_MAP, NAMES_MAP = "dropped.map", "names.map"
CHANGED = "{ var(txn.text) -m found }"
"""Condition of requests that take the hop."""
_SOCKET = "again.sock"
_BACKEND_HEADER = "x-slipway-backend"


def maps(table: RoutingTable) -> dict[str, dict[str, str]]:
    """Returns the maps of backends whose engines must not get the field ``model``, and of plain names by ID."""
    return {
        DROPPED_MAP: {name: "1" for name, backend in table.backends.items() if backend.route.drop_model_field},
        NAMES_MAP: dict(_plain_names(table)),
    }


def _plain_names(table: RoutingTable) -> list[tuple[str, str]]:
    """Returns the qualified IDs that are longer than the engine's name, each with that name: the route's first ID."""
    pairs = []
    for model, name in table.models.items():
        backend = table.backends[name]
        first = backend.route.models[0] if backend.route.models else backend.service
        if model == f"{backend.namespace}/{backend.route.name or backend.service}" and len(first) < len(model):
            pairs.append((model, first))
    return pairs


def rules(run: str) -> str:
    """Returns the public frontend's rules that make CHANGED true if the body must be changed. They need the backend."""
    return f"""\
    http-request set-var(txn.text) str(-) if form {{ var(txn.be),map_str({run}/{DROPPED_MAP}) -m found }}
    http-request set-var(txn.at) var(txn.field) if {CHANGED}
    http-request set-var(txn.name,ifnotexists) var(txn.model),map_str({run}/{NAMES_MAP})\
 if !form {{ var(txn.model) -m sub / }}
    http-request lua.place_model if {{ var(txn.name) -m found }}
    http-request set-header {_BACKEND_HEADER} %[var(txn.be)] if {CHANGED}"""


def sections(settings: Settings, last_rules: str) -> str:
    """Returns the sections of the hop. ``last_rules``: rules for every request to a model."""
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
