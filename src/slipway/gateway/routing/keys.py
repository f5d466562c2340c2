"""API keys and their rights, parsed from a Secret. The gateway stores only hashes of the keys, and never logs a key.

The rights of keys are in an annotation of the Secret. Its entries named ``jwt:SUBJECT`` are the rights of JWT subjects
(``jwt.py``).
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
"""Annotation of the Secret: a JSON object that maps names of keys and subjects to their rights."""
_MOST_BYTES = 256 << 10
JWT = "jwt:"
"""Prefix of the names of JWT subjects. Keys of a Secret cannot contain a colon."""
ANY_SUBJECT = f"{JWT}*"
"""Name of the entry with the rights of all subjects without a separate entry."""
SUBJECT = r"[A-Za-z0-9._:/@|+=~,-]{1,200}"
"""Regular expression for a subject that an HAProxy map can contain."""
_SUBJECT_NAME = re.compile(rf"{JWT}{SUBJECT}|{re.escape(ANY_SUBJECT)}")

Most = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=253)]


class Limits(NamedTuple):
    """The limits of a key or subject, in the order of ``limits.map``. None means no limit. ``requests`` and ``tokens``
    are limits per minute, and ``requests_day`` and ``tokens_day`` are limits per day."""

    requests: int | None = None
    tokens: int | None = None
    at_once: int | None = None
    """Maximum number of concurrent requests at each gateway pod. All other limits apply to all gateway pods
    together."""
    requests_day: int | None = None
    tokens_day: int | None = None

    @property
    def text(self) -> str:
        """The limits in the format of haproxy.cfg and ``limits.lua``, separated by colons. A missing limit is an empty
        field, and the whole text is empty if there are no limits."""
        return ":".join(str(limit or "") for limit in self) if any(self) else ""

    @property
    def shared(self) -> bool:
        """Whether there is a limit that all gateway pods enforce together."""
        return any(self._replace(at_once=None))


class Rights(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The rights of a key or subject. An omitted field sets no limit. If both ``models`` and ``selector`` are omitted,
    the key may use all models."""

    owner: Name = ""
    """Owner of the key, which the metric ``slipway_gateway_key_info`` shows."""
    models: tuple[Name, ...] = ()
    """IDs of the models that the key may use. ``namespace/*`` means all models of a namespace."""
    selector: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Label selector of further models that the key may use."""
    ends: dt.datetime | None = None
    """Time at which the rights expire; None if they never do."""
    requests_per_minute: Most | None = None
    tokens_per_minute: Most | None = None
    requests_at_once: Most | None = None
    requests_per_day: Most | None = None
    tokens_per_day: Most | None = None

    @property
    def restricted(self) -> bool:
        """Whether the key may use only some models."""
        return bool(self.models or self.selector.strip())

    @property
    def limits(self) -> Limits:
        """The limits that the rights set."""
        return Limits(
            self.requests_per_minute,
            self.tokens_per_minute,
            self.requests_at_once,
            self.requests_per_day,
            self.tokens_per_day,
        )


UNLIMITED = Rights()
REFUSED = Rights(models=("",))
"""Rights that allow no model: those of a subject without an entry, or whose rights have expired or cannot be read."""


def get_rights(rights: Mapping[str, Rights], name: str) -> Rights:
    """Return the rights of a key or subject. A key without an entry has all rights, a subject without an entry none. An
    empty name, which means that no key is required, has all rights."""
    return rights.get(name, REFUSED if name.startswith(JWT) else UNLIMITED)


def get_limits(limits: Mapping[str, Limits], holder: str) -> Limits | None:
    """Return the limits of a key or subject, or None if there are none. A subject that is not in ``limits`` has the
    limits of the entry for all subjects, if it exists."""
    own = limits.get(holder)
    return limits.get(ANY_SUBJECT) if own is None and holder.startswith(JWT) else own


class Keyring(NamedTuple):
    """The accepted keys, and the rights of keys and subjects."""

    hashes: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 and name of each accepted key."""
    rights: Mapping[str, Rights] = {}
    """Rights by the name of the key or subject, if it has an entry."""


def build_keyring(
    secret: Object | None, before: Keyring, now: dt.datetime, *, tokens_counted: bool
) -> tuple[Keyring, tuple[str, ...]]:
    """Return the keys in a Secret with their rights, and a message for each problem with the rights.

    A key with invalid rights keeps its rights in ``before``. It is omitted if ``before`` neither accepts it nor has
    rights for it. If the whole annotation is invalid, this applies to all keys. Expired keys are not accepted.
    ``secret`` is None if it does not exist. ``tokens_counted``: whether the gateway counts tokens, which token limits
    require.
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
    """Return the rights of JWT subjects, by name.

    A subject with invalid rights keeps its rights in ``before``. If it has none there, or its rights have expired, it
    may use no model, and does not get the rights of the entry for all subjects.
    """
    subjects = {}
    for name in {*rights, *problems, *(before.rights if "" in problems else ())}:
        if name.startswith(JWT):
            own = before.rights.get(name, REFUSED) if name in problems or "" in problems else rights[name]
            subjects[name] = REFUSED if own.ends is not None and now >= own.ends else own
    return subjects


def _parse_annotation(secret: Object | None, *, tokens_counted: bool) -> tuple[dict[str, Rights], dict[str, str]]:
    """Parse the annotation with the rights. Return the rights and the problems, both by the name of the key or subject.
    An empty name is for a problem of the whole annotation."""
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
    """Parse the rights of one key or subject. Raise ValueError, ValidationError or InvalidSelectorError if they are
    invalid."""
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
    """Return the SHA-256 and the name of each API key in a Secret. The hash is upper-case hex, as in HAProxy.

    White space around a key is removed. Empty values, and values that are not base64, are ignored. If a Secret contains
    a key twice, the first name in alphabetical order counts.
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
    """Replace the characters in a name that HAProxy's map files cannot contain with underscores."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
