"""Salvage: what a list or a watch still tells when the decoder refuses an object in it. Pure.

The decoder takes nested values by recursion, so one object that is nested too deep makes it refuse a whole page. Here
the text is taken apart by its brackets alone, without recursion: every other object is decoded by itself, and of the
refused one its identity is read, as far as it has one. This is slow, and never done while all is well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import Kind, Object

IDENTITY = ("namespace", "name", "uid", "resourceVersion")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{}:,]', re.DOTALL)
_NAME_BYTES = 4096


class Unreadable(NamedTuple):
    """An object that cannot be taken, and why."""

    object: Object
    """Its metadata with those of IDENTITY that could be read, and nothing else."""
    fault: str


class Salvaged(NamedTuple):
    """A list with what could be read of it."""

    metadata: Object
    items: list[Any]
    unreadable: list[Unreadable]


def salvage_list(text: bytes) -> Salvaged:
    """Decodes the items of a list one by one. Raises DecodingError where the text is not a list."""
    fields = dict(_members(text))
    metadata = decode_json(fields.get("metadata", b"{}"), dict[str, Any], most=len(text))
    found = Salvaged(metadata, [], [])
    for _unused, item in _members(fields.get("items", b"[]")):
        try:
            found.items.append(decode_json(item, most=len(text)))
        except DecodingError as error:
            found.unreadable.append(Unreadable(_identity(item), str(error)))
    return found


def salvage_event(line: bytes) -> tuple[str, Object]:
    """Type and identity of the object in an event of a watch. Raises DecodingError where the text is not an event."""
    fields = dict(_members(line))
    return decode_json(fields.get("type", b'""'), str, most=_NAME_BYTES), _identity(fields.get("object", b"{}"))


def identity(metadata: Any) -> Object:
    """An object with nothing but those of IDENTITY that are text."""
    given = metadata if isinstance(metadata, dict) else {}
    return {"metadata": {name: given[name] for name in IDENTITY if isinstance(given.get(name), str)}}


def identified(kind: Kind, obj: Object) -> Object:
    """The object, where it says what it is called and which one it is. Raises DecodingError."""
    metadata = obj.get("metadata") or {}
    if not all(isinstance(metadata.get(name, ""), str) for name in IDENTITY):
        raise DecodingError(f"one of {', '.join(IDENTITY)} is no text")
    if not metadata.get("name") or not metadata.get("uid") or (kind.namespaced and not metadata.get("namespace")):
        raise DecodingError("it has no name, no namespace or no uid")
    return obj


def _identity(item: bytes) -> Object:
    found: Object = {}
    try:
        for name, text in _members(dict(_members(item)).get("metadata", b"{}")):
            if name in IDENTITY:
                found[name] = decode_json(text, most=_NAME_BYTES)
    except DecodingError:
        pass
    return identity(found)


def _members(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Name (empty in an array) and text of each direct member of an object or array. Raises DecodingError where the
    brackets do not match."""
    depth = start = 0
    name = ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth == 1:
                start = token.end()
        elif mark in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                if value := text[start : token.start()].strip():
                    yield name, value
                return
        elif depth == 1 and mark == b":":
            name, start = _named(text[start : token.start()]), token.end()
        elif depth == 1 and mark == b",":
            yield name, text[start : token.start()]
            name, start = "", token.end()
    raise DecodingError("it ends in the middle, or is neither an object nor an array")


def _named(text: bytes) -> str:
    return decode_json(text.strip(), str, most=_NAME_BYTES)
