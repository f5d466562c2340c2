"""A slow parser for a list or a watch event in which the decoder rejects an object. Pure.

The decoder is recursive, so one object that is nested too deeply makes it reject a whole page. This module splits the
text by its brackets, without recursion. It decodes every other object separately, and reads the identity of the
rejected object if possible. It is only used after a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from slipway.decoding import DecodingError, decode_json, describe_error
from slipway.kube.objects import Kind, Object

IDENTITY = ("namespace", "name", "uid", "resourceVersion")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{}:,]', re.DOTALL)
_NAME_BYTES = 4096


class Unreadable(NamedTuple):
    """An object that cannot be processed, and the reason."""

    object: Object
    """An object with the readable IDENTITY fields of the metadata, and nothing else."""
    fault: str


class Salvaged(NamedTuple):
    """The objects of a list that could be decoded, and the identities of the others."""

    metadata: Object
    items: list[Any]
    unreadable: list[Unreadable]


def salvage_list(text: bytes) -> Salvaged:
    """Decode the items of a list one by one. Raise DecodingError if the text is not a list."""
    fields = dict(_members(text))
    metadata = decode_json(fields.get("metadata", b"{}"), dict[str, Any], most=len(text))
    salvaged = Salvaged(metadata, [], [])
    for _unused, item in _members(fields.get("items", b"[]")):
        try:
            salvaged.items.append(decode_json(item, most=len(text)))
        except DecodingError as error:
            salvaged.unreadable.append(Unreadable(_identity(item), str(error)))
    return salvaged


def salvage_event(line: bytes) -> tuple[str, Object]:
    """Return the type of a watch event and the identity of its object. Raise DecodingError if the text is not an
    event."""
    fields = dict(_members(line))
    return decode_json(fields.get("type", b'""'), str, most=_NAME_BYTES), _identity(fields.get("object", b"{}"))


def identity(metadata: Any) -> Object:
    """Return an object with only the IDENTITY fields of ``metadata`` that are strings."""
    fields = metadata if isinstance(metadata, dict) else {}
    return {"metadata": {name: fields[name] for name in IDENTITY if isinstance(fields.get(name), str)}}


class _Metadata(msgspec.Struct, rename="camel"):
    """The metadata fields that all code relies on."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    uid: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def check(kind: Kind, obj: Object) -> None:
    """Raise DecodingError for an object without name or UID, a namespaced object without namespace, or labels or
    annotations that are not strings."""
    try:
        metadata = msgspec.convert(obj.get("metadata"), _Metadata)
    except ValueError as error:
        raise DecodingError(f"its metadata: {describe_error(error)}") from error
    if kind.namespaced and not metadata.namespace:
        raise DecodingError("its metadata has no namespace")


def _identity(item: bytes) -> Object:
    fields: Object = {}
    try:
        for name, text in _members(dict(_members(item)).get("metadata", b"{}")):
            if name in IDENTITY:
                fields[name] = decode_json(text, most=_NAME_BYTES)
    except DecodingError:
        pass
    return identity(fields)


def _members(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name (empty in an array) and text of each direct member of an object or array. Raise DecodingError if
    the brackets do not match."""
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
            name, start = _decode_name(text[start : token.start()]), token.end()
        elif depth == 1 and mark == b",":
            yield name, text[start : token.start()]
            name, start = "", token.end()
    raise DecodingError("it is truncated, or is neither an object nor an array")


def _decode_name(text: bytes) -> str:
    return decode_json(text.strip(), str, most=_NAME_BYTES)
