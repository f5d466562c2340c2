"""JSON patches (RFC 6902) over plain values. Pure: the value that is patched stays as it was."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any


class PatchError(ValueError):
    """A patch that cannot be applied; the message says which operation, and why."""


def patched(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """A copy of ``value`` with the operations applied one after another. Raises PatchError for the first that fails."""
    result = copy.deepcopy(value)
    for number, operation in enumerate(operations):
        try:
            result = _applied(result, operation)
        except PatchError as error:
            told = f"{operation.get('op', 'no op')} {operation.get('path', 'without path')}"
            raise PatchError(f"operation {number} ({told}): {error}") from error
    return result


def _applied(value: Any, operation: Mapping[str, Any]) -> Any:
    name, path = operation.get("op"), _tokens(operation, "path")
    if name == "remove":
        return _removed(value, path)
    if name in ("add", "replace", "test"):
        if "value" not in operation:
            raise PatchError("has no value")
        wanted = copy.deepcopy(operation["value"])
        if name == "add":
            return _added(value, path, wanted)
        found = _found(value, path)
        if name == "replace":
            return _added(_removed(value, path), path, wanted) if path else wanted
        if not _same(found, wanted):
            raise PatchError(f"is {found!r} there, not {wanted!r}")
        return value
    if name in ("move", "copy"):
        source = _tokens(operation, "from")
        moved = copy.deepcopy(_found(value, source))
        if name == "move" and path[: len(source)] == source and path != source:
            raise PatchError("would move a value into itself")
        return _added(_removed(value, source) if name == "move" else value, path, moved)
    raise PatchError("op has to be add, remove, replace, move, copy or test")


def _tokens(operation: Mapping[str, Any], field: str) -> list[str]:
    pointer = operation.get(field)
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise PatchError(f"{field} has to be a JSON pointer such as /spec/containers/0")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _found(value: Any, path: Sequence[str]) -> Any:
    for token in path:
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list):
            value = value[_index(token, len(value) - 1)]
        else:
            raise PatchError(f"there is no {token!r}")
    return value


def _added(value: Any, path: Sequence[str], wanted: Any) -> Any:
    if not path:
        return wanted
    holder, last = _found(value, path[:-1]), path[-1]
    if isinstance(holder, list):
        holder.insert(len(holder) if last == "-" else _index(last, len(holder)), wanted)
    elif isinstance(holder, dict):
        holder[last] = wanted
    else:
        raise PatchError(f"{last!r} cannot be below a plain value")
    return value


def _removed(value: Any, path: Sequence[str]) -> Any:
    if not path:
        raise PatchError("the whole cannot be removed")
    holder, last = _found(value, path[:-1]), path[-1]
    _found(holder, [last])
    del holder[_index(last, len(holder) - 1) if isinstance(holder, list) else last]
    return value


def _index(text: str, highest: int) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,8}", text) or int(text) > highest:
        raise PatchError(f"there is no item {text!r} in the list")
    return int(text)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)
