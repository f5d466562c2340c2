"""Slots of ModelPools: which member has the slot, and when it goes to another member."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.llmkube.rules.slots import LEAST_SECONDS, Decision, Member, Slot, decide

BUDGET = 300.0
TURN = BUDGET / 5
NOW = 10_000.0
AGES = NOW - 1_000


def asleep(name: str, **more: Any) -> Member:
    return Member(name=name, **({"busy": False, "since": AGES} | more))


def waiting(name: str, seconds: float = 1, **more: Any) -> Member:
    return asleep(name, busy=True, since=NOW - seconds, **more)


def serving(name: str, seconds: float = 1_000, **more: Any) -> Member:
    return asleep(name, stopped=False, **({"busy": True, "answers_since": NOW - seconds} | more))


def idle(name: str, seconds: float, **more: Any) -> Member:
    return serving(name, busy=False, since=NOW - seconds, **more)


def has(name: str, seconds: float = 1_000) -> Slot:
    return Slot(resident=name, since=NOW - seconds)


def comes(name: str, after: str = "") -> Slot:
    return Slot(resident=after, pending=name, since=AGES)


def look(slot: Slot, *members: Member, default: str = "") -> Decision:
    return decide(slot, members, default, BUDGET, NOW)


@pytest.mark.parametrize(
    ("members", "default", "resident"),
    [
        pytest.param([asleep("a"), asleep("b")], "", "", id="without requests, no member starts"),
        pytest.param([asleep("a"), asleep("b")], "b", "b", id="without requests, the default starts"),
        pytest.param([asleep("a"), waiting("b")], "a", "b", id="a member with requests comes before the default"),
        pytest.param([waiting("a", 1), waiting("b", 9)], "", "a", id="of several, the first in the spec"),
        pytest.param([waiting("a"), serving("b")], "a", "b", id="a running member keeps running"),
        pytest.param([serving("a"), serving("b")], "b", "b", id="of several running members, the default"),
        pytest.param([waiting("a", able=False), asleep("b")], "", "", id="a member that cannot start gets no slot"),
        pytest.param([asleep("a", able=False)], "a", "", id="nor does such a default"),
        pytest.param([asleep("a", busy=None)], "", "", id="an unknown demand is no request"),
    ],
)
def test_a_free_slot(members, default, resident):
    assert look(Slot(), *members, default=default).slot == (has(resident, 0) if resident else Slot())


@pytest.mark.parametrize(
    ("members", "remaining"),
    [
        pytest.param([serving("a"), asleep("b")], None, id="no other member has requests"),
        pytest.param([idle("a", 900), asleep("b")], None, id="no other member has requests, and it is idle"),
        pytest.param([idle("a", 900), waiting("b")], 0, id="idle for long"),
        pytest.param([idle("a", 0.5), waiting("b")], 1.5, id="a gap between two requests"),
        pytest.param([idle("a", 900, answers_since=NOW - 4), waiting("b")], LEAST_SECONDS - 4, id="just started"),
        pytest.param([serving("a"), waiting("b", 20)], TURN - 20, id="busy, and the other has not waited a turn"),
        pytest.param([serving("a"), waiting("b", TURN)], 0, id="busy, and the other has waited a turn"),
        pytest.param([serving("a", 20), waiting("b", 500)], TURN - 20, id="busy, and has not had its own turn"),
        pytest.param([serving("a", busy=None), waiting("b", 20)], TURN - 20, id="not known whether it is busy"),
        pytest.param([serving("a"), waiting("b", 500, able=False)], None, id="the other cannot start"),
        pytest.param(
            [asleep("a", stopped=False), waiting("b", 500)], BUDGET - 100, id="still starts, within its budget"
        ),
        pytest.param([serving("a", failed=True), waiting("b")], 0, id="cannot answer any more"),
    ],
)
def test_a_resident_keeps_the_slot_until_another_member_has_waited(members, remaining):
    starts = Slot(resident="a", since=NOW - 100) if members[0].answers_since is None else has("a")
    decision = look(starts, *members)
    if remaining == 0:
        assert decision.slot == Slot(resident="a", pending="b", since=starts.since)
    else:
        assert decision.slot == starts
        if remaining is not None:
            assert (decision.deferred, decision.recheck_seconds) == ("b", pytest.approx(remaining))


def test_a_member_that_does_not_start_within_the_budget_gives_way():
    slow = asleep("a", stopped=False)
    assert look(has("a", BUDGET - 1), slow, waiting("b")).slot == has("a", BUDGET - 1)
    assert look(has("a", BUDGET), slow, waiting("b")).slot.pending == "b"


def test_a_member_whose_pod_restarts_gets_its_budget_again():
    silent = asleep("a", stopped=False, silent_since=NOW - 10)
    decision = look(has("a", 9_000), silent, waiting("b"))
    assert (decision.slot, decision.recheck_seconds) == (has("a", 9_000), pytest.approx(BUDGET - 10))
    assert (
        look(has("a", 9_000), asleep("a", stopped=False, silent_since=NOW - BUDGET), waiting("b")).slot.pending == "b"
    )


def test_the_slot_goes_over_only_once_all_others_are_gone():
    swapping = comes("b", after="a")
    assert look(swapping, serving("a"), waiting("b")).slot == swapping
    assert look(swapping, asleep("a"), waiting("b"), asleep("c", stopped=False)).slot == swapping
    assert look(swapping, asleep("a"), waiting("b"), asleep("c")).slot == has("b", 0)


def test_a_change_goes_on_when_the_requests_for_it_end():
    assert look(comes("b", after="a"), asleep("a"), asleep("b")).slot == has("b", 0)


def test_a_change_to_one_that_cannot_start_goes_to_another_one_or_is_taken_back():
    swapping = comes("b", after="a")
    assert look(swapping, asleep("a"), waiting("b", able=False), waiting("c")).slot == has("c", 0)
    assert look(swapping, serving("a"), waiting("b", able=False), asleep("c")).slot == Slot(resident="a", since=AGES)
    assert look(comes("gone"), asleep("a")).slot == Slot(since=AGES)


def test_a_resident_that_must_not_run_leaves_the_slot():
    stopped = asleep("a", able=False)
    assert look(has("a"), stopped, asleep("b")).slot == Slot()
    assert look(has("a"), stopped, waiting("b")).slot == has("b", 0)
    assert look(has("other"), asleep("a"), waiting("b")).slot == has("b", 0)


def test_every_member_gets_its_turn():
    """All get requests without an end. The member that left the slot has been busy for longest, and comes last."""
    slot, seen = has("a"), []
    for _unused in range(6):
        members = [serving(one) if one == slot.resident else waiting(one, 5_000) for one in ("a", "b", "c")]
        slot = look(slot, *members).slot
        slot = look(slot, *(waiting(one, 5_000) for one in ("a", "b", "c"))).slot
        seen.append(slot.resident)
        slot = has(slot.resident)
    assert seen == ["b", "c", "a", "b", "c", "a"]
