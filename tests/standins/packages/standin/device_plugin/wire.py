"""As much of Protocol Buffers as the kubelet's device plugin API takes: texts, numbers, messages, lists and maps.

A message is a dictionary, its shape a table of fields. No generated code, and nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Message = dict[str, Any]
Shape = Mapping[str, "Field"]


class Field(NamedTuple):
    """``shape``: of a message; without one, the kind is that of ``plain``."""

    number: int
    plain: type = str
    shape: Shape | None = None
    repeated: bool = False
    is_map: bool = False


def encode(message: Mapping[str, Any], shape: Shape) -> bytes:
    """Fields that a message does not have, and those with the default of their kind, are left out."""
    return b"".join(
        _field(field, item)
        for name, field in shape.items()
        for item in _items(field, message.get(name))
        if field.repeated or field.is_map or item not in (None, "", 0, False)
    )


def decode(data: bytes, shape: Shape) -> Message:
    """Every field of the shape, with its default where the data has none. Unknown fields are passed over."""
    message: Message = {name: _default(field) for name, field in shape.items()}
    names = {field.number: name for name, field in shape.items()}
    for number, raw in _fields(data):
        if number not in names:
            continue
        field = shape[names[number]]
        value = _value(field, raw)
        if field.is_map:
            message[names[number]].update([value])
        elif field.repeated:
            message[names[number]].append(value)
        else:
            message[names[number]] = value
    return message


ENTRY: Shape = {"key": Field(1), "value": Field(2)}


def _items(field: Field, value: Any) -> Iterator[Any]:
    if field.is_map:
        yield from ({"key": key, "value": item} for key, item in (value or {}).items())
    elif field.repeated:
        yield from value or []
    else:
        yield value


def _field(field: Field, value: Any) -> bytes:
    if field.plain in (int, bool) and field.shape is None and not field.is_map:
        return _varint(field.number << 3 | VARINT) + _varint(int(value))
    shape = ENTRY if field.is_map else field.shape
    data = value.encode() if shape is None else encode(value, shape)
    return _varint(field.number << 3 | BYTES) + _varint(len(data)) + data


def _value(field: Field, raw: bytes | int) -> Any:
    if isinstance(raw, int):
        return field.plain(raw)
    if field.is_map:
        entry = decode(raw, ENTRY)
        return entry["key"], entry["value"]
    return raw.decode() if field.shape is None else decode(raw, field.shape)


def _default(field: Field) -> Any:
    if field.is_map:
        return {}
    if field.repeated:
        return []
    return None if field.shape is not None else field.plain()


def _varint(number: int) -> bytes:
    taken = bytearray()
    while number > 0x7F:
        taken.append(number & 0x7F | 0x80)
        number >>= 7
    taken.append(number)
    return bytes(taken)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """The number, and where what follows it begins."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = _read_varint(data, place)
            yield number, value
        elif kind == BYTES:
            length, place = _read_varint(data, place)
            yield number, data[place : place + length]
            place += length
        elif kind in (FIXED32, FIXED64):
            place += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field of the kind {kind}, which no message of the kubelet has")
