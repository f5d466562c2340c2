"""What the conditions that sum up a status say."""

from __future__ import annotations

import pytest

from slipway.kube.objects import Object
from slipway.serving.contract.readiness import (
    ANSWERING,
    COMPLETE,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Readiness,
    Rule,
    summarize,
)
from slipway.serving.contract.readiness import holds as rule_holds

ACCEPTED, AVAILABLE, PROGRESSING = Condition("Accepted"), Condition("Available"), COMPLETE
SERVED = Readiness(
    ready=AllOf((ACCEPTED, Condition("Available", excused=("ScaledToZero",)), PROGRESSING)),
    answering=ANSWERING,
    failed=AnyOf((Condition("Accepted", "False"), Condition("Progressing", "False", other_than=("Complete",)))),
    telling=(ACCEPTED, AVAILABLE, PROGRESSING),
)
STOPPABLE = Readiness(
    ready=AllOf((ACCEPTED, AVAILABLE, PROGRESSING)),
    settled=Field("status.phase", ("Stopped",)),
    refused=Condition("Accepted", "False"),
    failed=Condition("Progressing", "False", other_than=("Complete",)),
    telling=(ACCEPTED, AVAILABLE, PROGRESSING),
)


def status(phase: str = "", **conditions: str) -> Object:
    """``status(Available="False WaitingForPods")``; other conditions have their normal values."""
    usual = {"Accepted": "True Valid", "Available": "True Ready", "Progressing": "False Complete"}
    states = {type_: text.split() for type_, text in (usual | conditions).items()}
    return {
        "phase": phase,
        "conditions": [
            {"type": type_, "status": value, "reason": reason, "message": f"{type_} says {reason}."}
            for type_, (value, reason) in states.items()
        ],
    }


def summary(resource_status: Object, readiness: Readiness = SERVED) -> list[str]:
    """Status and reason of Ready, Reconciling and Stalled."""
    conditions = summarize(resource_status, readiness, 3)
    assert [one.type for one in conditions] == ["Ready", "Reconciling", "Stalled"]
    return [f"{one.status} {one.reason}" for one in conditions]


@pytest.mark.parametrize(
    ("observed", "ready", "reconciling", "stalled"),
    [
        (status(), "True Ready", "False Complete", "False AsExpected"),
        (
            status(Available="False WaitingForPods", Progressing="True RollingOut"),
            "False WaitingForPods",
            "True WaitingForPods",
            "False AsExpected",
        ),
        (status(Progressing="True RollingOut"), "True Ready", "True RollingOut", "False AsExpected"),
        (status(Accepted="Unknown Retrying"), "True Ready", "True Retrying", "False AsExpected"),
        (status(Available="False ScaledToZero"), "True Ready", "False Complete", "False AsExpected"),
        (
            status(Available="False ScaledToZero", Progressing="True RollingOut"),
            "True Ready",
            "True ScaledToZero",
            "False AsExpected",
        ),
        (
            status(Available="False OutOfMemory", Progressing="False OutOfMemory"),
            "False OutOfMemory",
            "False OutOfMemory",
            "True OutOfMemory",
        ),
        (status(Progressing="False Unschedulable"), "True Unschedulable", "False Unschedulable", "True Unschedulable"),
        (
            status(Accepted="False InvalidSpec", Progressing="False InvalidSpec"),
            "False InvalidSpec",
            "False InvalidSpec",
            "True InvalidSpec",
        ),
    ],
    ids=[
        "all is well",
        "the first start",
        "earlier replicas answer during a rollout",
        "what runs answers while the API server takes nothing",
        "asleep",
        "falling asleep",
        "failed",
        "a further replica that failed, while others of the newest spec answer",
        "a spec that is refused, while earlier replicas answer",
    ],
)
def test_a_status_is_summed_up(observed: Object, ready: str, reconciling: str, stalled: str) -> None:
    assert summary(observed) == [ready, reconciling, stalled]


def test_a_model_that_is_stopped_on_request_is_ready() -> None:
    resource_status = status("Stopped", Available="False ScaledToZero", Progressing="False Complete")
    assert summary(resource_status, STOPPABLE) == ["True Ready", "False Complete", "False AsExpected"]


