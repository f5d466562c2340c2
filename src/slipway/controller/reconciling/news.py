"""Selection of the conditions of a new status that cause an Event. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import Condition
from slipway.serving.contract.readiness import RETRYING
from slipway.serving.status.report import SETTLED


def select_events(
    before: Sequence[Object], after: Sequence[Condition], passed_through: frozenset[str]
) -> Iterator[tuple[str, Condition]]:
    """Yield the type of each Event, ``Normal`` or ``Warning``, and its condition. There is one Event for each new
    reason.

    Reasons in ``passed_through``, a rejection that is retried, a missing Service of a rejected resource, a condition
    that was never wrong, and the end of a rollout without replicas cause no Event.
    """
    reasons = {condition["type"]: condition.get("reason") for condition in before}
    refused = any(condition.type == "Accepted" and condition.status == "False" for condition in after)
    asleep = any(condition.reason == "ScaledToZero" for condition in after)
    silent = {RETRYING, *passed_through, *(["NoService"] if refused else []), *(["Complete"] if asleep else [])}
    for condition in after:
        good = condition.status == "True" or condition.reason in SETTLED
        never_wrong = good and reasons.get(condition.type, RETRYING) == RETRYING
        if condition.reason != reasons.get(condition.type) and condition.reason not in silent and not never_wrong:
            silent.add(condition.reason)
            yield "Normal" if good else "Warning", condition
