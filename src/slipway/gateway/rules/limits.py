"""What API keys may do, as rules of haproxy.cfg. Pure.

Requests at once are counted in a stick table, by name of the key or subject. limits.lua counts all requests, tokens.lua
the tokens of answers. The control process reads both, and grants further requests (ledger.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from slipway.gateway import errors
from slipway.gateway.routing.keys import Rights
from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import jwt
from slipway.gateway.settings import Settings
from slipway.serving.routing.route import Route
from slipway.serving.routing.selector import chosen, parse

KEY_HEADER = "x-slipway-key"
"""By which the control process is told the key of whoever asks for the model list."""
HEADERS = "^(authorization|(x-)?api-key)$"
"""Regular expression of the headers with a key."""
TABLE = "keys"
_SLOT = 3
_ALL_OF_NAMESPACE = "/*"
"""What follows a namespace where all of its models are meant."""
_REFUSED = "!"
"""Between a key and the id of a refused model in allowed.map. Names of keys and subjects do not contain it."""


def permitted_backends(rights: Rights, table: RoutingTable) -> frozenset[str]:
    """Names of the backends that a key may ask, where it is restricted."""
    named = {table.models[model] for model in rights.models if model in table.models}
    spaces = {model.removesuffix(_ALL_OF_NAMESPACE) for model in rights.models if model.endswith(_ALL_OF_NAMESPACE)}
    requirements = parse(rights.selector) if rights.selector.strip() else ()
    if spaces or requirements:
        named |= {
            name
            for name, backend in table.backends.items()
            if backend.namespace in spaces or (requirements and chosen(requirements, backend.route.labels))
        }
    return frozenset(named)


def may_learn_refusal(rights: Rights, model: str) -> bool:
    """Whether a key learns why a model is refused: a restricted one does if its rights name the id or the namespace."""
    return not rights.restricted or any(right in rights.models for right in _matching_rights(model))


def allowed_entries(rights: Mapping[str, Rights], table: RoutingTable) -> dict[str, str]:
    """Entries ``key/backend`` for each backend that a restricted key may ask, and those of refused models."""
    restricted = {name: own for name, own in rights.items() if own.restricted}
    backends = {name: sorted(permitted_backends(own, table)) for name, own in restricted.items()}
    by_right: dict[str, list[str]] = {}
    for model in table.refused:
        for right in _matching_rights(model):
            by_right.setdefault(right, []).append(model)
    refused = {
        name: [model for right in own.models for model in by_right.get(right, ())] for name, own in restricted.items()
    }
    return {
        **{f"{name}/{backend}": "1" for name, own in backends.items() for backend in own},
        **{f"{name}{_REFUSED}{model}": "1" for name, own in refused.items() for model in own},
    }


def _matching_rights(model: str) -> tuple[str, ...]:
    """The rights that name a refused model: its id, and all of its namespace if the id has one."""
    space, slash, _name = model.partition("/")
    return (model, f"{space}{_ALL_OF_NAMESPACE}") if slash else (model,)


class Permissions:
    """Remembers ``allowed`` of the last table: of what changes, most are endpoints, which it does not depend on."""

    def __init__(self) -> None:
        self._rights: Mapping[str, Rights] = {}
        self._models: Mapping[str, str] = {}
        self._routes: Mapping[str, Route] = {}
        self._refused: Mapping[str, str] = {}
        self._entries: Mapping[str, str] = {}

    def update(self, rights: Mapping[str, Rights], table: RoutingTable) -> Mapping[str, str]:
        """The entries for these rights and this table."""
        if not any(own.restricted for own in rights.values()):
            return {}
        routes = {name: backend.route for name, backend in table.backends.items()}
        previous = (self._rights, self._models, self._routes, self._refused)
        if (rights, table.models, routes, table.refused) != previous:
            self._rights, self._models, self._routes, self._refused = rights, table.models, routes, table.refused
            self._entries = allowed_entries(rights, table)
        return self._entries


def maps(rights: Mapping[str, Rights], entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Limits by key; keys that may ask some models only; and `entries` for the backends that these may ask."""
    return {
        "limits.map": {name: own.limits.text for name, own in rights.items() if any(own.limits)},
        "restricted.map": {name: "1" for name, own in rights.items() if own.restricted},
        "allowed.map": dict(entries),
    }


def identify(settings: Settings) -> str:
    """Rules that name the key, or refuse a request without one."""
    lookup = f"sha2(256),hex,map_str({settings.run_directory}/keys.map)"
    return f"""\
    http-request set-var(txn.key) http_auth_bearer,{lookup}
    http-request set-var(txn.key) req.fhdr(x-api-key),{lookup} unless {{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.fhdr(api-key),{lookup} unless {{ var(txn.key) -m found }}
{jwt.rules(settings)}\
    http-request {errors.return_rule(errors.NO_KEY)} unless {{ var(txn.key) -m found }}"""


def drop_keys(condition: str = "!{ var(txn.hold) -m str moved }") -> str:
    """A rule that comes late: no key goes further, in any of the headers that OpenAI's, Anthropic's and Azure's clients
    have, whether or not the gateway needs one."""
    return f"    http-request del-header {HEADERS} -m reg if {condition}"


HANDSHAKE = """\
    # Browsers cannot set headers for a WebSocket: their key is an item of the subprotocol, or in the query.
    http-request lua.take_key if { req.fhdr(sec-websocket-protocol) -m found }
    http-request lua.take_key if { url_param(api-key) -m found }"""