def test_a_spec_that_is_refused_is_stalled_though_it_is_stopped() -> None:
    resource_status = status("Stopped", Accepted="False InvalidSpec", Available="False InvalidSpec")
    assert summary(resource_status, STOPPABLE) == ["False InvalidSpec", "False InvalidSpec", "True InvalidSpec"]


def test_stalled_names_the_failure_and_not_what_waits_because_of_it() -> None:
    extra = Condition("Loaded", "False", reasons=("LoadFailed",))
    readiness = Readiness(ready=AVAILABLE, failed=extra, telling=(AVAILABLE, Condition("Loaded")))
    resource_status = status(Available="False WaitingForPods", Loaded="False LoadFailed")
    assert summary(resource_status, readiness) == ["False LoadFailed", "False LoadFailed", "True LoadFailed"]


def test_stalled_names_no_part_of_a_failure_that_is_not_complete() -> None:
    both = AllOf((Condition("Available", "False"), Condition("Progressing", "False", reasons=("TimedOut",))))
    loaded = Condition("Loaded", "False", reasons=("LoadFailed",))
    readiness = Readiness(ready=AVAILABLE, failed=AnyOf((both, loaded)), telling=(AVAILABLE, Condition("Loaded")))
    resource_status = status(Available="False WaitingForPods", Progressing="True RollingOut", Loaded="False LoadFailed")
    assert summary(resource_status, readiness) == ["False LoadFailed", "False LoadFailed", "True LoadFailed"]
    timed_out = status(Available="False WaitingForPods", Progressing="False TimedOut", Loaded="False LoadFailed")
    assert summary(timed_out, readiness)[2] == "True WaitingForPods"


def test_messages_are_those_of_the_condition_that_decided() -> None:
    ready, reconciling, stalled = summarize(status(Available="False Late", Progressing="True RollingOut"), SERVED, 3)
    assert (ready.message, reconciling.message) == ("Available says Late.", "Available says Late.")
    assert stalled.message == "Nothing is wrong."
    ready, reconciling, stalled = summarize(status(Available="False Bad", Progressing="False Bad"), SERVED, 3)
    assert (ready.message, stalled.message) == ("Available says Bad.", "Available says Bad.")
    assert reconciling.message == "See the condition Stalled."
    assert summarize(status(), SERVED, 3)[0].message == "Available says Ready."


def test_ready_has_the_reason_of_what_is_wrong_though_requests_are_answered() -> None:
    failed = status(Progressing="False BadImage")
    ready, _, stalled = summarize(failed, SERVED, 3)
    assert (ready.status, ready.reason, ready.message) == ("True", "BadImage", "Progressing says BadImage.")
    assert (stalled.reason, stalled.message) == (ready.reason, ready.message)
    ready, _, stalled = summarize(failed, SERVED, 3, newest_answers=False)
    assert (ready.status, ready.reason, stalled.reason) == ("True", "ChangeFailed", "BadImage")
    assert (
        ready.message == "The latest change failed, and the previous spec is still served. See the condition Stalled."
    )
    conflict = status(Routed="False NameConflict")
    assert summary(conflict) == ["True NameConflict", "False Complete", "False AsExpected"]
    assert summarize(conflict, SERVED, 3)[0].message == "Routed says NameConflict."
    assert summary(status(Routed="False NotRouted"))[0] == "True Ready"


def test_they_speak_of_the_generation_that_the_status_speaks_of() -> None:
    assert {one.observed_generation for one in summarize(status(), SERVED, 7)} == {7}


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (Condition("Available"), True),
        (Condition("Available", "False"), False),
        (Condition("Missing"), False),
        (Condition("Missing", optional=True), True),
        (Condition("Available", "False", excused=("Ready",)), True),
        (Condition("Available", reasons=("Ready", "Other")), True),
        (Condition("Available", reasons=("Other",)), False),
        (Condition("Available", other_than=("Ready",)), False),
        (Field("status.phase", ("Stopped", "Suspended")), True),
        (Field("status.phase", ("Ready",)), False),
        (Field("status.phase.deeper", ("Ready",)), False),
        (AllOf((Condition("Available"), Condition("Missing"))), False),
        (AnyOf((Condition("Available"), Condition("Missing"))), True),
    ],
)
def test_a_rule_holds_or_not(rule: Rule, holds: bool) -> None:
    assert rule_holds(rule, status("Stopped")) is holds
