"""Requests whose server died before it began to answer. Pure: the sections of HAProxy that have them wait for the next.

A server to which a connection failed gets no requests until it takes connections again, which HAProxy looks at twice a
second. Where it was the last of its backend, the request goes to a server that each backend has for this case: it leads
back into HAProxy, to a frontend in which requests wait as those do that come while a model has no server. Requests that
are answered pay nothing for it. The name of the backend comes along in the PROXY protocol, as do the client's address
and port.
"""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.rules import connections
from slipway.gateway.settings import Settings

NAME = "unanswered"
"""Of the server in each backend, and of the frontend that it leads to."""
_SOCKET = f"{NAME}.sock"
CHECK = "check inter 60s fastinter 500ms downinter 500ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down"
"""Options of a server that gets no requests once a connection to it failed, until it takes connections again."""
SUCCESSOR = f"{NAME}_successor"
_TLV = "0xE1"
NEXT = "x-slipway-turn"
"""Header of requests that another target may answer (see targets.py): they do not wait here."""
_TRIES = connections.TRIES
"""It may be the request itself that servers die of."""
_VISITS = 3
"""Connections that one request may have here: two waits, and one in which it gets the error."""


def server(run: str, backend: str = "%[be_name]") -> str:
    """Address and options of the server, in the file as on the command line."""
    return f"{connections.hop_server(run, _SOCKET)} set-proxy-v2-tlv-fmt({_TLV}) {backend}"


def sections(settings: Settings, after_hold: str, last_rules: str) -> str:
    """The frontend. `after_hold`: what becomes of requests whose wait is over. `last_rules`: what every
    request to a model is subject to."""
    run = settings.run_directory
    return f"""\
# Requests whose server died before it began to answer.
frontend {NAME} from base
{connections.hop_listener(settings, _SOCKET)}
    http-request set-var(txn.id) req.fhdr(x-request-id)
    http-request set-var(txn.kind) path,map_str_int({run}/paths.map)
{connections.refuse_crowded(settings)}
    http-request set-var(txn.be) fc_pp_tlv({_TLV})
    http-request set-var(txn.model) var(txn.be),regsub(:,/)
    http-request {errors.return_rule(errors.UNREACHABLE)} if {{ req.fhdr({NEXT}) -m found }}
    http-request {errors.return_rule(errors.UNREACHABLE)} if {{ req.fhdr({_TRIES}) 2 }}
    # New requests leave room for those that come again, so that requests never wait for each other here.
{connections.refuse_waits(settings, max(1, connections.hop_limit(settings) // _VISITS))}
    http-request set-header {_TRIES} 2 if {{ req.fhdr({_TRIES}) 1 }}
    http-request set-header {_TRIES} 1 unless {{ req.fhdr({_TRIES}) -m found }}
    acl session path /v1/realtime
    http-request set-var(txn.tunnel) str(1) if session
    http-request del-header connection unless session
    http-request wait-for-body time 60s unless session
    http-request lua.hold
{after_hold}
{last_rules}
    use_backend {SUCCESSOR} if {{ var(txn.hold) -m str moved }}
    use_backend %[var(txn.be)]

# The same of the process that replaces this one.
backend {SUCCESSOR} from base
    server {NAME} {server(run, "%[var(txn.be)]")}"""
