"""Rules for what the status of a resource means to clients that wait for it. Pure.

An API declares its rules as data. The controller derives the conditions that clients expect of any resource: ``Ready``,
and ``Reconciling`` and ``Stalled`` as defined by kstatus (sigs.k8s.io/cli-utils). The Ansible modules wait by the same
rules, which ``slipway apis`` generates for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Object
from slipway.kube.schemas import conditions
from slipway.kube.schemas.conditions import READY, RECONCILING, STALLED

ROUTED = "Routed"
"""Type of the condition of resources whose requests go through the gateway."""
NAME_CONFLICT = "NameConflict"
"""Reason of the condition ``Routed`` if another resource already uses one of the short model IDs, or the resource may
not have the ID."""
CHANGE_FAILED = "ChangeFailed"
"""Reason of Ready while an earlier spec is served because the latest spec failed."""
EARLIER_ANSWERS = "The latest change failed, and the previous spec is still served. See the condition Stalled."
SUMMARY_SOURCES = ("Suspended", "Available")
"""Types of the conditions whose message explains why a resource is ready, the most relevant first."""


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that holds if a condition has this status and, if set, one of ``reasons`` and none of ``other_than``."""

    type: str
    status: str = "True"
    reasons: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    excused: tuple[str, ...] = ()
    """Reasons for which the rule holds with any status."""
    optional: bool = False
    """Whether the rule holds if the condition is missing."""


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that holds if the field at the dotted ``path``, such as ``status.phase``, has one of the values in
    ``within``."""

    path: str
    within: tuple[str, ...]


class AllOf(msgspec.Struct, frozen=True):
    """A rule that holds if all of its parts hold."""

    all: tuple[Rule, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """A rule that holds if at least one of its parts holds."""

    any: tuple[Rule, ...]


Rule = Condition | Field | AllOf | AnyOf


COMPLETE = Condition("Progressing", "False", reasons=("Complete",))
"""A rule that holds if the latest spec is rolled out, according to the conditions of
:mod:`slipway.serving.status.report`."""
REACHED = Condition(ROUTED, excused=("NameConflict", "NotRouted", "NoService"), optional=True)
"""A rule that holds if the gateway routes a model ID to the resource, even if it is not the requested ID. It also holds
if the resource does not use the gateway or has no Service yet."""
RETRYING = "Retrying"
"""Reason of the condition ``Accepted`` while the controller retries a request that the API server rejected."""
IN_PLACE = Condition("Accepted", excused=(RETRYING,))
"""A rule that holds if the resource's objects are applied, or existing objects stay while the controller retries."""
ANSWERING = AllOf((IN_PLACE, Condition("Available", excused=("ScaledToZero",)), REACHED))
"""A rule that holds if the resource serves requests, even if replicas are still starting. A request wakes a resource
that is scaled to zero."""

ROLLED_OUT = AllOf((Field("status.phase", ("Ready",)), Condition("Accepted"), COMPLETE, REACHED))
"""A rule that holds if the latest spec is rolled out and serves requests. It is for kinds whose status has a phase and
a report's conditions."""
UNREACHED = Condition(ROUTED, "False", reasons=("NoId",))
"""A rule that holds if the resource has no model ID, because other resources use all of its IDs."""
FAILED = AnyOf(
    (
        UNREACHED,
        Field("status.phase", ("Failed",)),
        Condition("Progressing", "False", other_than=("Complete",)),
        Condition("Accepted", "False"),
    )
)
"""A rule that holds if the latest spec cannot be rolled out, and waiting does not help. It is for the same kinds as
:data:`ROLLED_OUT`."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules that define what the status of a kind means."""

    ready: Rule
    """The rule that holds if the resource matches its latest spec and is in use."""
    answering: Rule | None = None
    """The rule that holds if the resource is in use, even if the latest spec is not rolled out. None means the same
    rule as ``ready``."""
    failed: Rule
    """The rule that holds if the resource will not become ready without a change."""
    settled: Rule | None = None
    """The rule that holds if the resource matches its spec, but has nothing to serve and nothing to wait for. None
    means never."""
    refused: Rule | None = None
    """The rule that holds if the spec is invalid, regardless of the state of its dependencies. None means never."""
    telling: tuple[Condition, ...] = ()
    """The conditions that explain why a resource is not ready, the most relevant first, each with its normal status."""


def holds(rule: Rule, status: Object) -> bool:
    """Whether a rule holds for a resource's raw status."""
    return _holds(rule, _parse_status(status))


class _Status(NamedTuple):
    """A resource's status, and its conditions by type."""

    fields: Object
    """An object whose only field is the status, so that paths begin with ``status``."""
    conditions: Mapping[str, Object]


