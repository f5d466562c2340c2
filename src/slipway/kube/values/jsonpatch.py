"""JSON patches (RFC 6902) for plain values, with errors that name the operation. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from jsonpatch import JsonPatchException, apply_patch
from jsonpointer import JsonPointerException

from slipway.decoding import describe_error

MOST_BYTES = 1 << 20
"""Maximum size, in bytes, of the result of a copy operation as JSON. Without a limit, a few nested copies could fill
the memory."""


class PatchError(ValueError):
    """A patch cannot be applied. The message contains the operation and the reason in one line of limited length."""


def patched(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return a copy of ``value`` with the operations applied in order. Raise PatchError for the first operation that
    fails, or that copies and makes the result larger than MOST_BYTES."""
    result = copy.deepcopy(value)
    for number, operation in enumerate(operations):
        name = f"{operation.get('op', 'no op')} {operation.get('path', 'without path')}"
        try:
            result = apply_patch(result, [operation], in_place=True)
            size = len(msgspec.json.encode(result)) if operation.get("op") == "copy" else 0
        except (JsonPatchException, JsonPointerException) as error:
            reason = describe_error(error).partition(" in {")[0]  # some errors quote the whole document
            raise PatchError(f"operation {number} ({name}): {reason}") from error
        except RecursionError as error:
            raise PatchError(f"operation {number} ({name}): it is nested too deeply") from error
        if size > MOST_BYTES:
            raise PatchError(f"operation {number} ({name}): it would be larger than {MOST_BYTES} bytes")
    return result
