# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Rules about an object's state, and whether they hold. All functions are pure.

The readiness and failure rules of the APIs consist of these rules, and so does the option ``wait_for``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

MISSING = object()


@dataclass(frozen=True)
class Condition:
    """A rule that holds if a status condition has this status and, if set, one of ``reasons`` and none of
    ``other_than``.

    With a reason in ``excused``, the rule holds for any status. If ``optional``, it also holds if the condition is
    missing.
    """

    type: str
    status: str = "True"
    reasons: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    excused: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Field:
    """A rule that holds if the field at a dotted path exists (or not), has one of these values, or matches a regular
    expression."""

    path: str
    within: tuple[Any, ...] = ()
    matches: str = ""
    exists: bool = True


@dataclass(frozen=True)
class AllOf:
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class AnyOf:
    rules: tuple[Rule, ...]


Rule: TypeAlias = "Condition | Field | AllOf | AnyOf"


def holds(rule: Rule, resource: Mapping[str, Any]) -> bool:
    """Whether a rule holds for an object as the API server returns it."""
    if isinstance(rule, AllOf):
        return all(holds(part, resource) for part in rule.rules)
    if isinstance(rule, AnyOf):
        return any(holds(part, resource) for part in rule.rules)
    if isinstance(rule, Condition):
        return _condition_holds(rule, condition(resource, rule.type))
    return _field_holds(rule, value_at(resource, rule.path))


def _condition_holds(rule: Condition, actual: Mapping[str, Any]) -> bool:
    if not actual:
        return rule.optional
    reason = actual.get("reason", "")
    return reason in rule.excused or (
        actual.get("status") == rule.status
        and (not rule.reasons or reason in rule.reasons)
        and reason not in rule.other_than
    )


def _field_holds(rule: Field, value: Any) -> bool:
    if value is MISSING:
        return not rule.exists
    if rule.within:
        return any(value == expected or _text(value) == _text(expected) for expected in rule.within)
    if rule.matches:
        return re.search(rule.matches, _text(value)) is not None
    return rule.exists


def condition(resource: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the status condition of a type. The result is empty if there is none."""
    candidate: Mapping[str, Any]
    for candidate in (resource.get("status") or {}).get("conditions") or ():
        if candidate.get("type") == kind:
            return candidate
    return {}


def value_at(resource: Any, path: str) -> Any:
    """Return the value at a dotted path, or ``MISSING`` if there is none. Numbers index lists, and ``\\.`` is a dot
    inside a key."""
    value = resource
    for part in re.split(r"(?<!\\)\.", path):
        key = part.replace("\\.", ".")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def describe(rule: Rule) -> str:
    """Return a rule as text for messages."""
    if isinstance(rule, (AllOf, AnyOf)):
        word = " and " if isinstance(rule, AllOf) else " or "
        return word.join(describe(part) for part in rule.rules)
    if isinstance(rule, Condition):
        return f"condition {rule.type} is {rule.status}" + (f" ({' or '.join(rule.reasons)})" if rule.reasons else "")
    if rule.within:
        return f"{rule.path} is {' or '.join(_text(value) for value in rule.within)}"
    if rule.matches:
        return f"{rule.path} matches {rule.matches}"
    return f"{rule.path} is {'set' if rule.exists else 'not set'}"


def read(data: Mapping[str, Any]) -> Any:
    """Return the rule that plain data describes: the fields of a Condition or a Field, or the rules of AllOf or
    AnyOf."""
    for name, kind in (("all", AllOf), ("any", AnyOf)):
        if name in data:
            return kind(tuple(read(part) for part in data[name]))
    fields = {name: tuple(value) if isinstance(value, (list, tuple)) else value for name, value in data.items()}
    return Field(**fields) if "path" in fields else Condition(**fields)


def parse(options: Iterable[Mapping[str, Any]]) -> AllOf:
    """Return the rule that the option ``wait_for`` describes: all of its entries must hold. Raise InferenceError if an
    entry is invalid."""
    return AllOf(tuple(_parse(option) for option in options))


def _parse(option: Mapping[str, Any]) -> Rule:
    if option.get("any") is not None:
        return AnyOf(tuple(_parse(part) for part in option["any"]))
    if option.get("condition"):
        return Condition(option["condition"], option.get("status") or "True", tuple(option.get("reason") or ()))
    for test in ("in", "matches"):
        # An empty variable would otherwise mean that the field only has to be there.
        if option.get(test) is not None and not option[test]:
            raise InferenceError("invalid_input", f"wait_for: {test} of the field {option['field']} is empty.")
    try:
        re.compile(option.get("matches") or "")
    except re.error as error:
        raise InferenceError("invalid_input", f"wait_for: matches is not a regular expression: {error}.") from error
    within = option.get("in") or ([] if option.get("equals") is None else [option["equals"]])
    return Field(option["field"], tuple(within), option.get("matches") or "", option.get("exists") is not False)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
