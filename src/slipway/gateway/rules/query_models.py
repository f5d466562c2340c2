"""Rules for requests that name their model in the query: stored responses, and sessions of the Realtime API. Pure.

The rules are in a separate backend, so that they cost requests with a body nothing. The backend sends requests back to
HAProxy, to a frontend that passes them to the model's backend.

A stored response is in the memory of the pod that created it. ``responses.lua`` queries the pods to find this pod, so
gateways need not store or exchange anything.
"""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.routing.balancing import ENDPOINT_COOKIE
from slipway.gateway.routing.selector import HEADER
from slipway.gateway.rules import connections, cors, limits
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths

NAME = "beside"
"""Name of the backend with the rules for requests with the model in the query."""
_ONWARD = f"{NAME}_onward"
"""Name of the frontend to which the backend ``NAME`` sends requests."""
_SOCKET = f"{NAME}.sock"
TUNNEL = "txn.tunnel"
"""HAProxy variable that is set if the engine may respond with status 101, to open a WebSocket."""
_BACKEND_HEADER = "x-slipway-backend"
# The engine may read another model than the gateway if a parameter's name is encoded or occurs twice. HAProxy also
# accepts separators of parameters that engines do not.
_AMBIGUOUS = r"(^|[&;?])model=.*[&;?]model=|(^|[&;?])[^=&;?]*%[^=&;?]*([=&;?]|$)"


def arguments() -> str:
    """Return the arguments of ``paths.lua``: the numbers of the paths for stored responses and for sessions."""
    return f"{paths.BITS[paths.STORED_RESPONSE]} {paths.BITS[paths.SESSION]}"


def sections(settings: Settings, hold: str, lacks: str, last_rules: str, most_bytes: int) -> str:
    """Return the sections of haproxy.cfg with the backend and the frontend for requests with the model in the query.

    ``hold`` are the rules that hold requests, and ``last_rules`` those for every request to a model. ``lacks`` is the
    condition that the engine does not serve the path. ``most_bytes`` is the maximum size of a request body in bytes.
    """
    run = settings.run_directory
    too_large = errors.return_rule(errors.TOO_LARGE)
    return f"""\
# Requests with the model in the query. The rules of the public frontend continue here.
backend {NAME} from base
    acl session path /v1/realtime
    acl listed var({cors.ORIGIN}) -m found
    acl model var(txn.model) -m len gt 0
    http-request {errors.return_rule(errors.NO_WEBSOCKET)} if session !{{ var(txn.upgrade) -m str -i websocket }}
    # Browsers send no preflight request before they open a WebSocket.
    http-request {errors.return_rule(errors.WRONG_ORIGIN)} if session {{ req.fhdr(origin) -m found }} !listed
    # These requests need no body.
    http-request {too_large} if {{ req.body_size gt {most_bytes} }}
    http-request wait-for-body time 10s unless session
    http-request {too_large} if {{ req.body_len gt {most_bytes} }}
    http-request {errors.return_rule(errors.UNCLEAR_QUERY)} if {{ query -m reg '{_AMBIGUOUS}' }}
    http-request set-var(txn.model) url_param(model),url_dec(1)
    http-request {errors.return_rule(errors.NO_QUERY)} unless model
    http-request set-var(txn.be) var(txn.model),map_str({run}/models.map)
    http-request set-var(txn.shown) var(txn.model),bytes(0,128)
{limits.hide_models(settings)}\
    http-request lua.unknown_model unless {{ var(txn.be) -m found }}
    http-request lua.select_model if {{ req.fhdr({HEADER}) -m found }}
    http-request lua.unknown_model if {{ var(txn.selected) -m str no }}
    http-request {errors.return_rule(errors.BAD_SELECTOR)} if {{ var(txn.selected) -m str bad }}
    http-request lua.unsupported_endpoint if {{ {lacks} }}
    http-request {errors.return_rule(errors.NO_RESPONSE)} if !session !{{ var(txn.be),lua.servers -m int gt 0 }}
    http-request lua.find_response unless session
    http-request add-header cookie {ENDPOINT_COOKIE}=%[var(txn.endpoint)] if {{ var(txn.endpoint) -m found }}
{hold}
    http-request {errors.return_rule(errors.UNREACHABLE)} if {{ var(txn.hold) -m str moved }}
    http-request set-header {_BACKEND_HEADER} %[var(txn.be)]
{limits.drop_keys()}
    http-request set-header connection upgrade if session
    http-request set-header upgrade websocket if session
    server {_ONWARD} {connections.hop_server(run, _SOCKET)}

frontend {_ONWARD} from base
{connections.hop_listener(settings, _SOCKET)}
    http-request set-var(txn.id) req.fhdr(x-request-id)
{connections.refuse_crowded(settings)}
    http-request set-var(txn.be) req.fhdr({_BACKEND_HEADER})
    http-request set-var({TUNNEL}) str(1) if {{ path /v1/realtime }}
    http-request del-header {_BACKEND_HEADER}
{last_rules}
    use_backend %[var(txn.be)]"""
