# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The meaning of an object's status: ready, settled, failed or waiting, and why. All functions are pure.

A status counts only if it describes the latest spec: ``status.observedGeneration`` must have reached
``metadata.generation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import Fact, Kind
from ansible_collections.slipway.inference.plugins.module_utils._rules import (
    MISSING,
    Rule,
    condition,
    describe,
    holds,
    value_at,
)

# A settled object matches its spec but serves no requests, such as a stopped service.
WAITING, READY, SETTLED, FAILED = "waiting", "ready", "settled", "failed"
DONE = frozenset({READY, SETTLED})
# Phases of objects whose status has no phase.
PHASES = {WAITING: "Pending", READY: "Ready", SETTLED: "Stopped", FAILED: "Failed"}


@dataclass(frozen=True)
class Verdict:
    """The meaning of a status. ``state`` is waiting, ready, settled or failed, ``reason`` is one word, and ``message``
    is for people."""

    state: str
    reason: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        return f"{self.reason}: {self.message}" if self.reason and self.message else self.reason or self.message


def judge(kind: Kind, resource: Mapping[str, Any], wait_for: Rule | None = None) -> Verdict:
    """Return the meaning of an object's status. ``wait_for`` replaces the kind's rules for ready and settled; the rule
    for failed stays in effect."""
    rule = wait_for or kind.ready
    if rule is None:
        return Verdict(READY)
    status = resource.get("status") or {}
    observed, generation = status.get("observedGeneration"), resource["metadata"].get("generation", 0)
    if not status:
        return Verdict(WAITING, "NoStatus", "No controller has reconciled it yet.")
    if observed is None or observed < generation:
        return Verdict(WAITING, "Outdated", "The controller has not reconciled the latest spec yet.")
    if holds(rule, resource):
        return Verdict(READY)
    reason, message = tell(kind, resource)
    if kind.settled and not wait_for and holds(kind.settled, resource):
        return Verdict(SETTLED, reason, message)
    if kind.failed and holds(kind.failed, resource):
        # Of several conditions that are not as they should be, it names the one that has failed. Older controllers do
        # not write it.
        stalled = condition(resource, "Stalled")
        if stalled.get("status") == "True":
            reason, message = stalled.get("reason", ""), stalled.get("message", "").strip()
        return Verdict(FAILED, reason or "Failed", message)
    if wait_for:
        return Verdict(WAITING, reason, f"{message} Waiting until {describe(wait_for)}.".strip())
    return Verdict(WAITING, reason, message)


def tell(kind: Kind, resource: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and message of the first condition that is not normal. Both are empty if all are normal."""
    for usual in kind.telling:
        actual = condition(resource, usual.type)
        if actual and not holds(usual, resource):
            return actual.get("reason", ""), actual.get("message", "").strip()
    return "", ""


def warning(resource: Mapping[str, Any]) -> str:
    """Return a warning if a ready object's short model ID leads to another model, and an empty string otherwise."""
    route = condition(resource, "Routed")
    if route.get("status") != "False" or route.get("reason") != "NameConflict":
        return ""
    return f"NameConflict: {route.get('message', '').strip()}"


def summary(kind: Kind, resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of an object for results. ``ready`` follows the kind's own rule."""
    verdict = judge(kind, resource)
    return {
        "kind": kind.kind,
        "name": resource["metadata"]["name"],
        "namespace": resource["metadata"].get("namespace", ""),
        "ready": verdict.state == READY,
        "phase": _phase(kind, resource, verdict),
        "reason": verdict.reason,
        "message": verdict.message,
        "url": _text(value_at(resource, kind.url)) if kind.url else "",
        **{fact.name: _fact(fact, resource) for fact in kind.facts},
        "conditions": (resource.get("status") or {}).get("conditions") or [],
    }


def _fact(fact: Fact, resource: Mapping[str, Any]) -> Any:
    value = value_at(resource, fact.path)
    return fact.otherwise if value is MISSING or value is None else value


def _phase(kind: Kind, resource: Mapping[str, Any], verdict: Verdict) -> str:
    if kind.phase:
        return _text(value_at(resource, kind.phase))
    return PHASES[verdict.state] if resource.get("status") else ""


def _text(value: Any) -> str:
    return "" if value is MISSING or value is None else str(value)
