"""Routes with more than one end: which Service of a namespace answers for another one's ids. Pure: entries of a map and
rules of haproxy.cfg.

A share for one other Service, such as a canary, is drawn by rules alone, as entering Lua costs more than all of them.
Other requests with targets are looked at by lua/targets.lua: of each order one target gets its turn, if the request is
for it and the key may ask it. Where only one is left, the request goes there as any other does. Where there are more,
it takes a hop: to the backend ``turns``, which sends it back into HAProxy, to the frontend ``turn``, and does so again
where the answer is an error, once for each target. So a request for a model without targets pays one look into a map.
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
"""The condition under which a request takes the hop."""
_SOCKET = "turn.sock"
_TLV = "0xE1"
_ANSWERED = "x-slipway-backend"
_KEY = "x-slipway-key"
_SHARES = "="
_SEQUENCE = "proc.draw"
_LENGTH, _STEP = 997, 616
"""Of a sequence that has each number below the length once before it begins again, as lua/targets.lua has it, too.
Random numbers would miss a share by more than a point in each sixth series of 5,000 requests. The length is a prime, so
the same holds for every second or every hundredth of the numbers, which may be all that one model gets of them. The
step is the golden section of the length: it spreads the numbers of any part of the sequence."""


def maps(table: RoutingTable) -> dict[str, dict[str, str]]:
    """By backend: its targets, as lua/targets.lua reads them."""
    return {TARGETS_MAP: {name: map_entry(b, table) for name, b in table.backends.items() if b.route.targets}}


def map_entry(backend: Backend, table: RoutingTable) -> str:
    """All targets of a backend in one word, which is short beside what a command for HAProxy may have."""
    return _share_entry(backend, table) or "|".join(
        _target_entry(backend, target, table) for target in sorted(backend.route.targets, key=_order)
    )


def _share_entry(backend: Backend, table: RoutingTable) -> str:
    """Of a backend that keeps all requests but a share for one other, such as a canary: how many numbers of the
    sequence are the other one's, all where it has no endpoint itself, and that one's name. Empty for any other."""
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
    """Whether it is nobody's but the route's, and knows its ids."""
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
    """The name under which an engine is sure to serve its model."""
    return backend.route.models[0] if backend.route.models else backend.service


def _shared_ids(backend: Backend, other: Backend | None) -> Sequence[str]:
    """Ids of a route that the engine of another one knows, too."""
    if other is None:
        return ()
    ids = {_first_id(other), *other.route.models, *other.route.aliases}
    return [model for model in (*backend.route.models, *backend.route.aliases) if model in ids]


def _lower_name(condition: tuple[str, Sequence[str]]) -> str:
    return condition[0].lower()


def _header_entry(name: str, values: Iterable[str]) -> str:
    return f"{name.lower()}={'^'.join(quote(value, safe='') for value in values)}"


def global_lines(settings: Settings) -> str:
    """Of the section ``global``."""
    run = settings.run_directory
    keys = f" {run}/restricted.map {run}/allowed.map" if settings.api_keys_secret else ""
    return f"""\
    set-var {_SEQUENCE} int(0)
    lua-load-per-thread {run}/lua/targets.lua {run}/hold.map {run}/names.map {run}/lacks.map{keys}"""


def rules(run: str, lacks: str) -> str:
    """Rules of the public frontend, once the backend is known and before anything is counted for it. `lacks`: condition
    of requests whose engine does not know what is asked; of several targets each is looked at by itself."""
    shared, other = f"{{ var(txn.targets) -m beg {_SHARES} }}", "var(txn.targets),field(3,&)"
    drawn = f"{{ var(txn.targets),field(2,&),sub({_SEQUENCE}) gt 0 }}"
    takes = f"{{ {other},lua.servers -m int gt 0 }} !{{ {other},map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request set-var(txn.targets) var(txn.be),map_str({run}/{TARGETS_MAP})
    http-request set-var({_SEQUENCE}) var({_SEQUENCE}),add({_STEP}),mod({_LENGTH}) if {shared}
    http-request set-var(txn.be) {other} if {shared} {drawn} {takes}
    http-request lua.choose_target if {{ var(txn.targets) -m found }} !{shared}
    http-request lua.unsupported_endpoint if !{{ var(txn.targets) -m found }} {{ {lacks} }} || {shared} {{ {lacks} }}
    http-request lua.unsupported_endpoint if {{ var(txn.unserved) -m found }}"""


def sections(settings: Settings, reading: str, after_hold: str, last_rules: str, changed: str) -> str:
    """The hop. `reading`: what a body is read for. `after_hold`: what becomes of requests whose wait is over.
    `last_rules`: what every request to a model is subject to. `changed`: the condition under which its body is changed.
    """
    run = settings.run_directory
    held, empty = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}", "!{ var(txn.be),nbsrv gt 0 }"
    return f"""\
# Requests that further targets may answer: each turn is a try of this backend.
backend turns from base
    http-request set-retries var(txn.turns)
    retry-on conn-failure empty-response 429 500 502 503 504
    # A hop refused the address. The next target would not help.
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
    # Who waits is bounded by the key, as in the public frontend.
    http-request set-var(txn.key) req.fhdr({_KEY}) if {{ req.fhdr({_KEY}) -m found }}
    http-request del-header {_KEY}
    http-request del-header connection
    # As much as fits a buffer: what is whole in it can be sent again.
    http-request wait-for-body time 60s
{reading}
    http-request lua.hold if {held} || {empty}
{after_hold}
{last_rules}
    http-response set-header {_ANSWERED} %[var(txn.be)]
    # The next process would send the body as it is, with a name that the target's engine does not know.
    http-request {errors.return_rule(errors.UNREACHABLE)} if {{ var(txn.hold) -m str moved }} {changed}
    use_backend {fallback_server.SUCCESSOR} if {{ var(txn.hold) -m str moved }}
    use_backend rewrite if {changed}
    use_backend %[var(txn.be)]"""
