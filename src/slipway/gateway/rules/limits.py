"""Rules that enforce the rights and limits of API keys and subjects. Pure.

A stick table counts concurrent requests by the name of the key or subject. ``limits.lua`` counts the requests of keys
and subjects with limits, and ``tokens.lua`` counts the tokens of their answers. The control process reads both counts,
and grants further requests (``ledger.py``).
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
"""Header with the name of the client's key, which HAProxy adds to requests for the control process."""
HEADERS = "^(authorization|(x-)?api-key)$"
"""Regular expression for the names of the headers that may contain an API key."""
TABLE = "keys"
_SLOT = 3
_ALL_OF_NAMESPACE = "/*"
"""Suffix of a namespace in the rights that means all models of the namespace."""
_REFUSED = "!"
"""Separator between a key and the ID of a rejected model in ``allowed.map``. Names of keys and subjects do not contain
it."""


def permitted_backends(rights: Rights, table: RoutingTable) -> frozenset[str]:
    """Return the names of the backends that a restricted key may use. Empty for unrestricted rights, although these
    allow all backends."""
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
    """Whether a key may learn why a model was rejected. A restricted key needs the right to the model's ID or
    namespace."""
    return not rights.restricted or any(right in rights.models for right in _matching_rights(model))


def allowed_entries(rights: Mapping[str, Rights], table: RoutingTable) -> dict[str, str]:
    """Return the entries of ``allowed.map``: ``key/backend`` for each backend that a restricted key may use, and
    ``key!model`` for each rejected model of which a restricted key may learn."""
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
    """Return the rights that include a rejected model: its ID, and the namespace if the ID contains one."""
    space, slash, _name = model.partition("/")
    return (model, f"{space}{_ALL_OF_NAMESPACE}") if slash else (model,)


class Permissions:
    """A cache for the result of ``allowed_entries``. The result does not depend on endpoints, which change most
    often."""

    def __init__(self) -> None:
        self._rights: Mapping[str, Rights] = {}
        self._models: Mapping[str, str] = {}
        self._routes: Mapping[str, Route] = {}
        self._refused: Mapping[str, str] = {}
        self._entries: Mapping[str, str] = {}

    def update(self, rights: Mapping[str, Rights], table: RoutingTable) -> Mapping[str, str]:
        """Return the entries of ``allowed.map`` for the given rights and routing table."""
        if not any(own.restricted for own in rights.values()):
            return {}
        routes = {name: backend.route for name, backend in table.backends.items()}
        previous = (self._rights, self._models, self._routes, self._refused)
        if (rights, table.models, routes, table.refused) != previous:
            self._rights, self._models, self._routes, self._refused = rights, table.models, routes, table.refused
            self._entries = allowed_entries(rights, table)
        return self._entries


