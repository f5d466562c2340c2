"""Rules for a request whose model is known: its backend, its wait, its endpoint. Pure."""

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
"""Stick table: milliseconds and number of first bytes, by backend."""
BEGIN_BYTES = 4096
"""Bytes of a body in which most prompts begin."""
SEARCHED_BYTES = 1 << 20
"""Bytes in which a prompt is searched for at all, so that nobody can order long work."""
AFTER_HOLD = f"""\
    http-request {errors.return_rule(errors.TOO_MANY)} if {{ var(txn.hold) -m str full }}
    http-request reject if {{ var(txn.hold) -m str left }}
    http-request lua.unready_model if {{ var(txn.hold) -m str timeout failed }}"""
_TRACK = f"    http-request track-sc0 var(txn.be) table {TTFB_TABLE}"
LAST_RULES = f"""\
    # An idle connection may close just when it is taken. HAProxy repeats what fits a plain buffer, and drops the rest
    # without a word: so larger requests get a connection of their own, which is not kept.
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
{LAST_RULES}
{rewrite.rules(run)}"""


def _ordinary_rules(run: str) -> str:
    """Ends the rules for small requests that no further rule would change. Most requests are such ones."""
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
    """The condition of a request whose engine does not know the path of the number in `variable`."""
    return f"var(txn.be),map_str_int({run}/{LACKS_MAP}),and({variable}) -m int gt 0"


def hold_rules(run: str) -> str:
    """Comes late: between this look at the endpoints and the choice of one of them the last could go."""
    held, empty = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}", "!{ var(txn.be),nbsrv gt 0 }"
    return f"""\
    http-request lua.hold if {held} !{targets.ROUTED} || {empty} !{targets.ROUTED}
{AFTER_HOLD}"""


def session_hold_rules(run: str) -> str:
    """The same for sessions, which alone of the requests without a body wait."""
    held = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request lua.hold if session {held} || session !{{ var(txn.be),nbsrv gt 0 }}
{AFTER_HOLD}"""


def _prompt_paths() -> dict[str, list[str]]:
    """Paths whose requests have a prompt, by the field that holds it."""
    fields = dict.fromkeys(one.prompt for one in paths.PATHS if one.prompt)
    return {field: [one.path for one in paths.PATHS if one.prompt == field] for field in fields}


def endpoint_rules(settings: Settings) -> str:
    """For models with PrefixHash; no rules follow for others. Looks at a body's begin first, as Lua copies what it is
    given."""
    rules = "\n".join(
        f"    http-request set-var(txn.endpoint) req.body{part},lua.opening({field}),xxh64,lua.endpoint"
        f" if {{ path {' '.join(prompt_paths)} }}{condition}"
        for part, condition in ((f",bytes(0,{BEGIN_BYTES})", ""), (f",bytes(0,{SEARCHED_BYTES})", " !chosen !begun"))
        for field, prompt_paths in _prompt_paths().items()
    )
    return f"""\
    http-request set-var(txn.ring) var(txn.be),map_str({settings.run_directory}/{RINGS_MAP})
    acl hashed var(txn.ring) -m found
    http-request allow unless hashed
    acl chosen var(txn.endpoint) -m len gt 0
    acl begun req.body_len le {BEGIN_BYTES}
    http-request set-var(txn.endpoint) var(txn.ring),lua.ring
{rules}
    http-request add-header cookie {ENDPOINT_COOKIE}=%[var(txn.endpoint)] if chosen"""
