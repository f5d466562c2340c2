"""Slots: which member of a ModelPool has the slot, and when it goes to another one. Pure.

One member at most may have replicas. It keeps the slot for as long as nobody else is asked for. Where requests wait for
another one, it gives way as soon as it has had none for a while; with requests of its own it has its turn first, and
gives way to those that waited for as long as that. Members get their turns in the order of the spec, so that each that
waits has the slot after one turn of each other, however many requests the others have.

A change goes in two steps, each of which is written down before anything follows from it: first it is said which
member gets the slot, with which none may have replicas. Once all pods of the others are gone it is said that it has the
slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST_SECONDS = 10.0
"""For which a member that has begun to answer keeps the slot: those that waited for it need a moment to come."""
IDLE_SECONDS = 2.0
"""Without requests, after which a member counts as idle: who asks one after another leaves gaps."""
TURNS = 5
"""Turns that a swap budget has: who waits for the next turn may wait on while the model is loaded."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of an InferenceService."""

    name: str
    able: bool = True
    """Whether it would start if it had the slot; of one that has it: whether it may keep it."""
    gone: bool = True
    """Whether it has no pods, and will get none."""
    busy: bool | None = None
    """Whether requests for it are under way or wait; None: nobody knows yet."""
    since: float = 0.0
    """Unix seconds since when it is busy or is not."""
    answers_since: float | None = None
    """Unix seconds since when it answers; None: it does not."""
    silent_since: float = 0.0
    """Unix seconds since when it does not answer, where it does not."""
    failed: bool = False
    """Whether it cannot answer, and waiting does not help."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Who has it."""

    resident: str = ""
    """Name of the member that may have replicas, where nobody is to come."""
    pending: str = ""
    """Name of the member that gets the slot once nobody else has pods. Nobody may have replicas until then."""
    since: float = 0.0
    """Unix seconds since when the resident has it."""


class Decision(msgspec.Struct, frozen=True):
    """The slot from now on."""

    slot: Slot
    deferred: str = ""
    """Member that waits until the one with the slot has had its turn."""
    recheck_seconds: float | None = None
    """After which to decide anew, though nothing else changes."""


def decide(slot: Slot, members: Sequence[Member], default: str, budget: float, now: float) -> Decision:
    """``members``: in the order of the spec; ``default``: see ModelPoolSpec; ``budget``: seconds that requests wait."""
    by_name = {one.name: one for one in members}
    resident = by_name.get(slot.resident)
    if slot.pending:
        return Decision(_handed(slot, members, by_name.get(slot.pending), resident, now))
    if resident is None or (not resident.able and resident.gone):
        return Decision(_first(members, default, now))
    waiting = [one for one in members if one is not resident and one.able and one.busy]
    if not waiting:
        return Decision(slot)
    left = _gives_way(slot, resident, waiting, budget) - now
    following = _next(members, resident)
    if following is None or left > 0:
        return Decision(slot, waiting[0].name, max(left, 0.0))
    return Decision(_handed(msgspec.structs.replace(slot, pending=following.name), members, following, resident, now))


def unfinished(slot: Slot, members: Sequence[Member], now: float) -> Decision:
    """The slot of a pool that cannot be read: a change that is under way goes on, and no other begins."""
    return decide(slot, members, "", 0.0, now) if slot.pending else Decision(slot)


def _handed(slot: Slot, members: Sequence[Member], target: Member | None, resident: Member | None, now: float) -> Slot:
    """A change that is under way, one step further if it may be. One whose target cannot start has another target, or
    leaves all as it was."""
    if target is None or not target.able:
        target = _next(members, resident)
    if target is None or target is resident:
        return msgspec.structs.replace(slot, pending="")
    if all(one.gone for one in members if one is not target):
        return Slot(resident=target.name, since=now)
    return msgspec.structs.replace(slot, pending=target.name)


def _first(members: Sequence[Member], default: str, now: float) -> Slot:
    """Of a slot that nobody has: whoever runs already keeps running, else those that are waited for get it, else the
    default."""
    able = [one for one in members if one.able]
    running = sorted((one for one in able if not one.gone), key=lambda one: one.name != default)
    waiting = [one for one in able if one.busy]
    usual = [one for one in able if one.name == default]
    chosen = next(iter((*running, *waiting, *usual)), None)
    if chosen is None:
        return Slot()
    if not chosen.gone:
        return Slot(resident=chosen.name, since=now)
    return _handed(Slot(pending=chosen.name), members, chosen, None, now)


def _gives_way(slot: Slot, resident: Member, waiting: Sequence[Member], budget: float) -> float:
    """From when on the resident leaves the slot to those who wait."""
    if resident.failed or not resident.able:
        return 0.0
    if resident.answers_since is None:
        return max(slot.since, resident.silent_since) + budget
    served = max(resident.answers_since, slot.since)
    if resident.busy is False:
        return max(served + LEAST_SECONDS, resident.since + IDLE_SECONDS)
    turn = max(budget / TURNS, LEAST_SECONDS)
    return max(served, min(one.since for one in waiting)) + turn


def _next(members: Sequence[Member], resident: Member | None) -> Member | None:
    """The first behind the resident, in the order of the spec and around its end, that requests wait for."""
    at = members.index(resident) + 1 if resident else 0
    around = (*members[at:], *members[:at])
    return next((one for one in around if one is not resident and one.able and one.busy), None)
