"""Routes with several targets: Services that answer requests for the IDs of another Service in their namespace. Pure.

If a single other Service gets a share of the requests, for example a canary, rules alone select the target, because
calling Lua would cost more. For other routes, ``lua/targets.lua`` selects one target of each order that matches the
request and that the key may use. If only one target remains, the request goes there directly. If several targets
remain, the request takes a hop through the backend ``turns``. This backend sends the request back to HAProxy, to the
frontend ``turn``, and retries it with the next target after an error. A request for a model without targets costs only
one lookup in a map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from slipway.gateway import errors
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.gateway.rules import connections, fallback_server
from slipway.gateway.settings import Settings
from slipway.serving.routing.route import Target

TARGETS_MAP = "targets.map"
ROUTED = "{ var(txn.turns) -m found }"
"""HAProxy condition that is true if several targets may answer the request, so that the request takes the hop."""
_SOCKET = "turn.sock"
_TLV = "0xE1"
_ANSWERED = "x-slipway-backend"
_KEY = "x-slipway-key"
_SHARES = "="
_SEQUENCE = "proc.draw"
_LENGTH, _STEP = 997, 616
"""Length and step of the sequence of numbers that decide which target gets a request. ``lua/targets.lua`` uses the same
sequence.

The sequence contains each number below the length once, and then repeats. With random numbers, one in six series of
5,000 requests would miss a share by more than one percentage point. One model may get only every second or every
hundredth number. Because the length is a prime, these also contain each number once before they repeat. The step is the
golden section of the length, which spreads the numbers of any part of the sequence evenly.
"""


def maps(table: RoutingTable) -> dict[str, dict[str, str]]:
    """Return the map of targets by backend name, in the format of ``lua/targets.lua``. Its key is the file name."""
    return {TARGETS_MAP: {name: map_entry(b, table) for name, b in table.backends.items() if b.route.targets}}


def map_entry(backend: Backend, table: RoutingTable) -> str:
    """Return all targets of a backend as one word. It is much shorter than the longest command of HAProxy."""
    return _share_entry(backend, table) or "|".join(
        _target_entry(backend, target, table) for target in sorted(backend.route.targets, key=_order)
    )


def _share_entry(backend: Backend, table: RoutingTable) -> str:
    """Return the entry of a backend with a share for one other Service, such as a canary; empty for other backends.

    The entry contains the share and the name of the other backend. The share is a count of numbers in the sequence of
    ``_LENGTH`` numbers. It is the whole sequence if the backend itself has no endpoint.
    """
    match backend.route.targets:
        case (own, other) if own.weight + other.weight:
            plain = all(one == Target(one.service, one.weight) for one in (own, other))
        case _:
            return ""
    if not plain or backend.target(own) != backend.name or not _is_like_own(backend, other, table):
        return ""
    numbers = round(_LENGTH * other.weight / (own.weight + other.weight)) if backend.endpoints else _LENGTH
    return f"{_SHARES}&{numbers}&{backend.target(other)}"


def _is_like_own(backend: Backend, target: Target, table: RoutingTable) -> bool:
    """Whether a target belongs only to the route of ``backend``, so that its engine accepts the IDs of this route."""
    name = backend.target(target)
    other = table.backends.get(name)
    return name == backend.name or (other is not None and other.route.internal)


def _order(target: Target) -> int:
    return target.order


def _target_entry(backend: Backend, target: Target, table: RoutingTable) -> str:
    name = backend.target(target)
    other = table.backends.get(name)
    like_own = _is_like_own(backend, target, table)
    fields = (
        name,
        target.order,
        target.weight,
        target.wait_seconds,
        target.answer_seconds,
        int(target.only),
        int(like_own),
        _first_id(other) if other and not like_own else "",
        "^".join(() if like_own else _shared_ids(backend, other)),
        "^".join(target.when.models),
        "!".join(
            _header_entry(header, values) for header, values in sorted(target.when.headers.items(), key=_lower_name)
        ),
    )
    return "&".join(map(str, fields))


def _first_id(backend: Backend) -> str:
    """Return the name that the engine of a backend uses for its model."""
    return backend.route.models[0] if backend.route.models else backend.service


def _shared_ids(backend: Backend, other: Backend | None) -> Sequence[str]:
    """Return the IDs of a backend's route that the engine of the other backend also accepts."""
    if other is None:
        return ()
    ids = {_first_id(other), *other.route.models, *other.route.aliases}
    return [model for model in (*backend.route.models, *backend.route.aliases) if model in ids]


