"""What API keys may do, as rules of haproxy.cfg. Pure.

Requests and tokens of the last minute and of the day are counted in stick tables, by name of the key. A request
reserves what it may use (limits.lua), and an answer's tokens take the place of that. They are known at the answer's end
only, where no rule runs: so tokens.lua keeps them, and has a frontend of its own count them a moment later.

Limits hold over all gateways: each has a share of them (sharing.py), in a map that the control process writes
(exchange.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slipway.gateway import errors, identity
from slipway.gateway.keys import Limits, Rights
from slipway.gateway.settings import Settings
from slipway.gateway.sharing import LAST, UNSET, Share
from slipway.gateway.table import RoutingTable
from slipway.serving.route import Route
from slipway.serving.selector import chosen, parse

KEY_HEADER = "x-slipway-key"
"""By which the control process is told the key of whoever asks for the model list."""
TABLE, DAYS = "keys", "days"
"""Stick tables: what keys used of late, and what they used on a day (``YYYYMMDD:KEY``)."""
SHARES = "shares.map"
"""What this gateway may use of each key's limits: sharing.Share.text by name of the key."""
SETTLING = "settle"
"""First part of the names of the threads' sockets for settling."""
_SLOT = 3
_ROW = re.compile(r"^0x\S+ key=(\S+) (.*)$", re.MULTILINE)
_VALUE = re.compile(r"(\w+)(?:\(\d+\))?=(\d+)")
_EVERY = "/*"
"""What follows a namespace where all of its models are meant."""


def backends_of(rights: Rights, table: RoutingTable) -> frozenset[str]:
    """Names of the backends that a key may ask, where it is restricted."""
    named = {table.models[model] for model in rights.models if model in table.models}
    spaces = {model.removesuffix(_EVERY) for model in rights.models if model.endswith(_EVERY)}
    requirements = parse(rights.selector) if rights.selector.strip() else ()
    if spaces or requirements:
        named |= {
            name
            for name, backend in table.backends.items()
            if backend.namespace in spaces or (requirements and chosen(requirements, backend.route.labels))
        }
    return frozenset(named)


def allowed(rights: Mapping[str, Rights], table: RoutingTable) -> dict[str, str]:
    """Entries ``key/backend`` for each backend that a restricted key may ask."""
    return {
        f"{name}/{backend}": "1"
        for name, own in rights.items()
        if own.restricted
        for backend in sorted(backends_of(own, table))
    }


class Permissions:
    """Remembers ``allowed`` of the last table: of what changes, most are endpoints, which it does not depend on."""

    def __init__(self) -> None:
        self._rights: Mapping[str, Rights] = {}
        self._models: Mapping[str, str] = {}
        self._routes: Mapping[str, Route] = {}
        self._entries: Mapping[str, str] = {}

    def of(self, rights: Mapping[str, Rights], table: RoutingTable) -> Mapping[str, str]:
        """The entries for these rights and this table."""
        if not any(own.restricted for own in rights.values()):
            return {}
        routes = {name: backend.route for name, backend in table.backends.items()}
        if (rights, table.models, routes) != (self._rights, self._models, self._routes):
            self._rights, self._models, self._routes = rights, table.models, routes
            self._entries = allowed(rights, table)
        return self._entries


