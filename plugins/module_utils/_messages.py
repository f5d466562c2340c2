# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Error messages about one or more objects. All functions are pure.

A message about one object is a sentence. A message about several has a line for each different text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._advice_data import ADVICE, CASES
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key

# Number of names, and of log lines, that a message contains.
NAMES = 10
LOG_LINES = 5
# Reasons whose cause is only in the log.
UNEXPLAINED = frozenset({"CacheLoadFailed", "CopyFailed", "CrashLoopBackOff", "InspectionFailed", "StartupTimeout"})
# Number of reasons for which a message contains advice.
ADVISED = 3


def names(labels: Sequence[str]) -> str:
    """Return ``a, b and c``. After the first ``NAMES`` labels, only the number of the others is given."""
    shown = [*labels[:NAMES], *([f"{len(labels) - NAMES} more"] if len(labels) > NAMES else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def shown(keys: Iterable[Key]) -> dict[Key, str]:
    """Return each object's label for messages, with its kind if there are several kinds."""
    keys = list(keys)
    several = len({key.kind for key in keys}) > 1
    return {key: f"{key.kind.kind} {key.label}" if several else key.label for key in keys}


def refused(
    errors: Mapping[Key, InferenceError], tried: Collection[Key], keys: Collection[Key], word: str
) -> InferenceError:
    """Return the error for objects that the server rejected. ``word`` is ``refused`` (nothing was changed), ``not
    applied`` or ``not deleted``."""
    first = next(iter(errors.values()))
    messages = {key: error.message for key, error in errors.items()}
    further = " Nothing was changed." if word == "refused" and len(keys) > 1 else ""
    unprocessed = [name for key, name in shown(keys).items() if key not in tried]
    if unprocessed:
        further = f" {names(unprocessed)} {'were' if len(unprocessed) > 1 else 'was'} not processed."
    text = _list(messages, keys, f"was {word}", f"were {word}", further)
    return InferenceError(first.code, text, first.status)


def failed(results: Mapping[Key, Mapping[str, Any]], keys: Collection[Key]) -> InferenceError:
    messages = {key: _state(result, explained=_is_explained(result)) for key, result in results.items()}
    code = "deleted" if all(result["reason"] == "Deleted" for result in results.values()) else "failed"
    text, advice = _list(messages, keys, "failed", "failed"), _advice(results)
    return InferenceError(code, text, advice=advice, further=_describe(next(iter(results))) if advice else "")


def late(
    results: Mapping[Key, Mapping[str, Any]], keys: Collection[Key], seconds: float, trouble: str, *, gone: bool
) -> InferenceError:
    messages = {key: _state(result) for key, result in results.items()}
    state = f"{'deleted' if gone else 'ready'} after {seconds:g} s"
    last = f" The last request to the API server failed: {trouble}" if trouble else ""
    unseen = any(result.get("reason") in ("NoStatus", "Outdated") for result in results.values())
    advice = () if gone or trouble else _advice(results)
    return InferenceError(
        "controller_missing" if unseen and not trouble else "timeout",
        _list(messages, keys, f"is not {state}", f"are not {state}", last),
        advice=advice,
        further=_describe(next(iter(results))) if advice else "",
    )


def _advice(results: Mapping[Key, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return advice for the first few reasons in these results."""
    messages: dict[str, str] = {}
    for result in results.values():
        messages.setdefault(str(result.get("reason") or ""), str(result.get("message") or ""))
    advice = [(reason, do) for reason, message in messages.items() if (do := advise(reason, message))][:ADVISED]
    several = len(messages) > 1
    lines = [f"What to do{f' about {reason}' if several else ''}: {do}" for reason, do in advice]
    return tuple(lines)


def advise(reason: str, message: str) -> str:
    """Return advice for a condition with this reason and message, or an empty string if there is none."""
    lower = message.lower()
    return next((do for text, do in CASES.get(reason, ()) if text in lower), ADVICE.get(reason, ""))


def _describe(key: Key) -> str:
    namespace = f" --namespace {key.namespace}" if key.namespace else ""
    return f"To see more: kubectl describe {key.kind.resource}/{key.name}{namespace}"


def _is_explained(result: Mapping[str, Any]) -> bool:
    reason = str(result.get("reason") or "")
    return reason not in UNEXPLAINED and bool(advise(reason, str(result.get("message") or "")))


def _state(result: Mapping[str, Any], *, explained: bool = False) -> str:
    """Return reason and message of a result, with details from events and log. If ``explained``, the cause is known and
    the log is omitted."""
    message = result.get("message") or ""
    text = f"{result['reason']}: {message}" if result.get("reason") and message else result.get("reason") or message
    warnings = [event for event in result.get("events") or () if event["type"] == "Warning"]
    # Only events show what blocks the deletion of an object.
    if warnings and (not message or result.get("reason") == "Deleting"):
        text = f"{text} {warnings[-1]['reason']}: {warnings[-1]['message']}".strip()
    log = [line for line in result.get("log") or () if line.strip()][-LOG_LINES:]
    # A message of several lines already contains the relevant log lines.
    if log and not explained and "\n" not in message:
        text = "\n".join([f"{text} Last log lines:".strip(), *log])
    return text or "It reports no reason."


def _list(messages: Mapping[Key, str], keys: Collection[Key], one: str, several: str, further: str = "") -> str:
    """Return a message with the text of each object in ``messages``. ``keys`` are all objects of the task."""
    if len(keys) == 1:
        [(key, text)] = messages.items()
        return f"{key.kind.kind} {key.label} {one}.{further} {text}"
    labels = shown(keys)
    same: dict[str, list[str]] = {}
    for key, text in messages.items():
        same.setdefault(text, []).append(labels[key])
    kinds = {key.kind.kind for key in keys}
    noun = f"{kinds.pop()}s" if len(kinds) == 1 else "resources"
    verb = one if len(messages) == 1 else several
    lines = [textwrap.indent(f"{names(group)}: {text}", "  ").lstrip() for text, group in same.items()]
    return "\n".join([f"{len(messages)} of {len(keys)} {noun} {verb}.{further}", *(f"- {line}" for line in lines)])
