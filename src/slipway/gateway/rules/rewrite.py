"""Requests whose body is changed on its way: what is changed, and the further hop that they take. Pure.

Engines get bodies as clients sent them, but for three cases. One takes a form's field ``model`` for a name of its own:
the field is renamed. One knows its model by the plain name only: an id ``namespace/name`` is shortened. One answers for
an id of another route, and knows its model by another name: that one is written, and the body may become longer.
HAProxy can change a body only in a filter, and a filter costs every request of its section: hence a backend with the
filter that leads back into HAProxy, to the frontend ``again``, which leads to the model's backend.
"""

from __future__ import annotations

from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import connections, fallback_server
from slipway.gateway.settings import Settings

DROPPED_MAP, NAMES_MAP = "dropped.map", "names.map"
CHANGED = "{ var(txn.text) -m found }"
"""The condition under which a request takes the hop."""
_SOCKET = "again.sock"
_BACKEND_HEADER = "x-slipway-backend"


def maps(table: RoutingTable) -> dict[str, dict[str, str]]:
    """Backends whose engines must not see the field, and the plain name of each qualified id."""
    return {
        DROPPED_MAP: {name: "1" for name, backend in table.backends.items() if backend.route.drop_model_field},
        NAMES_MAP: dict(_plain_names(table)),
    }


def _plain_names(table: RoutingTable) -> list[tuple[str, str]]:
    """Pairs for ids that are not the name under which an engine is sure to serve its model: the first of its route."""
    pairs = []
    for model, name in table.models.items():
        backend = table.backends[name]
        first = backend.route.models[0] if backend.route.models else backend.service
        if model == f"{backend.namespace}/{backend.route.name or backend.service}" and len(first) < len(model):
            pairs.append((model, first))
    return pairs


def rules(run: str) -> str:
    """Rules of the public frontend, once the backend is known: they set CHANGED where the body is to be changed."""
    return f"""\
    http-request set-var(txn.text) str(-) if form {{ var(txn.be),map_str({run}/{DROPPED_MAP}) -m found }}
    http-request set-var(txn.at) var(txn.field) if {CHANGED}
    http-request set-var(txn.name,ifnotexists) var(txn.model),map_str({run}/{NAMES_MAP})\
 if !form {{ var(txn.model) -m sub / }}
    http-request lua.place_model if {{ var(txn.name) -m found }}
    http-request set-header {_BACKEND_HEADER} %[var(txn.be)] if {CHANGED}"""


def sections(settings: Settings, last_rules: str) -> str:
    """The hop. `last_rules`: what every request to a model is subject to."""
    run = settings.run_directory
    turned = f"{{ req.fhdr({fallback_server.NEXT}) -m found }}"
    return f"""\
# Requests of which a few bytes are changed, or whose answer has to begin in time: through the filter, and back to this
# process.
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
{connections.refuse_crowded(settings, turned)}
    http-request set-var(txn.be) req.fhdr({_BACKEND_HEADER})
    http-request del-header {_BACKEND_HEADER}
    http-request del-header connection
    # As much as fits a buffer: what is whole in it can be sent again, the rest passes as it comes.
    http-request wait-for-body time 60s
{last_rules}
    use_backend %[var(txn.be)]"""