def _parse_status(status: Object) -> _Status:
    return _Status({"status": status}, {condition["type"]: condition for condition in status.get("conditions") or ()})


def _holds(rule: Rule, status: _Status) -> bool:
    if isinstance(rule, Condition):
        return _is(rule, status.conditions.get(rule.type))
    if isinstance(rule, Field):
        return _value(status.fields, rule.path) in rule.within
    if isinstance(rule, AllOf):
        return all(_holds(part, status) for part in rule.all)
    return any(_holds(part, status) for part in rule.any)


def _is(rule: Condition, condition: Object | None) -> bool:
    """Whether a condition matches a rule. None means that the condition is missing."""
    if condition is None:
        return rule.optional
    reason = condition.get("reason", "")
    matches = condition["status"] == rule.status and reason not in rule.other_than
    return reason in rule.excused or (matches and (not rule.reasons or reason in rule.reasons))


def summarize(
    raw_status: Object, readiness: Readiness, generation: int, *, newest_answers: bool = True
) -> tuple[conditions.Condition, ...]:
    """Derive Ready, Reconciling and Stalled, in this order, from the other conditions and fields of ``raw_status``.

    Ready means that the resource is in use, or need not be. Reconciling means that it does not match its latest spec
    yet. Stalled means that it will not match without a change; Stalled and Reconciling are never both true.
    ``generation`` is that of the spec that the status describes. ``newest_answers`` is whether only replicas of that
    spec serve requests.
    """
    status = _parse_status(raw_status)
    refused = readiness.refused is not None and _holds(readiness.refused, status)
    settled = readiness.settled is not None and _holds(readiness.settled, status)
    current = not refused and (settled or _holds(readiness.ready, status))
    stalled = not current and (refused or _holds(readiness.failed, status))
    ready = current or (readiness.answering is not None and _holds(readiness.answering, status))
    reason, message = ("", "") if current else _explain(status, readiness, stalled=stalled)
    in_use = reason, message
    if ready and not stalled:
        in_use = _in_use(status)
    elif ready and not newest_answers:
        in_use = CHANGE_FAILED, EARLIER_ANSWERS
    summary = (
        (READY, "True" if ready else "False", *in_use),
        _reconciling(reason, message, current=current, stalled=stalled),
        (STALLED, "True", reason, message) if stalled else (STALLED, "False", "AsExpected", "Nothing is wrong."),
    )
    return tuple(conditions.Condition(*one, observed_generation=generation) for one in summary)


def _reconciling(reason: str, message: str, *, current: bool, stalled: bool) -> tuple[str, str, str, str]:
    if current:
        return RECONCILING, "False", "Complete", "The latest spec is rolled out."
    if stalled:
        return RECONCILING, "False", reason, "See the condition Stalled."
    return RECONCILING, "True", reason, message


def _explain(status: _Status, readiness: Readiness, *, stalled: bool) -> tuple[str, str]:
    """Return the reason and message of the most relevant condition that is not normal. If the resource is stalled, a
    condition that caused the failure comes first. If all conditions are normal, the reason is ``NotReady``."""
    pairs = [(usual, status.conditions.get(usual.type)) for usual in readiness.telling]
    abnormal = [condition for usual, condition in pairs if condition and not _is(usual, condition)]
    fatal = {condition["reason"] for condition in _failures(readiness.failed, status)} if stalled else set()
    condition = next((one for one in abnormal if one["reason"] in fatal), next(iter(abnormal), None))
    return (condition["reason"], condition.get("message", "")) if condition else ("NotReady", "It is not ready yet.")


def _failures(rule: Rule, status: _Status) -> Iterator[Object]:
    """Yield the conditions that make a rule hold. Yield nothing if it does not hold."""
    if not _holds(rule, status):
        return
    if isinstance(rule, AllOf | AnyOf):
        for part in rule.all if isinstance(rule, AllOf) else rule.any:
            yield from _failures(part, status)
    elif isinstance(rule, Condition):
        condition = status.conditions.get(rule.type)
        if condition:
            yield condition


def _in_use(status: _Status) -> tuple[str, str]:
    """Return the reason and message of Ready while the resource serves requests and nothing has failed."""
    route = status.conditions.get(ROUTED) or {}
    if route.get("status") == "False" and route.get("reason") == NAME_CONFLICT:
        return NAME_CONFLICT, str(route.get("message", ""))
    return "Ready", _good(status)


def _good(status: _Status) -> str:
    candidates = (status.conditions.get(type_) for type_ in SUMMARY_SOURCES)
    return next((condition.get("message", "") for condition in candidates if condition), "It is ready.")


def _value(value: object, path: str) -> object:
    """Return the value at a dotted path, or None if the path does not exist."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
