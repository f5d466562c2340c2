"""Answers: parses the API server's responses to lists and watches. Pure.

The objects in them are untrusted. One that cannot be decoded is reported with its identity and the error, and affects
no other object. A response that cannot be parsed raises ServerError, which names the kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slipway.decoding import DecodingError, decode_json
from slipway.kube.api.errors import ServerError, error_from_status
from slipway.kube.api.salvage import Salvaged, Unreadable, identity, salvage_event, salvage_list
from slipway.kube.objects import Kind, Object

OBJECT_BYTES = 10 << 20
"""The largest possible object: the 1.5 MiB that etcd accepts can grow to nine in JSON, which escapes ``<`` as six
bytes."""


class Page(NamedTuple):
    """One page of a list, and the collection's version, which is the same for all pages."""

    items: list[Object]
    resource_version: str
    unreadable: tuple[Unreadable, ...] = ()
    """Objects of the page that cannot be decoded and are therefore not in ``items``."""


class WatchEvent(NamedTuple):
    """``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object."""

    type: str
    object: Object
    fault: str = ""
    """Why the object cannot be decoded. In this case ``object`` holds only its identity."""


class Lines:
    """Splits a stream into lines. The cost does not depend on how many pieces a line arrives in."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rest = bytearray()
        """The data after the last complete line."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines completed by ``chunk``, without empty ones. Raises ServerError if a line gets too long."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            self.rest += ended[0]
            ended[0], self.rest = bytes(self.rest), bytearray()
        self.rest += rest
        if len(self.rest) > self._most:
            raise ServerError(f"a line of the watch is longer than {self._most} bytes")
        return [line for line in ended if line.strip()]


def read_page(kind: Kind, body: bytes | bytearray) -> tuple[Page, str]:
    """Returns a page and the continue token of the next one (empty for the last page). Raises ServerError for an
    invalid list."""
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
    """Decodes a list. Raises DecodingError if it is invalid."""
    try:
        answer = decode_json(body, most=OBJECT_BYTES)
    except DecodingError:
        return salvage_list(bytes(body))
    if not isinstance(answer, dict):
        raise DecodingError("it is not an object")
    return Salvaged(answer.get("metadata") or {}, answer.get("items") or [], [])


def read_event(kind: Kind, line: bytes) -> WatchEvent:
    """Decodes a line of a watch. Raises an error for ERROR events and unknown event types."""
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
    """Returns type, object and fault of an event. Raises DecodingError for a line that is not an event."""
    try:
        event = decode_json(line, most=OBJECT_BYTES)
    except DecodingError as error:
        return *salvage_event(line), str(error)
    if not isinstance(event, dict) or not {"type", "object"} <= event.keys():
        raise DecodingError("it has no type or no object")
    return event["type"], event["object"], ""
