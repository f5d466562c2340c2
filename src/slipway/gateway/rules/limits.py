"""Rules that enforce the rights and limits of API keys and subjects. Pure.

A stick table counts concurrent requests by the name of the key or subject. limits.lua counts all requests, tokens.lua
the tokens of answers. The control process reads both counts and grants further requests (ledger.py).
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
"""Header that passes the name of the client's key to the control process, for requests for the model list."""
HEADERS = "^(authorization|(x-)?api-key)$"
"""Regular expression for the names of headers that may contain a key."""
TABLE = "keys"
_SLOT = 3
_ALL_OF_NAMESPACE = "/*"
"""Suffix after a namespace that means all its models."""
_REFUSED = "!"
"""Separates a key and the ID of a refused model in allowed.map. Names of keys and subjects do not contain it."""


def permitted_backends(rights: Rights, table: RoutingTable) -> frozenset[str]:
    """Returns the names of the backends that a restricted key may use."""
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
    """Whether a key may learn why a model is refused. A restricted key must have the right to its ID or namespace."""
    return not rights.restricted or any(right in rights.models for right in _matching_rights(model))


def allowed_entries(rights: Mapping[str, Rights], table: RoutingTable) -> dict[str, str]:
    """Returns entries ``key/backend`` for each backend that a restricted key may use, and entries of refused models."""
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
    """Returns the rights that include a refused model: its ID, and its whole namespace if the ID contains one."""
    space, slash, _name = model.partition("/")
    return (model, f"{space}{_ALL_OF_NAMESPACE}") if slash else (model,)


class Permissions:
    """Caches the result of ``allowed_entries``. Most changes only affect endpoints, on which it does not depend."""

    def __init__(self) -> None:
        self._rights: Mapping[str, Rights] = {}
        self._models: Mapping[str, str] = {}
        self._routes: Mapping[str, Route] = {}
        self._refused: Mapping[str, str] = {}
        self._entries: Mapping[str, str] = {}

    def update(self, rights: Mapping[str, Rights], table: RoutingTable) -> Mapping[str, str]:
        """Returns the entries for these rights and this table."""
        if not any(own.restricted for own in rights.values()):
            return {}
        routes = {name: backend.route for name, backend in table.backends.items()}
        previous = (self._rights, self._models, self._routes, self._refused)
        if (rights, table.models, routes, table.refused) != previous:
            self._rights, self._models, self._routes, self._refused = rights, table.models, routes, table.refused
            self._entries = allowed_entries(rights, table)
        return self._entries


def maps(rights: Mapping[str, Rights], entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns the maps of limits by key, of restricted keys, and of ``entries``, the backends that these may use."""
    return {
        "limits.map": {name: own.limits.text for name, own in rights.items() if any(own.limits)},
        "restricted.map": {name: "1" for name, own in rights.items() if own.restricted},
        "allowed.map": dict(entries),
    }


def identify(settings: Settings) -> str:
    """Returns the rules that identify the key, or refuse a request without one."""
    lookup = f"sha2(256),hex,map_str({settings.run_directory}/keys.map)"
    return f"""\
    http-request set-var(txn.key) http_auth_bearer,{lookup}
    http-request set-var(txn.key) req.fhdr(x-api-key),{lookup} unless {{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.fhdr(api-key),{lookup} unless {{ var(txn.key) -m found }}
{jwt.rules(settings)}\
    http-request {errors.return_rule(errors.NO_KEY)} unless {{ var(txn.key) -m found }}"""


def drop_keys(condition: str = "!{ var(txn.hold) -m str moved }") -> str:
    """Returns the rule that removes keys, so that no engine gets one, even if the gateway requires none.

    It comes late, and covers the headers of OpenAI's, Anthropic's and Azure's clients.
    """
    return f"    http-request del-header {HEADERS} -m reg if {condition}"


HANDSHAKE = """\
    # Browsers cannot set headers for a WebSocket. Their key is an item of the subprotocol, or in the query.
    http-request lua.take_key if { req.fhdr(sec-websocket-protocol) -m found }
    http-request lua.take_key if { url_param(api-key) -m found }"""
"""Rules that move the key in a WebSocket's subprotocol or query to a header, for the rules that follow. It does not
reach the engine."""


def key_header(settings: Settings) -> str:
    """Returns the rule that passes the key's name, but not the key, to the backend of the model list."""
    if not settings.api_keys_secret:
        return ""
    return f"""\
    http-request set-header {KEY_HEADER} %[var(txn.key)]
"""


def hide_models(settings: Settings) -> str:
    """Returns the rules that hide models from restricted keys.

    They precede the answer about unknown models. A key gets the same answer for a model that it may not use, served or
    refused, and for one that does not exist.
    """
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
    """Returns the lines for the section ``global``."""
    return f"    lua-load {settings.run_directory}/lua/limits.lua\n" if settings.api_keys_secret else ""


def rules(settings: Settings) -> tuple[str, ...]:
    """Returns the rules that refuse requests above the limits of a key, before a body is read."""
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
    # If the client disconnects, HAProxy aborts a Lua rule and continues with the next rule.
    http-request {errors.return_rule(errors.UNKNOWN_LIMITS)} if limited !{{ var(txn.counted) -m found }}
    # No further rules apply to keys without limits.
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
    """Returns the section with the stick table."""
    if not settings.api_keys_secret:
        return ""
    return f"""
backend {TABLE} from base
    stick-table type string len 253 size 20k expire 3m store conn_cur
"""


class HolderEntry(NamedTuple):
    """HAProxy's entry of a holder. Its number of requests starts at zero with each birth."""

    birth: str
    requests: int
    waiting: bool = False
    """Whether a request waits for a grant."""
    until: tuple[int, int] = (0, 0)
    """Numbers up to which requests may pass, for the limits per minute and per day."""


SHOW_LIMITS, SHOW_SPENT = "show slipway limits", "show slipway spent"
_SET_LIMITS, _DROP_LIMITS = "set slipway limits", "drop slipway limits"
_MOST_WORDS, _MOST_COMMAND = 40, 6000
"""Maximum number of grants in one command, and of its bytes."""


def parse_entries(answer: str) -> dict[str, HolderEntry]:
    """Parses the answer of limits.lua: entries by holder."""
    rows = (line.split(" ") for line in answer.splitlines())
    return {
        unquote(row[0]): HolderEntry(row[1], int(row[2]), row[3] == "1", (int(row[4]), int(row[5])))
        for row in rows
        if len(row) == 6
    }


def parse_tokens(answer: str) -> dict[str, int]:
    """Parses the answer of tokens.lua: tokens by holder."""
    rows = (line.split(" ") for line in answer.splitlines())
    return {unquote(row[0]): int(row[1]) for row in rows if len(row) == 2}


def parse_dropped(answer: str) -> list[tuple[str, str]]:
    """Parses the answer of limits.lua: holder and birth of entries that no longer exist."""
    rows = (line.split(" ") for line in answer.splitlines())
    return [(unquote(row[0]), row[1]) for row in rows if len(row) == 2]


def grant_commands(grants: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yields commands for limits.lua from holder, birth and encoded grant."""
    return _commands(_SET_LIMITS, grants)


def drop_commands(drops: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Yields commands for limits.lua that delete entries, from holder, birth and counted requests."""
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