def maps(rights: Mapping[str, Rights], entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Limits by key; keys that may ask some models only; and `entries` for the backends that these may ask."""
    return {
        "limits.map": {name: text for name, own in rights.items() if (text := own.limits.text)},
        "restricted.map": {name: "1" for name, own in rights.items() if own.restricted},
        "allowed.map": dict(entries),
    }


class Counted(NamedTuple):
    """What HAProxy counted for a key."""

    used: tuple[int, ...]
    """See sharing.Standing."""
    spent: tuple[int, ...]
    """The same."""
    asked: int
    """Requests that came, and those that found the share too small, since HAProxy knows the key."""
    short: int = 0
    """The latter alone."""

    def needs_more(self, share: Sequence[int], own: Limits) -> bool:
        """Whether a share is too small for it, or soon will be."""
        used = zip(self.used, share, own, strict=False)
        return self.short > 0 or any(limit and 2 * mine >= most for mine, most, limit in used)


UNUSED = Counted((0,) * (len(Limits._fields) + 1), (0, 0), 0)


def counted(keys: str, days: str, day: str) -> dict[str, Counted]:
    """Reads the answers to ``show table`` of both stick tables, of a day (``YYYYMMDD``): by name of the key."""
    of_day = {
        name.removeprefix(f"{day}:"): (row["gpc0"], row["gpc1"])
        for name, row in _rows(days)
        if name.startswith(f"{day}:")
    }
    of_late = dict(_rows(keys))
    return {name: _counted(of_late.get(name, {}), of_day.get(name, (0, 0))) for name in {**of_late, **of_day}}


def _counted(row: Mapping[str, int], spent: tuple[int, int]) -> Counted:
    # Both begin anew at 2^32, so what is more than half of that is less than nothing, as after a reload.
    reserved = (row.get("gpc2", 0) - row.get("gpc3", 0)) & 0xFFFFFFFF
    reserved = reserved if reserved < 1 << 31 else 0
    minute = (row.get("gpc0_rate", 0), row.get("gpc1_rate", 0) + reserved)
    used = (*minute, row.get("conn_cur", 0), spent[0], spent[1] + reserved, 0)
    short = row.get("gpc4", 0)
    return Counted(used, spent, row.get("gpc0", 0) + short, short)


def _rows(table: str) -> Iterator[tuple[str, dict[str, int]]]:
    for key, values in _ROW.findall(table):
        yield key, {name: int(value) for name, value in _VALUE.findall(values)}


def shares(entries: Mapping[str, str]) -> dict[str, Share]:
    """Reads the entries of SHARES, by name of the key. Without what is spent, which is not in it."""
    found = {}
    for name, value in entries.items():
        numbers = tuple(UNSET if number == "-" else int(number) for number in value.split(":"))
        found[name] = Share(numbers[: LAST + 1], numbers[LAST + 1 :])
    return found


def start(settings: Settings) -> str:
    """Of the section ``global``."""
    return f"    tune.stick-counters {_SLOT + 2}\n" if settings.api_keys_secret else ""


def scripts(settings: Settings) -> str:
    """Of the section ``global``: what keeps keys to their shares."""
    run = settings.run_directory
    text = f"    lua-load-per-thread {run}/lua/limits.lua {run}/{SHARES} {_SLOT}\n{identity.scripts(settings)}"
    return text if settings.api_keys_secret else ""


def identify(settings: Settings) -> str:
    """Rules that name the key, or refuse a request without one."""
    known = f"sha2(256),hex,map_str({settings.run_directory}/keys.map)"
    return f"""\
    http-request set-var(txn.key) http_auth_bearer,{known}
    http-request set-var(txn.key) req.fhdr(x-api-key),{known} unless {{ var(txn.key) -m found }}
{identity.rules(settings)}\
    http-request {errors.return_rule(errors.NO_KEY)} unless {{ var(txn.key) -m found }}"""


def forget(settings: Settings) -> str:
    """One of the last rules: a key in the header of Anthropic's clients goes no further."""
    moved = "{ var(txn.hold) -m str moved }"
    return f"    http-request del-header x-api-key unless {moved}\n" if settings.api_keys_secret else ""


def introduce(settings: Settings) -> str:
    """Rules of the model list's backend: it is told who asks, and no key."""
    if not settings.api_keys_secret:
        return ""
    return f"""\
    http-request del-header x-api-key
    http-request set-header {KEY_HEADER} %[var({identity.record(settings)})]
"""


def restrict(settings: Settings) -> str:
    """Rules once the backend is known: what a key may not ask, it cannot tell from what there is not."""
    if not settings.api_keys_secret:
        return ""
    run = settings.run_directory
    record = identity.record(settings)
    allowed = f"{{ var({record}),concat(/,txn.be),map_str({run}/allowed.map) -m found }}"
    return (
        f"    http-request lua.unknown_model if {{ var({record}),map_str({run}/restricted.map) -m found }} !{allowed}\n"
    )


def rules(settings: Settings) -> tuple[str, ...]:
    """Rules that know the limits of a key, and refuse what is beyond them for sure before a body is read."""
    if not settings.api_keys_secret:
        return ()
    return (
        f"""\
    http-request set-var(txn.limits) var({identity.record(settings)}),map_str({settings.run_directory}/limits.map)
    acl limited var(txn.limits) -m found
{_track("limited")}
    http-request lua.limit_early if limited known
{_admit("limited !known")}
{_headers("requests")}
{_headers("tokens")}""",
    )


def admit(settings: Settings) -> tuple[str, ...]:
    """Rules once a body is read: what the request may need is known. They may wait."""
    if not settings.api_keys_secret:
        return ()
    return (f"{_estimate() if settings.count_tokens else ''}{_admit('limited known')}",)


def reserve(settings: Settings) -> str:
    """The last rules that may refuse a request: tokens that it may use count from now on."""
    if not settings.api_keys_secret or not settings.count_tokens:
        return ""
    return f"""\
    http-request lua.reserve if limited {{ var(txn.need) -m found }} !{{ var(txn.hold) -m str moved }}
    http-request sc-add-gpc(2,{_SLOT}) var(txn.reserved) if {{ var(txn.reserved) -m found }}
"""


def _track(condition: str) -> str:
    """A key with a limit for a day has an entry of that day, in UTC."""
    return f"""\
    acl dayless var(txn.limits) -m end ::
    http-request track-sc{_SLOT} var(txn.key) table {TABLE} if {condition}
    http-request track-sc{_SLOT + 1} date(),utime(%Y%m%d),concat(:,txn.key) table {DAYS} if {condition} !dayless"""


def _admit(condition: str) -> str:
    return f"""\
    http-request lua.limit if {condition}
    http-request sc-inc-gpc(4,{_SLOT}) if {condition} {{ var(txn.short) -m found }}
    http-request lua.await_share if {condition} {{ var(txn.short) -m found }}
    http-request sc-inc-gpc(0,{_SLOT}) if {condition}
    http-request sc-inc-gpc(0,{_SLOT + 1}) if {condition} !dayless"""


def _estimate() -> str:
    """What clients ask for at most, by the names that it has in the different protocols."""
    asked = "\n".join(
        f"    http-request set-var(txn.asked) req.body,json_query('$.{name}','int') if spends"
        + (" !{ var(txn.asked) -m found }" if number else "")
        for number, name in enumerate(("max_completion_tokens", "max_tokens", "max_output_tokens"))
    )
    return f"""\
    acl spends var(txn.limit_tokens) -m found
    acl spends var(txn.limit_tokens_day) -m found
{asked}
    http-request set-var(txn.choices) req.body,json_query('$.n','int') if spends
    http-request lua.estimate if spends
"""


def _headers(name: str) -> str:
    limit, left = f"var(txn.limit_{name})", f"var(txn.left_{name})"
    return f"""\
    http-after-response set-header x-ratelimit-limit-{name} %[{limit}] if {{ {limit} -m found }}
    http-after-response set-header x-ratelimit-remaining-{name} %[{left}] if {{ {left} -m found }}"""


def sections(settings: Settings) -> str:
    """The stick tables, and who settles what answers have used."""
    if not settings.api_keys_secret:
        return ""
    settling = f"\n{_settle(settings)}" if settings.count_tokens else ""
    return f"""
# Requests, tokens, tokens that were reserved, those released again, and requests that a share was too small for.
backend {TABLE} from base
    stick-table type string len 253 size 20k expire 3m store conn_cur,gpc(5),gpc_rate(2,60s)

# Requests and tokens of a day.
backend {DAYS} from base
    stick-table type string len 262 size 40k expire 25h store gpc(2)
{settling}"""


def _settle(settings: Settings) -> str:
    """A frontend that each thread asks for itself, as it counts for itself."""
    run = settings.run_directory
    binds = "\n".join(
        f"    bind unix@{run}/{SETTLING}{number}.sock mode 600 thread {number}"
        for number in range(1, settings.threads + 1)
    )
    return f"""\
frontend settle from base
{binds}
    http-request set-var(txn.key) req.fhdr({KEY_HEADER})
{identity.name_record(settings)}\
    http-request set-var(txn.limits) var({identity.record(settings)}),map_str({run}/limits.map)
    acl limited var(txn.limits) -m found
    http-request return status 204 unless limited
{_track("limited")}
    http-request lua.settle
    http-request sc-add-gpc(1,{_SLOT}) var(txn.settled)
    http-request sc-add-gpc(1,{_SLOT + 1}) var(txn.settled) if !dayless
    http-request sc-add-gpc(3,{_SLOT}) var(txn.released)
    http-request return status 204
"""