def _lower_name(condition: tuple[str, Sequence[str]]) -> str:
    return condition[0].lower()


def _header_entry(name: str, values: Iterable[str]) -> str:
    return f"{name.lower()}={'^'.join(quote(value, safe='') for value in values)}"


def global_lines(settings: Settings) -> str:
    """Return the lines for the section ``global`` that start the sequence and load the Lua code for targets."""
    run = settings.run_directory
    keys = f" {run}/restricted.map {run}/allowed.map" if settings.api_keys_secret else ""
    return f"""\
    set-var {_SEQUENCE} int(0)
    lua-load-per-thread {run}/lua/targets.lua {run}/hold.map {run}/names.map {run}/lacks.map{keys}"""


def rules(run: str, lacks: str) -> str:
    """Return the rules of the public frontend that select a target. They need ``txn.be``, the name of the backend, and
    must precede the rules that count its requests.

    ``lacks`` is the condition that the engine does not serve the path. If Lua selects the target, it checks this
    itself.
    """
    shared, other = f"{{ var(txn.targets) -m beg {_SHARES} }}", "var(txn.targets),field(3,&)"
    is_drawn = f"{{ var(txn.targets),field(2,&),sub({_SEQUENCE}) gt 0 }}"
    takes = f"{{ {other},lua.servers -m int gt 0 }} !{{ {other},map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request set-var(txn.targets) var(txn.be),map_str({run}/{TARGETS_MAP})
    http-request set-var({_SEQUENCE}) var({_SEQUENCE}),add({_STEP}),mod({_LENGTH}) if {shared}
    http-request set-var(txn.be) {other} if {shared} {is_drawn} {takes}
    http-request lua.choose_target if {{ var(txn.targets) -m found }} !{shared}
    http-request lua.unsupported_endpoint if !{{ var(txn.targets) -m found }} {{ {lacks} }} || {shared} {{ {lacks} }}
    http-request lua.unsupported_endpoint if {{ var(txn.unserved) -m found }}"""


def sections(settings: Settings, reading: str, after_hold: str, last_rules: str, changed: str) -> str:
    """Return the sections of haproxy.cfg for the hop.

    ``reading`` are the rules that read the body, ``after_hold`` those after a wait, and ``last_rules`` those for every
    request to a model. ``changed`` is the condition ``rewrite.CHANGED``.
    """
    run = settings.run_directory
    held, empty = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}", "!{ var(txn.be),nbsrv gt 0 }"
    return f"""\
# Requests that several targets may answer. Each attempt of this backend goes to the next target.
backend turns from base
    http-request set-retries var(txn.turns)
    retry-on conn-failure empty-response 429 500 502 503 504
    # A hop refused the client's address, which the next target would not change.
    http-response set-status 429 if {{ status {connections.REFUSED} }}
    http-response set-var(txn.be) res.fhdr({_ANSWERED}) if {{ res.fhdr({_ANSWERED}) -m found }}
    http-response del-header {_ANSWERED}
    server turn {connections.hop_server(run, _SOCKET)} set-proxy-v2-tlv-fmt({_TLV}) %rc

frontend turn from base
{connections.hop_listener(settings, _SOCKET)}
    http-request set-var(txn.id) req.fhdr(x-request-id)
    http-request set-var(txn.kind) path,map_str_int({run}/paths.map)
{connections.refuse_crowded(settings, "")}
    http-request set-var(txn.turn) fc_pp_tlv({_TLV})
    http-request lua.take_turn
    # Waiting requests are limited by key, as in the public frontend.
    http-request set-var(txn.key) req.fhdr({_KEY}) if {{ req.fhdr({_KEY}) -m found }}
    http-request del-header {_KEY}
    http-request del-header connection
    # Waits for the part that fits in a buffer. A request that fits completely can be resent.
    http-request wait-for-body time 60s
{reading}
    http-request lua.hold if {held} || {empty}
{after_hold}
{last_rules}
    http-response set-header {_ANSWERED} %[var(txn.be)]
    # The new process would send the body unchanged, with a name that the target's engine does not know.
    http-request {errors.return_rule(errors.UNREACHABLE)} if {{ var(txn.hold) -m str moved }} {changed}
    use_backend {fallback_server.SUCCESSOR} if {{ var(txn.hold) -m str moved }}
    use_backend rewrite if {changed}
    use_backend %[var(txn.be)]"""
