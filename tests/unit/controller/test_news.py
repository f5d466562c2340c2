"""News: which changes of conditions become Events."""

from __future__ import annotations

import pytest

from slipway.controller.reconciling.news import select_events
from slipway.kube.schemas.conditions import Condition

PASSED_THROUGH = frozenset({"WaitingForPods"})


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ("", "Accepted=True:Valid", ""),
        ("", "Accepted=False:InvalidSpec", "Warning InvalidSpec"),
        ("", "Accepted=False:InvalidSpec Routed=False:NoService", "Warning InvalidSpec"),
        ("", "Accepted=True:Valid Routed=False:NoService", "Warning NoService"),
        ("", "Available=False:WaitingForPods", ""),
        ("", "Available=False:CrashLoopBackOff Progressing=False:CrashLoopBackOff", "Warning CrashLoopBackOff"),
        ("Available=WaitingForPods", "Available=True:Ready", "Normal Ready"),
        ("Available=Ready", "Available=True:Ready", ""),
        ("Available=Ready", "Available=False:CrashLoopBackOff", "Warning CrashLoopBackOff"),
        ("Available=Ready", "Available=False:ScaledToZero", "Normal ScaledToZero"),
        (
            "Available=Ready Progressing=RollingOut",
            "Available=False:ScaledToZero Progressing=False:Complete",
            "Normal ScaledToZero",
        ),
        (
            "Available=ScaledToZero Progressing=RollingOut",
            "Available=False:ScaledToZero Progressing=False:Complete",
            "",
        ),
        ("Accepted=InvalidSpec", "Accepted=True:Valid", "Normal Valid"),
        # A retry is no news, whichever condition shows it, and neither is its end.
        ("Accepted=Valid", "Accepted=Unknown:Retrying", ""),
        ("Available=Ready", "Available=Unknown:Retrying", ""),
        ("Ready=Pending", "Ready=Unknown:Retrying", ""),
        ("", "Accepted=Unknown:Retrying", ""),
        ("Accepted=Retrying", "Accepted=True:Valid", ""),
        ("Accepted=Retrying", "Accepted=False:Forbidden", "Warning Forbidden"),
    ],
)
def test_a_reason_that_is_new_and_lasts_is_an_event(before: str, after: str, events: str) -> None:
    old_conditions = [{"type": type_, "reason": reason} for type_, reason in (one.split("=") for one in before.split())]
    new_conditions = [Condition(one.partition("=")[0], *one.partition("=")[2].split(":")) for one in after.split()]
    recorded = [
        f"{kind} {condition.reason}"
        for kind, condition in select_events(old_conditions, new_conditions, PASSED_THROUGH)
    ]
    assert " ".join(recorded) == events
