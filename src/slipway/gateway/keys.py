"""API keys and their rights: a Secret in, hashes and rights out. Keys themselves are never kept, written or logged.

Rights of those who have a token in the place of a key (identity.py) stand beside them.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import Object
from slipway.serving.selector import InvalidSelectorError, parse

RIGHTS = "slipway.inference/key-rights"
"""Annotation of the Secret: a JSON object, rights by name of the key."""
_MOST = 256 << 10
JWT, SERVICE_ACCOUNT, ANYBODY = "jwt:", "serviceaccount:", "*"
"""How names of those begin who have a token in the place of a key: of an issuer, or of a service account of the
cluster; and the end of the name that means all of them. No key has such a name, as the values of a Secret cannot."""
ALL, ALL_ACCOUNTS = JWT + ANYBODY, SERVICE_ACCOUNT + ANYBODY
"""Names of the rights of all owners of tokens who are not named."""
OWNER = r"[A-Za-z0-9._:/@|+=~,-]{1,200}"
"""Such an owner's own name, as a map can hold it."""
ACCOUNT = r"[a-z0-9-]{1,63}:[a-z0-9.-]{1,170}"
"""The same of a service account: its namespace and its name, which the tables for counting can hold."""
_IDENTITY = re.compile(rf"{JWT}{OWNER}|{SERVICE_ACCOUNT}{ACCOUNT}|{re.escape(ALL)}|{re.escape(ALL_ACCOUNTS)}")

Most = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=253)]


class Limits(NamedTuple):
    """Limits of a key, in the order of limits.map and shares.map. None: there is none."""

    requests: int | None = None
    tokens: int | None = None
    at_once: int | None = None
    requests_day: int | None = None
    tokens_day: int | None = None

    @property
    def text(self) -> str:
        """As limits.lua reads them; empty without any."""
        return ":".join(str(limit or "") for limit in self) if any(self) else ""


