"""API keys and their rights: a Secret in, hashes and rights out. Keys themselves are never stored or logged.

Rights of JWT subjects (jwt.py) are entries of the same annotation, named ``jwt:SUBJECT``.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import Object
from slipway.serving.routing.selector import InvalidSelectorError, parse

RIGHTS = "slipway.inference/key-rights"
"""Annotation of the Secret: a JSON object with the rights of each key, by the key's name."""
_MOST_BYTES = 256 << 10
JWT = "jwt:"
"""Prefix of the names of JWT subjects. Keys of a Secret cannot contain a colon."""
ANY_SUBJECT = f"{JWT}*"
"""Name of the rights of all subjects without a separate entry."""
SUBJECT = r"[A-Za-z0-9._:/@|+=~,-]{1,200}"
"""Regular expression for a subject that a map can contain."""
_SUBJECT_NAME = re.compile(rf"{JWT}{SUBJECT}|{re.escape(ANY_SUBJECT)}")

Most = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=253)]


class Limits(NamedTuple):
    """Limits of a key or subject, in the order of limits.map. None: no such limit."""

    requests: int | None = None
    tokens: int | None = None
    at_once: int | None = None
    """Concurrent requests at each gateway pod. All other limits apply to all gateway pods together."""
    requests_day: int | None = None
    tokens_day: int | None = None

    @property
    def text(self) -> str:
        """Returns the limits in the format of haproxy.cfg and limits.lua; empty if there are none."""
        return ":".join(str(limit or "") for limit in self) if any(self) else ""

    @property
    def shared(self) -> bool:
        """Whether there is a limit that all gateway pods enforce together."""
        return any(self._replace(at_once=None))


