"""HAProxy rules for requests after their model has been read. They select the backend, wait for it to have an endpoint,
and select the endpoint. Pure."""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.haproxy.config.maps import LACKS_MAP, MODELS_MAP, RINGS_MAP, SPECIAL_MAP
from slipway.gateway.haproxy.config.servers import UNSHARED
from slipway.gateway.routing.balancing import ENDPOINT_COOKIE
from slipway.gateway.routing.selector import HEADER
from slipway.gateway.rules import limits, rewrite, targets
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths

TTFB_TABLE = "time_to_first_byte"
"""Name of the stick table with the total milliseconds to the first byte and the number of answers of each backend."""
BEGIN_BYTES = 4096
"""Number of bytes at the beginning of a body in which most prompts begin."""
SEARCHED_BYTES = 1 << 20
"""Maximum number of bytes of a body in which to search for a prompt, which limits the work for a request."""
_EMPTY_HASH = 0xEF46DB3751D8E999 - (1 << 64)
"""The xxh64 hash of the empty string, as a signed number, which HAProxy uses."""
AFTER_HOLD = f"""\
    http-request {errors.return_rule(errors.TOO_MANY)} if {{ var(txn.hold) -m str full }}
    http-request reject if {{ var(txn.hold) -m str left }}
    http-request lua.unready_model if {{ var(txn.hold) -m str timeout failed }}"""
_TRACK = f"    http-request track-sc0 var(txn.be) table {TTFB_TABLE}"
LAST_RULES = f"""\
    # An idle connection may close when it is reused. HAProxy resends a request that fits in an ordinary buffer, and
    # silently drops others. Larger requests therefore get a new connection, which closes after them.
    http-request set-var({UNSHARED}) var(txn.id) if large
    http-request set-header connection close if large
{_TRACK}"""


def route_rules(settings: Settings) -> str:
    run = settings.run_directory
    return f"""\
    http-request set-var(txn.be) var(txn.model),map_str({run}/{MODELS_MAP})
    http-request set-var(txn.shown) var(txn.model),bytes(0,128)
{limits.hide_models(settings)}\
    http-request lua.unknown_model unless {{ var(txn.be) -m found }}
{_ordinary_rules(run)}
    http-request lua.select_model if {{ req.fhdr({HEADER}) -m found }}
    http-request lua.unknown_model if {{ var(txn.selected) -m str no }}
    http-request {errors.return_rule(errors.BAD_SELECTOR)} if {{ var(txn.selected) -m str bad }}
{targets.rules(run, lacks_condition(run, "txn.kind"))}
{_opening_rules(run)}
{rewrite.rules(run)}
{LAST_RULES}"""


def _ordinary_rules(run: str) -> str:
    """Return the rules that end the processing of ordinary requests, which are small and unaffected by later rules.
    Most requests are ordinary."""
    special = f"!{{ var(txn.model),map_str({run}/{SPECIAL_MAP}) -m found }}"
    held = f"!{{ var(txn.be),map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request set-var(req.ordinary) bool(true)\
 if {{ var(req.text_len) -m found }} !{{ req.fhdr({HEADER}) -m found }} {special} {held} {{ var(txn.be),nbsrv gt 0 }}
    acl ordinary var(req.ordinary) -m found
{_TRACK} if ordinary
{limits.drop_keys("ordinary")}
    http-request allow if ordinary"""


def lacks_condition(run: str, variable: str) -> str:
    """Return the condition that is true if the engine does not serve the path whose number is in ``variable``."""
    return f"var(txn.be),map_str_int({run}/{LACKS_MAP}),and({variable}) -m int gt 0"


def hold_rules(run: str) -> str:
    """Return the rules that hold a request until its model has an endpoint. A request that several targets may answer
    waits in its hop instead.

    These rules come late, so that the last endpoint cannot disappear between this check and the choice of an endpoint.
    """
    held, empty = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}", "!{ var(txn.be),nbsrv gt 0 }"
    return f"""\
    http-request lua.hold if {held} !{targets.ROUTED} || {empty} !{targets.ROUTED}
{AFTER_HOLD}"""


def session_hold_rules(run: str) -> str:
    """Return the rules that hold a WebSocket session until its model has an endpoint. Other requests without a body do
    not wait."""
    held = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request lua.hold if session {held} || session !{{ var(txn.be),nbsrv gt 0 }}
{AFTER_HOLD}"""


def _prompt_paths() -> dict[str, list[str]]:
    """Return the paths whose requests contain a prompt, by the field of the prompt."""
    fields = dict.fromkeys(one.prompt for one in paths.PATHS if one.prompt)
    return {field: [one.path for one in paths.PATHS if one.prompt == field] for field in fields}


def _opening_rules(run: str) -> str:
    """Return the rules that read the beginning of the prompt for models with PrefixHash.

    They first search the beginning of a body, because HAProxy copies every argument to Lua. All rules that read a body
    precede all rules that change headers: after a change, HAProxy copies the whole buffer, which takes 9 ms for a large
    buffer.
    """
    rules = "\n".join(
        f"    http-request set-var(txn.opening) req.body,bytes(0,{count}),lua.opening({field}),xxh64"
        f" if hashed {{ path {' '.join(prompt_paths)} }}{condition}"
        for count, condition in ((BEGIN_BYTES, ""), (SEARCHED_BYTES, " !begun unopened"))
        for field, prompt_paths in _prompt_paths().items()
    )
    return f"""\
    http-request set-var(txn.ring) var(txn.be),map_str({run}/{RINGS_MAP})
    acl hashed var(txn.ring) -m found
    acl begun req.body_len le {BEGIN_BYTES}
    # The search returns an empty text if it needs more of the body. The number is the hash of the empty text.
    acl unopened var(txn.opening),sub({_EMPTY_HASH}) -m int 0
    http-request set-var(txn.endpoint) var(txn.ring),lua.ring if hashed
{rules}"""


def endpoint_rules() -> str:
    """Return the rules that select the endpoint for models with PrefixHash. They must be the last rules, because they
    end the processing for all other models.
    """
    return f"""\
    http-request allow unless hashed
    http-request set-var(txn.endpoint) var(txn.ring),lua.ring
    http-request set-var(txn.endpoint) var(txn.opening),lua.endpoint
    http-request add-header cookie {ENDPOINT_COOKIE}=%[var(txn.endpoint)] if {{ var(txn.endpoint) -m len gt 0 }}"""
