"""HAProxy rules that receive a request body and read the model ID in it. Pure."""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.haproxy.config.maps import PLAIN_MAP
from slipway.gateway.memory import BUFFER
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths

BODIES_TABLE = "bodies"
"""Name of the stick table of requests with large bodies. Its keys are tickets, which are random IDs of requests."""
_BODY_SECONDS = 60
SMALL_BODY_BYTES = 8192
"""Maximum size in bytes of a body that HAProxy parses with PCRE2, which is cheaper than a call of Lua up to this
size."""
REPEATABLE_BYTES = BUFFER - 8192
"""Maximum size in bytes of a body that HAProxy can resend. It fits in a buffer with headers of usual size and HAProxy's
reserve."""
LARGE = f"    acl large req.body_len gt {REPEATABLE_BYTES}\n"


def body_rules(settings: Settings) -> str:
    limit = settings.max_body_bytes
    too_large = errors.return_rule(errors.TOO_LARGE)
    return f"""\
    # Check the announced size first, then the received size.
    http-request {too_large} if {{ req.body_size gt {limit} }}
    http-request wait-for-body time {_BODY_SECONDS}s
    # A body that fills an ordinary buffer gets a large one when there is room. The rules without a condition do not
    # affect other bodies, and cost less than a condition.
{LARGE}    http-request set-var(txn.ticket) uuid() if large
    http-request track-sc2 var(txn.ticket) table {BODIES_TABLE}
    http-request lua.begin_body if large
    # Returns immediately, and clears the timer of a wait in Lua, which the next wait-for-body would use otherwise.
    http-request wait-for-body time {_BODY_SECONDS}s
    http-request wait-for-body time {_BODY_SECONDS}s use-large-buffer
    http-request sc-inc-gpc0(2)
    http-request {too_large} if {{ req.body_len gt {limit} }}
    acl form var(txn.kind) -m int ge {paths.FIRST_FORM}
    http-request lua.read_form if form
    acl small req.body_len le {SMALL_BODY_BYTES}
    # A regular expression reads text, which ends at a body's first NUL. Lua reads bodies that continue behind one.
    http-request set-var(req.text) req.body,concat() if !form small
    http-request set-var(req.text_len) var(req.text),length
    acl entire req.body_len,sub(req.text_len) -m int 0
    http-request set-var(txn.model) var(req.text),map_regm({settings.run_directory}/{PLAIN_MAP}) if entire
    http-request unset-var(req.text)
    http-request lua.read_model if !form !{{ var(txn.model) -m found }}
    http-request lua.refuse unless {{ var(txn.model) -m found }}"""
