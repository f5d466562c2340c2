"""Comparison of an object with the fields that were sent. It ignores fields that the server and others added. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

NESTED = (dict, list)
"""Types with nested values. Values of all other types are compared directly."""


def digest(value: Any) -> bytes:
    """Return a digest that is the same for equal values, regardless of the order of their fields."""
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).digest()


def includes(live: Any, expected: Any) -> bool:
    """Whether every field of ``expected`` is in ``live`` with its value. A field with the value None may be missing.
    Lists must have the same length."""
    if isinstance(expected, Mapping):
        return isinstance(live, Mapping) and all(includes(live.get(field), value) for field, value in expected.items())
    if isinstance(expected, list | tuple):
        same = isinstance(live, list) and len(live) == len(expected)
        return same and all(includes(one, other) for one, other in zip(live, expected, strict=True))
    return bool(live == expected)


def projection(shape: Any, value: Any) -> Any:
    """Return the part of ``value`` that has the fields of ``shape``. The value of a missing field is None.

    A list whose length differs from the list in ``shape`` is returned as a whole, because its elements cannot be
    matched.
    """
    if isinstance(shape, dict) and isinstance(value, dict):
        getter = value.get
        return {
            field: projection(part, getter(field)) if isinstance(part, NESTED) else getter(field)
            for field, part in shape.items()
        }
    if isinstance(shape, list) and isinstance(value, list) and len(shape) == len(value):
        return [projection(one, other) for one, other in zip(shape, value, strict=True)]
    return value
