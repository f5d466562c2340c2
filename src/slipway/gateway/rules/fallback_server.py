"""The fallback server of each backend, for requests whose server died before it began to answer. Pure.

After a failed connection, HAProxy sends no requests to the server until the server accepts connections again, which
HAProxy checks twice a second. If the last server of a backend fails, requests go to the fallback server. The fallback
server leads back to HAProxy, to a frontend in which requests wait as if the model had no server. It costs other
requests nothing. The PROXY protocol passes the name of the backend, and the address and port of the client.
"""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.rules import connections
from slipway.gateway.settings import Settings

NAME = "unanswered"
"""Name of the fallback server in each backend, and of the frontend to which it leads."""
_SOCKET = f"{NAME}.sock"
CHECK = "check inter 60s fastinter 500ms downinter 500ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down"
"""Options of a server. HAProxy stops sending requests to it after a failed connection, until it accepts connections
again."""
SUCCESSOR = f"{NAME}_successor"
_TLV = "0xE1"
NEXT = "x-slipway-turn"
"""Header of requests that another target may answer (see ``targets.py``). These requests do not wait."""
_TRIES = connections.TRIES
"""Header that counts the waits of a request. They are limited, because the request itself may crash its servers."""
_VISITS = 3
"""Maximum number of connections to this frontend for one request: two waits, and one for the error."""


def server(run: str, backend: str = "%[be_name]") -> str:
    """Return the address and options of the fallback server. ``backend`` is the name that it passes, or a format for
    it."""
    return f"{connections.hop_server(run, _SOCKET)} set-proxy-v2-tlv-fmt({_TLV}) {backend}"


def sections(settings: Settings, after_hold: str, last_rules: str) -> str:
    """Return two sections of haproxy.cfg: the frontend in which requests wait, and the backend that leads to the same
    frontend of the HAProxy process that replaces the current one during a reload.

    ``after_hold`` contains the rules that apply after a wait, and ``last_rules`` those for every request to a model.
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