"""Rules that make a header of such a key, for the rules that follow. It does not go on to the engine."""


def key_header(settings: Settings) -> str:
    """Rules of the model list's backend: it is told who asks, and no key."""
    if not settings.api_keys_secret:
        return ""
    return f"""\
    http-request set-header {KEY_HEADER} %[var(txn.key)]
"""


def hide_models(settings: Settings) -> str:
    """Rules before the answer about an unknown model: a key cannot tell a model that it may not use from one that does
    not exist, whether it is served or refused."""
    if not settings.api_keys_secret:
        return ""
    run = settings.run_directory
    restricted = f"{{ var(txn.key),map_str({run}/restricted.map) -m found }}"
    served, allowed = "{ var(txn.be) -m found }", f"map_str({run}/allowed.map) -m found"
    return f"""\
    http-request lua.hide_model if {served} {restricted} !{{ var(txn.key),concat(/,txn.be),{allowed} }}
    http-request lua.hide_model if !{served} {restricted} !{{ var(txn.key),concat({_REFUSED},txn.model),{allowed} }}
"""


def global_lines(settings: Settings) -> str:
    """Of the section ``global``."""
    return f"    lua-load {settings.run_directory}/lua/limits.lua\n" if settings.api_keys_secret else ""


def rules(settings: Settings) -> tuple[str, ...]:
    """Rules that refuse what goes beyond the limits of a key, before a body is read."""
    if not settings.api_keys_secret:
        return ()
    return (
        f"""\
    http-request set-var(txn.limits) var(txn.key),map_str({settings.run_directory}/limits.map)
    acl limited var(txn.limits) -m found
    http-request track-sc{_SLOT} var({jwt.holder_variable(settings)}) table {TABLE} if limited
    http-request set-var(txn.used) sc_conn_cur({_SLOT}) if limited
    http-request set-var(txn.left_at_once) var(txn.limits),field(3,:),sub(txn.used) if limited
    http-request lua.refuse_busy if {{ var(txn.left_at_once) -m int lt 0 }}
    http-request lua.limit if limited
    # HAProxy ends a rule of Lua when the client leaves, and goes on with the next one.
    http-request {errors.return_rule(errors.UNKNOWN_LIMITS)} if limited !{{ var(txn.counted) -m found }}
    # For keys without limits, these rules are the last.
    http-after-response allow unless limited
{_header_rules("requests", 1)}
{_header_rules("tokens", 2)}""",
    )


def _header_rules(name: str, field: int) -> str:
    rest = f"var(txn.left_{name})"
    return f"""\
    http-after-response set-header x-ratelimit-limit-{name} %[var(txn.limits),field({field},:)] if {{ {rest} -m found }}
    http-after-response set-header x-ratelimit-remaining-{name} %[{rest}] if {{ {rest} -m found }}"""


def sections(settings: Settings) -> str:
    """The stick table."""
    if not settings.api_keys_secret:
        return ""
    return f"""
backend {TABLE} from base
    stick-table type string len 253 size 20k expire 3m store conn_cur
"""


class HolderEntry(NamedTuple):
    """HAProxy's entry of one holder. Its number of requests begins at zero with each birth."""

    birth: str
    requests: int
    waiting: bool = False
    """Whether one waits for a grant."""
    until: tuple[int, int] = (0, 0)
    """The numbers up to which requests may pass, by the limits per minute and per day."""


SHOW_LIMITS, SHOW_SPENT = "show slipway limits", "show slipway spent"
_SET_LIMITS, _DROP_LIMITS = "set slipway limits", "drop slipway limits"
_MOST_WORDS, _MOST_COMMAND = 40, 6000
"""Grants of one command, and its bytes."""


def parse_entries(answer: str) -> dict[str, HolderEntry]:
    """The answer of limits.lua, by holder."""
    rows = (line.split(" ") for line in answer.splitlines())
    return {
        unquote(row[0]): HolderEntry(row[1], int(row[2]), row[3] == "1", (int(row[4]), int(row[5])))
        for row in rows
        if len(row) == 6
    }


def parse_tokens(answer: str) -> dict[str, int]:
    """The answer of tokens.lua: tokens by holder."""
    rows = (line.split(" ") for line in answer.splitlines())
    return {unquote(row[0]): int(row[1]) for row in rows if len(row) == 2}


def parse_dropped(answer: str) -> list[tuple[str, str]]:
    """The answer of limits.lua: holder and birth of entries that it no longer has."""
    rows = (line.split(" ") for line in answer.splitlines())
    return [(unquote(row[0]), row[1]) for row in rows if len(row) == 2]


def grant_commands(grants: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Commands for limits.lua, of holder, birth and text of each grant."""
    return _commands(_SET_LIMITS, grants)


def drop_commands(drops: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Commands for limits.lua, of holder, birth, and requests as counted."""
    return _commands(_DROP_LIMITS, ((holder, birth, str(requests)) for holder, birth, requests in drops))


def _commands(verb: str, entries: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    words: list[str] = []
    size = 0
    for holder, birth, text in entries:
        word = f"{_encode_holder(holder)}:{birth}:{text}"
        if words and (len(words) >= _MOST_WORDS or size + len(word) > _MOST_COMMAND):
            yield f"{verb} {' '.join(words)}"
            words, size = [], 0
        words.append(word)
        size += len(word) + 1
    if words:
        yield f"{verb} {' '.join(words)}"


def _encode_holder(holder: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), holder)
