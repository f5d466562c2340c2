"""Rules that receive a body and read its model. Pure."""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.haproxy.config.maps import PLAIN_MAP
from slipway.gateway.memory import BUFFER
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths

BODIES_TABLE = "bodies"
"""Stick table of large bodies, by ticket."""
_BODY_SECONDS = 60
SMALL_BODY_BYTES = 8192
"""Up to this size in bytes, a PCRE2 match that reads the whole JSON is cheaper than calling Lua."""
REPEATABLE_BYTES = BUFFER - 8192
"""Largest body in bytes that fits in a buffer with a header of usual size and HAProxy's reserve. HAProxy can resend a
request with such a body."""
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
