# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Error texts about several objects. Pure. One object: a sentence; several: a line each, the same text told once."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key, label

# How many names, and how many lines of a log, a message shows.
NAMES = 10
LOG_LINES = 5


def names(labels: Sequence[str]) -> str:
    """``a, b and c``, and from the eleventh on only how many."""
    shown = [*labels[:NAMES], *([f"{len(labels) - NAMES} more"] if len(labels) > NAMES else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def refused(kind: Kind, errors: Mapping[Key, InferenceError], total: int, word: str) -> InferenceError:
    """``word``: what happened to them: refused (so nothing was changed), not applied, not deleted."""
    first = next(iter(errors.values()))
    told = [(label(key), error.message) for key, error in errors.items()]
    nothing = " Nothing was changed." if word == "refused" and total > 1 else ""
    text = _list(kind, told, total, f"was {word}", f"were {word}", nothing)
    return InferenceError(first.code, text, first.status)


def failed(kind: Kind, results: Sequence[Mapping[str, Any]], total: int) -> InferenceError:
    told = [(_label(result), _state(result)) for result in results]
    code = "deleted" if all(result["reason"] == "Deleted" for result in results) else "failed"
    return InferenceError(code, _list(kind, told, total, "failed", "failed"))


def late(
    kind: Kind, results: Sequence[Mapping[str, Any]], total: int, seconds: float, trouble: str, *, gone: bool
) -> InferenceError:
    told = [(_label(result), _state(result)) for result in results]
    state = f"{'gone' if gone else 'ready'} after {seconds:g} s"
    last = f" At the end the API server could not be asked: {trouble}" if trouble else ""
    unseen = any(result.get("reason") in ("NoStatus", "Outdated") for result in results)
    return InferenceError(
        "controller_missing" if unseen and not trouble else "timeout",
        _list(kind, told, total, f"is not {state}", f"are not {state}", last),
    )


def _label(result: Mapping[str, Any]) -> str:
    return label((result["namespace"], result["name"]))


def _state(result: Mapping[str, Any]) -> str:
    """Reason and message, and what events and log add to them."""
    message = result.get("message") or ""
    text = f"{result['reason']}: {message}" if result.get("reason") and message else result.get("reason") or message
    warnings = [event for event in result.get("events") or () if event["type"] == "Warning"]
    # What keeps an object from going is known to its pods only.
    if warnings and (not message or result.get("reason") == "Deleting"):
        text = f"{text} {warnings[-1]['reason']}: {warnings[-1]['message']}".strip()
    log = [line for line in result.get("log") or () if line.strip()][-LOG_LINES:]
    # A message of several lines brings those lines of the log that matter.
    if log and "\n" not in message:
        text = "\n".join([f"{text} Last log lines:".strip(), *log])
    return text or "It says no reason."


def _list(kind: Kind, told: Sequence[tuple[str, str]], total: int, one: str, several: str, further: str = "") -> str:
    if total == 1:
        return f"{kind.kind} {told[0][0]} {one}.{further} {told[0][1]}"
    same: dict[str, list[str]] = {}
    for name, text in told:
        same.setdefault(text, []).append(name)
    verb = one if len(told) == 1 else several
    lines = [textwrap.indent(f"{names(labels)}: {text}", "  ").lstrip() for text, labels in same.items()]
    return "\n".join([f"{len(told)} of {total} {kind.kind}s {verb}.{further}", *(f"- {line}" for line in lines)])
