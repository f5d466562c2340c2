# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Error texts about several objects. Pure. One object: a sentence; several: a line each, the same text told once."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._advice_data import ADVICE, CASES
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key

# How many names, and how many lines of a log, a message shows.
NAMES = 10
LOG_LINES = 5
# Reasons that leave the cause to the log.
UNEXPLAINED = frozenset({"CacheLoadFailed", "CopyFailed", "CrashLoopBackOff", "InspectionFailed", "StartupTimeout"})
# Of how many reasons it says what to do.
ADVISED = 3


def names(labels: Sequence[str]) -> str:
    """``a, b and c``, and from the eleventh on only how many."""
    shown = [*labels[:NAMES], *([f"{len(labels) - NAMES} more"] if len(labels) > NAMES else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def shown(keys: Iterable[Key]) -> dict[Key, str]:
    """Each object's label, with its kind where there are several."""
    keys = list(keys)
    several = len({key.kind for key in keys}) > 1
    return {key: f"{key.kind.kind} {key.label}" if several else key.label for key in keys}


def refused(
    errors: Mapping[Key, InferenceError], tried: Collection[Key], keys: Collection[Key], word: str
) -> InferenceError:
    """``word``: what happened to them: refused (so nothing was changed), not applied, not deleted."""
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
    """What to do about the first reasons of these."""
    messages: dict[str, str] = {}
    for result in results.values():
        messages.setdefault(str(result.get("reason") or ""), str(result.get("message") or ""))
    advice = [(reason, do) for reason, message in messages.items() if (do := advise(reason, message))][:ADVISED]
    several = len(messages) > 1
    lines = [f"What to do{f' about {reason}' if several else ''}: {do}" for reason, do in advice]
    return tuple(lines)


def advise(reason: str, message: str) -> str:
    """What to do about a condition of this reason; empty if nothing is known, or to be done."""
    lower = message.lower()
    return next((do for text, do in CASES.get(reason, ()) if text in lower), ADVICE.get(reason, ""))


def _describe(key: Key) -> str:
    namespace = f" --namespace {key.namespace}" if key.namespace else ""
    return f"To see more: kubectl describe {key.kind.resource}/{key.name}{namespace}"


def _is_explained(result: Mapping[str, Any]) -> bool:
    reason = str(result.get("reason") or "")
    return reason not in UNEXPLAINED and bool(advise(reason, str(result.get("message") or "")))


def _state(result: Mapping[str, Any], *, explained: bool = False) -> str:
    """Reason and message, and what events and log add to them. ``explained``: whether the cause is known, so that the
    log adds nothing."""
    message = result.get("message") or ""
    text = f"{result['reason']}: {message}" if result.get("reason") and message else result.get("reason") or message
    warnings = [event for event in result.get("events") or () if event["type"] == "Warning"]
    # What keeps an object from going is known to its pods only.
    if warnings and (not message or result.get("reason") == "Deleting"):
        text = f"{text} {warnings[-1]['reason']}: {warnings[-1]['message']}".strip()
    log = [line for line in result.get("log") or () if line.strip()][-LOG_LINES:]
    # A message of several lines brings those lines of the log that matter.
    if log and not explained and "\n" not in message:
        text = "\n".join([f"{text} Last log lines:".strip(), *log])
    return text or "It reports no reason."


def _list(messages: Mapping[Key, str], keys: Collection[Key], one: str, several: str, further: str = "") -> str:
    """``messages``: what is to be said of some of the ``keys``."""
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