def maps(rights: Mapping[str, Rights], entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the maps of limits, of restricted keys, and of the ``entries`` of ``allowed.map``, by file name."""
    return {
        "limits.map": {name: own.limits.text for name, own in rights.items() if any(own.limits)},
        "restricted.map": {name: "1" for name, own in rights.items() if own.restricted},
        "allowed.map": dict(entries),
    }


def identify(settings: Settings) -> str:
    """Return the rules that identify the API key or the token of a request, and reject a request without a valid
    one."""
    lookup = f"sha2(256),hex,map_str({settings.run_directory}/keys.map)"
    return f"""\
    http-request set-var(txn.key) http_auth_bearer,{lookup}
    http-request set-var(txn.key) req.fhdr(x-api-key),{lookup} unless {{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.fhdr(api-key),{lookup} unless {{ var(txn.key) -m found }}
{jwt.rules(settings)}\
    http-request {errors.return_rule(errors.NO_KEY)} unless {{ var(txn.key) -m found }}"""


def drop_keys(condition: str = "!{ var(txn.hold) -m str moved }") -> str:
    """Return the rule that removes API keys from requests, so that no engine gets a key.

    The rule also applies if the gateway requires no keys. It removes the headers of OpenAI's, Anthropic's and Azure's
    clients from the requests that meet ``condition``. By default, only requests that move to another process keep their
    key, because that process checks it again.
    """
    return f"    http-request del-header {HEADERS} -m reg if {condition}"


HANDSHAKE = """\
    # Browsers cannot set headers for a WebSocket. Their key is an item of the subprotocol, or in the query.
    http-request lua.take_key if { req.fhdr(sec-websocket-protocol) -m found }
    http-request lua.take_key if { url_param(api-key) -m found }"""
"""Rules that move the API key in a WebSocket's subprotocol or query to a header, which later rules read. The engine
does not get the key."""


def key_header(settings: Settings) -> str:
    """Return the rule that passes the name of the key, but not the key, to the control process; empty if no keys are
    required."""
    if not settings.api_keys_secret:
        return ""
    return f"""\
    http-request set-header {KEY_HEADER} %[var(txn.key)]
"""


def hide_models(settings: Settings) -> str:
    """Return the rules that hide models from restricted keys.

    The rules must precede the answer for unknown models. For a model that a key must not use, whether served or
    rejected, the key gets the same answer as for a model that does not exist. Empty if no keys are required.
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
    """Return the line for the section ``global`` that loads the Lua code for limits; empty if no keys are required."""
    return f"    lua-load {settings.run_directory}/lua/limits.lua\n" if settings.api_keys_secret else ""


def rules(settings: Settings) -> tuple[str, ...]:
    """Return the rules that reject requests above the limits of a key before the body is read, and set the headers
    ``x-ratelimit-*``. Empty if no keys are required."""
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
    """Return the section of haproxy.cfg with the stick table of concurrent requests; empty if no keys are required."""
    if not settings.api_keys_secret:
        return ""
    return f"""
backend {TABLE} from base
    stick-table type string len 253 size 20k expire 3m store conn_cur
"""


class HolderEntry(NamedTuple):
    """The entry of a holder in ``limits.lua``. A holder is an API key or a subject. A new entry has a new ID, its
    ``birth``, and starts with zero requests."""

    birth: str
    requests: int
    waiting: bool = False
    """Whether a request waits for a grant."""
    until: tuple[int, int] = (0, 0)
    """Total numbers of requests at which HAProxy stops accepting requests, for the limits per minute and per day."""


SHOW_LIMITS, SHOW_SPENT = "show slipway limits", "show slipway spent"
_SET_LIMITS, _DROP_LIMITS = "set slipway limits", "drop slipway limits"
_MOST_WORDS, _MOST_COMMAND = 40, 6000
"""Maximum number of entries in one command, and maximum length of all entries of a command in bytes."""


def parse_entries(answer: str) -> dict[str, HolderEntry]:
    """Parse the answer to ``SHOW_LIMITS``. Return the entries by holder. Ignore invalid lines."""
    rows = (line.split(" ") for line in answer.splitlines())
    return {
        unquote(row[0]): HolderEntry(row[1], int(row[2]), row[3] == "1", (int(row[4]), int(row[5])))
        for row in rows
        if len(row) == 6
    }


def parse_tokens(answer: str) -> dict[str, int]:
    """Parse the answer to ``SHOW_SPENT``. Return the number of tokens by holder. Ignore invalid lines."""
    rows = (line.split(" ") for line in answer.splitlines())
    return {unquote(row[0]): int(row[1]) for row in rows if len(row) == 2}


def parse_dropped(answer: str) -> list[tuple[str, str]]:
    """Parse the answers to ``drop_commands``. Return the holder and the birth of each entry that no longer exists."""
    rows = (line.split(" ") for line in answer.splitlines())
    return [(unquote(row[0]), row[1]) for row in rows if len(row) == 2]


def grant_commands(grants: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield commands that set grants in ``limits.lua``. A grant is the holder, the birth of the holder's entry, and
    the encoded grant."""
    return _commands(_SET_LIMITS, grants)


def drop_commands(drops: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Yield commands that delete entries in ``limits.lua``. An entry is given as the holder, its birth, and the number
    of counted requests."""
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