class Rights(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The rights of a key or subject. Omitted fields set no limit."""

    owner: Name = ""
    """Owner of the key in the metric ``slipway_gateway_key_info``."""
    models: tuple[Name, ...] = ()
    """IDs of the models that it may use. ``namespace/*`` means all models of a namespace."""
    selector: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Label selector of further models that it may use."""
    ends: dt.datetime | None = None
    """When the rights expire. None: never."""
    requests_per_minute: Most | None = None
    tokens_per_minute: Most | None = None
    requests_at_once: Most | None = None
    requests_per_day: Most | None = None
    tokens_per_day: Most | None = None

    @property
    def restricted(self) -> bool:
        """Whether only some models may be used."""
        return bool(self.models or self.selector.strip())

    @property
    def limits(self) -> Limits:
        """Returns the limits as a tuple."""
        return Limits(
            self.requests_per_minute,
            self.tokens_per_minute,
            self.requests_at_once,
            self.requests_per_day,
            self.tokens_per_day,
        )


UNLIMITED = Rights()
REFUSED = Rights(models=("",))
"""Rights of a subject whose rights have expired or cannot be read."""


def get_rights(rights: Mapping[str, Rights], name: str) -> Rights:
    """Returns the rights of a key or subject. A key without an entry is unlimited; a subject without one is refused."""
    return rights.get(name, REFUSED if name.startswith(JWT) else UNLIMITED)


def get_limits(limits: Mapping[str, Limits], holder: str) -> Limits | None:
    """Returns the limits of a key or subject, if any. A subject without its own limits has those of all subjects."""
    own = limits.get(holder)
    return limits.get(ANY_SUBJECT) if own is None and holder.startswith(JWT) else own


class Keyring(NamedTuple):
    """The accepted keys and their rights."""

    hashes: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 and name of each key."""
    rights: Mapping[str, Rights] = {}
    """Rights by the name of the key or subject, if it has an entry."""


def build_keyring(
    secret: Object | None, before: Keyring, now: dt.datetime, *, tokens_counted: bool
) -> tuple[Keyring, tuple[str, ...]]:
    """Returns the keys of a Secret with their rights, and the problems of these.

    A key with unreadable rights has those of ``before``; a key that was not accepted there is refused. Expired keys are
    omitted. ``tokens_counted``: whether the gateway counts tokens, which token limits require.
    """
    rights, problems = _parse_annotation(secret, tokens_counted=tokens_counted)
    key_rights, accepted = {}, []
    for digest, name in hash_keys(secret):
        failed = name in problems or "" in problems
        own = before.rights.get(name) if failed else rights.get(name)
        if failed and own is None and name not in {key_name for _unused, key_name in before.hashes}:
            continue
        if own is not None:
            key_rights[name] = own
        if own is None or own.ends is None or now < own.ends:
            accepted.append((digest, name))
    return Keyring(tuple(accepted), key_rights | _subject_rights(rights, problems, before, now)), tuple(
        problems.values()
    )


def _subject_rights(
    rights: Mapping[str, Rights], problems: Mapping[str, str], before: Keyring, now: dt.datetime
) -> dict[str, Rights]:
    """Returns the rights of JWT subjects.

    A subject with expired or unreadable rights never gets those of all subjects.
    """
    subjects = {}
    for name in {*rights, *problems, *(before.rights if "" in problems else ())}:
        if name.startswith(JWT):
            own = before.rights.get(name, REFUSED) if name in problems or "" in problems else rights[name]
            subjects[name] = REFUSED if own.ends is not None and now >= own.ends else own
    return subjects


def _parse_annotation(secret: Object | None, *, tokens_counted: bool) -> tuple[dict[str, Rights], dict[str, str]]:
    """Parses the annotation. Returns rights by key, and problems by key. An empty key means the whole annotation."""
    text = (((secret or {}).get("metadata") or {}).get("annotations") or {}).get(RIGHTS)
    if text is None:
        return {}, {}
    try:
        entries = decode_json(text, dict[str, Any], most=_MOST_BYTES)
    except DecodingError as error:
        return {}, {"": f"annotation {RIGHTS}: {error}"}
    rights, problems = {}, {}
    for entry, value in entries.items():
        name = entry if _SUBJECT_NAME.fullmatch(entry) else _map_name(entry)
        try:
            rights[name] = _parse_rights(entry, value, tokens_counted=tokens_counted)
        except (msgspec.ValidationError, InvalidSelectorError, ValueError) as error:
            problems[name] = f"annotation {RIGHTS}, key {name[:100]}: {str(error)[:200]}"
    return rights, problems


def _parse_rights(name: str, value: object, *, tokens_counted: bool) -> Rights:
    """Parses the rights of one key or subject. Raises ValueError."""
    if name.startswith(JWT) and not _SUBJECT_NAME.fullmatch(name):
        raise ValueError("not a valid subject")
    rights = msgspec.convert(value, Rights)
    parse(rights.selector)
    if rights.ends is not None and rights.ends.tzinfo is None:
        raise ValueError("ends: it has no time zone, such as the Z in 2030-01-31T00:00:00Z")
    for option, limit in (("tokensPerMinute", rights.tokens_per_minute), ("tokensPerDay", rights.tokens_per_day)):
        if limit and not tokens_counted:
            raise ValueError(f"{option}: this gateway does not count tokens (countTokens)")
    return rights


def hash_keys(secret: Object | None) -> tuple[tuple[str, str], ...]:
    """Returns the upper-case SHA-256 of each value, as HAProxy's ``hex`` writes it, and the value's name in the Secret.

    Whitespace around a key is removed. Empty values, and values that are not base64, are ignored. Equal keys have the
    first name.
    """
    names: dict[str, str] = {}
    for name, value in sorted(((secret or {}).get("data") or {}).items()):
        key = _decode(value)
        if key:
            names.setdefault(hashlib.sha256(key).hexdigest().upper(), _map_name(name))
    return tuple(sorted(names.items()))


def _decode(value: object) -> bytes:
    try:
        return base64.b64decode(value).strip() if isinstance(value, str) else b""
    except ValueError:
        return b""


def _map_name(name: str) -> str:
    """Replaces characters that map files cannot contain. Kubernetes allows few of them in a Secret's keys."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