class Rights(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a key may do. What is left out is not limited. Limits hold over all gateway pods together."""

    owner: Name = ""
    """Whom its requests are put down to, in the metric ``slipway_gateway_key_info``."""
    models: tuple[Name, ...] = ()
    """Ids of the models that it may ask; ``namespace/*`` means all of a namespace."""
    selector: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Label selector of further models that it may ask."""
    ends: dt.datetime | None = None
    """From when on it is refused."""
    requests_per_minute: Most | None = None
    tokens_per_minute: Most | None = None
    requests_at_once: Most | None = None
    requests_per_day: Most | None = None
    tokens_per_day: Most | None = None

    @property
    def restricted(self) -> bool:
        """Whether it may ask some models only."""
        return bool(self.models or self.selector.strip())

    @property
    def limits(self) -> Limits:
        """Its limits; none of them may be set."""
        return Limits(
            self.requests_per_minute,
            self.tokens_per_minute,
            self.requests_at_once,
            self.requests_per_day,
            self.tokens_per_day,
        )


class Limited(NamedTuple):
    """Who has limits."""

    named: Mapping[str, Limits]
    """By name of those who have limits of their own; what each owner of a token has whom no record names, by ALL or
    ALL_ACCOUNTS."""
    others: Collection[str] = frozenset()
    """Names of owners of tokens who have a record without limits, or are refused."""

    def of(self, name: str) -> Limits | None:
        """The limits of a key or an owner; None without any."""
        return self.named.get(self.record(name))

    def record(self, name: str) -> str:
        """The name under which they are written."""
        return name if name in self.named or name in self.others else common(name) or name

    def borrows(self, name: str) -> bool:
        """Whether it is an owner who has the limits that are written for all."""
        record = self.record(name)
        return name != record and record in self.named


UNLIMITED = Rights()
NOTHING = Rights(models=("",))


def is_identity(name: str) -> bool:
    """Whether rights of this name are those of owners of tokens, and of no key."""
    return name.startswith((JWT, SERVICE_ACCOUNT))


def common(name: str) -> str:
    """Name of the rights of all owners like this one who are not named; empty for a key."""
    return ALL if name.startswith(JWT) else ALL_ACCOUNTS if name.startswith(SERVICE_ACCOUNT) else ""


def rights_of(rights: Mapping[str, Rights], name: str) -> Rights:
    """What a key may do, or owners of tokens, by their name. A key without rights of its own may do all."""
    return rights.get(name, NOTHING if is_identity(name) else UNLIMITED)


class Keyring(NamedTuple):
    """The keys that are let in."""

    hashes: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 of each, and its name."""
    rights: Mapping[str, Rights] = {}
    """By name of the key, of those that have any; and those of owners of tokens."""
    refused: frozenset[str] = frozenset()
    """Names of owners of tokens who are not let in, though all others may be."""


def keyring(
    secret: Object | None, before: Keyring, now: dt.datetime, *, tokens_counted: bool
) -> tuple[Keyring, tuple[str, ...]]:
    """The keys of a Secret with their rights, and what is wrong with these.

    A key whose rights cannot be read has those of `before`; one that was not known there is not let in. One that has
    ended is left out. `tokens_counted`: whether tokens can be limited.
    """
    rights, problems = _rights(secret, tokens_counted=tokens_counted)
    found, let_in = {}, []
    for digest, name in hashes(secret):
        failed = name in problems or "" in problems
        own = before.rights.get(name) if failed else rights.get(name)
        if failed and own is None and name not in {known for _unused, known in before.hashes}:
            continue
        if own is not None:
            found[name] = own
        if own is None or own.ends is None or now < own.ends:
            let_in.append((digest, name))
    owners, refused = _identities(rights, problems, before, now)
    return Keyring(tuple(let_in), found | owners, refused), tuple(problems.values())


def _identities(
    rights: Mapping[str, Rights], problems: Mapping[str, str], before: Keyring, now: dt.datetime
) -> tuple[dict[str, Rights], frozenset[str]]:
    """Rights of owners of tokens, and who of them is refused: also one whose rights could not be read yet, as those of
    all others are not meant for him."""
    names = {*rights, *problems, *((*before.rights, *before.refused) if "" in problems else ())}
    found, refused = {}, set()
    for name in filter(is_identity, names):
        own = before.rights.get(name) if name in problems or "" in problems else rights.get(name)
        if own is None or (own.ends is not None and now >= own.ends):
            refused.add(name)
        else:
            found[name] = own
    return found, frozenset(refused)


def _rights(secret: Object | None, *, tokens_counted: bool) -> tuple[dict[str, Rights], dict[str, str]]:
    """Rights by key, and what cannot be read by key; the key is empty where nothing can."""
    text = (((secret or {}).get("metadata") or {}).get("annotations") or {}).get(RIGHTS)
    if text is None:
        return {}, {}
    try:
        entries = decode_json(text, dict[str, Any], most=_MOST)
    except DecodingError as error:
        return {}, {"": f"annotation {RIGHTS}: {error}"}
    rights, problems = {}, {}
    for entry, value in entries.items():
        name = entry if _IDENTITY.fullmatch(entry) else _plain(entry)
        if is_identity(entry) and not is_identity(name):
            problems[name] = f"annotation {RIGHTS}: {entry[:100]!r} is not the name of an owner"
            continue
        try:
            rights[name] = _read(value, tokens_counted=tokens_counted)
        except (msgspec.ValidationError, InvalidSelectorError, ValueError) as error:
            problems[name] = f"annotation {RIGHTS}, key {name[:100]}: {str(error)[:200]}"
    return rights, problems


def _read(value: object, *, tokens_counted: bool) -> Rights:
    """Raises ValueError."""
    rights = msgspec.convert(value, Rights)
    parse(rights.selector)
    if rights.ends is not None and rights.ends.tzinfo is None:
        raise ValueError("ends: it names no time zone, such as the Z in 2030-01-31T00:00:00Z")
    for name, limit in (("tokensPerMinute", rights.tokens_per_minute), ("tokensPerDay", rights.tokens_per_day)):
        if limit and not tokens_counted:
            raise ValueError(f"{name}: this gateway counts no tokens (countTokens)")
    return rights


def hashes(secret: Object | None) -> tuple[tuple[str, str], ...]:
    """Upper-case SHA-256 of each value, as HAProxy's ``hex`` writes it, and the name of the value in the Secret.

    Whitespace around a key is not part of it; empty values and such as are no base64 are no keys. Of equal keys the
    first name counts.
    """
    found: dict[str, str] = {}
    for name, value in sorted(((secret or {}).get("data") or {}).items()):
        key = _decoded(value)
        if key:
            found.setdefault(hashlib.sha256(key).hexdigest().upper(), _plain(name))
    return tuple(sorted(found.items()))


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value).strip() if isinstance(value, str) else b""
    except ValueError:
        return b""


def _plain(name: str) -> str:
    """The name as a map file can hold it. Kubernetes allows little else in the keys of a Secret."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
