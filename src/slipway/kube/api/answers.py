"""Parsers for the API server's responses to lists and watches. Pure.

The objects in a response are untrusted. An object that cannot be decoded is reported with its identity and the error,
and affects no other object. A response that cannot be parsed raises ServerError, which names the kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slipway.decoding import DecodingError, decode_json
from slipway.kube.api.errors import ServerError, error_from_status
from slipway.kube.api.salvage import Salvaged, Unreadable, identity, salvage_event, salvage_list
from slipway.kube.objects import Kind, Object

OBJECT_BYTES = 10 << 20
"""Size of the largest possible object. etcd accepts 1.5 MiB, which can grow to 9 MiB in JSON, because JSON escapes
``<`` as six bytes."""


class Page(NamedTuple):
    """One page of a list, and the collection's resource version, which is the same for all pages."""

    items: list[Object]
    resource_version: str
    unreadable: tuple[Unreadable, ...] = ()
    """Objects of the page that cannot be decoded and are therefore not in ``items``."""


class WatchEvent(NamedTuple):
    """An event of a watch. ``type`` is ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``."""

    type: str
    object: Object
    fault: str = ""
    """Why the object cannot be decoded. In this case, ``object`` contains only its identity. The value is empty if it
    was decoded."""


class Lines:
    """A splitter of a byte stream into lines of at most about ``most`` bytes. Its cost does not depend on the number of
    chunks in which a line arrives."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rest = bytearray()
        """The data after the last complete line."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without empty ones. Raise ServerError if the incomplete line at
        the end of the data is longer than the limit."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            self.rest += ended[0]
            ended[0], self.rest = bytes(self.rest), bytearray()
        self.rest += rest
        if len(self.rest) > self._most:
            raise ServerError(f"a line of the watch is longer than {self._most} bytes")
        return [line for line in ended if line.strip()]


def read_page(kind: Kind, body: bytes | bytearray) -> tuple[Page, str]:
    """Return a page and the continue token of the next page (empty for the last page). Raise ServerError for an invalid
    list."""
    try:
        metadata, items, unreadable = _list(body)
    except DecodingError as error:
        raise ServerError(f"listing {kind.kind}: the answer is not JSON: {error}") from error
    if not isinstance(metadata, dict) or not isinstance(items, list):
        raise ServerError(f"listing {kind.kind}: the answer is not a list")
    objects, odd = [], list(unreadable)
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
            odd.append(Unreadable(identity(None), "it is not an object with metadata"))
        else:  # list items carry neither apiVersion nor kind
            item["apiVersion"], item["kind"] = kind.api_version, kind.kind
            objects.append(item)
    token = metadata.get("continue")
    page = Page(objects, str(metadata.get("resourceVersion", "")), tuple(odd))
    return page, token if isinstance(token, str) else ""


def _list(body: bytes | bytearray) -> Salvaged:
    """Decode a list, object by object if necessary. Raise DecodingError if the list is invalid."""
    try:
        answer = decode_json(body, most=OBJECT_BYTES)
    except DecodingError:
        return salvage_list(bytes(body))
    if not isinstance(answer, dict):
        raise DecodingError("it is not an object")
    return Salvaged(answer.get("metadata") or {}, answer.get("items") or [], [])


def read_event(kind: Kind, line: bytes) -> WatchEvent:
    """Decode a line of a watch. Raise the error that an ERROR event contains, and ServerError for a line that is not an
    event."""
    try:
        type_, obj, fault = _parse_event(line)
    except DecodingError as error:
        raise ServerError(f"watching {kind.kind}: a line is not an event: {error}") from error
    if type_ == "ERROR":
        raise error_from_status(obj)
    if type_ not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise ServerError(f"watching {kind.kind}: unknown event type {str(type_)[:64]!r}")
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return WatchEvent(type_, identity(None), "it is not an object with metadata")
    return WatchEvent(type_, obj, fault)


def _parse_event(line: bytes) -> tuple[Any, Any, str]:
    """Return type, object and fault of an event. Raise DecodingError for a line that is not an event."""
    try:
        event = decode_json(line, most=OBJECT_BYTES)
    except DecodingError as error:
        return *salvage_event(line), str(error)
    if not isinstance(event, dict) or not {"type", "object"} <= event.keys():
        raise DecodingError("it has no type or no object")
    return event["type"], event["object"], ""
