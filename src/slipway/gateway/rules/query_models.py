"""Requests that name their model in the query: for stored responses, and sessions of the Realtime API. Pure.

Their rules stand in a backend of their own, so that requests with a body pay nothing for them. It leads back into
HAProxy, to a frontend that leads to the model's backend.

A stored response lies in the memory of the pod that made it. Which one that is, ``responses.lua`` finds out by asking:
gateways need to remember nothing for it, nor tell each other anything.
"""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.routing.balancing import ENDPOINT_COOKIE
from slipway.gateway.routing.selector import HEADER
from slipway.gateway.rules import connections, cors, limits
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths

NAME = "beside"
"""Of the backend."""
_ONWARD = f"{NAME}_onward"
"""Of the frontend that it leads to."""
_SOCKET = f"{NAME}.sock"
TUNNEL = "txn.tunnel"
"""Variable that is set where an engine may answer with 101."""
_BACKEND_HEADER = "x-slipway-backend"
# A name that is encoded, or stands there twice, may be another one for the engine than for us.
# HAProxy separates parameters by more than engines do.
_AMBIGUOUS = r"(^|[&;?])model=.*[&;?]model=|(^|[&;?])[^=&;?]*%[^=&;?]*([=&;?]|$)"


def arguments() -> str:
    """Of paths.lua."""
    return f"{paths.BITS[paths.STORED_RESPONSE]} {paths.BITS[paths.SESSION]}"


def sections(settings: Settings, hold: str, lacks: str, last_rules: str, most_bytes: int) -> str:
    """The backend and the frontend. `hold`: rules by which requests wait; `lacks`: condition of those whose engine does
    not know what is asked; `last_rules`: what every request to a model is subject to."""
    run = settings.run_directory
    too_large = errors.return_rule(errors.TOO_LARGE)
    return f"""\
# Requests whose model stands in the query: the rules of the public frontend go on here.
backend {NAME} from base
    acl session path /v1/realtime
    acl listed var({cors.ORIGIN}) -m found
    acl model var(txn.model) -m len gt 0
    http-request {errors.return_rule(errors.NO_WEBSOCKET)} if session !{{ var(txn.upgrade) -m str -i websocket }}
    # Browsers ask nobody before they open one.
    http-request {errors.return_rule(errors.WRONG_ORIGIN)} if session {{ req.fhdr(origin) -m found }} !listed
    # Bodies have no use here.
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
