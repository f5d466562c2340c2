"""The fallback server of each backend, for requests whose server died before it began to answer. Pure.

If a connection to a server fails, HAProxy sends it no requests until it accepts connections again, which HAProxy checks
twice a second. If it was the last server of its backend, requests go to the fallback server. It leads back to HAProxy,
to a frontend in which requests wait as if the model had no server. Other requests do not pay for it. The PROXY protocol
passes the name of the backend, and the client's address and port.
"""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.rules import connections
from slipway.gateway.settings import Settings

NAME = "unanswered"
"""Name of the server in each backend, and of the frontend to which it leads."""
_SOCKET = f"{NAME}.sock"
CHECK = "check inter 60s fastinter 500ms downinter 500ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down"
"""Options of a server that gets no requests after a failed connection, until it accepts connections again."""
SUCCESSOR = f"{NAME}_successor"
_TLV = "0xE1"
NEXT = "x-slipway-turn"
"""Header of requests that another target may answer (see targets.py). They do not wait here."""
_TRIES = connections.TRIES
"""Header that limits the waits of a request, because the request itself may crash its servers."""
_VISITS = 3
"""Connections that one request may need here: two waits, and one for the error."""


def server(run: str, backend: str = "%[be_name]") -> str:
    """Returns the server's address and options, for the configuration file and the command socket."""
    return f"{connections.hop_server(run, _SOCKET)} set-proxy-v2-tlv-fmt({_TLV}) {backend}"


def sections(settings: Settings, after_hold: str, last_rules: str) -> str:
    """Returns the sections of the frontend and of the successor.

    ``after_hold``: rules after a wait; ``last_rules``: rules for every request to a model.
    """
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
    # New requests leave room for those that return, so that requests never wait for each other here.
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

# The same frontend in the process that replaces this one.
backend {SUCCESSOR} from base
    server {NAME} {server(run, "%[var(txn.be)]")}"""
