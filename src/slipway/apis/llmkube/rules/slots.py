"""The slot of a ModelPool: which member has it, and when it passes to another member. Pure.

Only the member with the slot has replicas. It keeps the slot until requests wait for another member. Then it gives up
the slot as soon as it has been idle for a moment. If it keeps getting requests, it gives up the slot after a turn, and
only once another member has waited for a turn. If it does not answer, it gives up the slot after the swap budget, and
if it has failed, at once. Members take turns in the order of the spec. A waiting member therefore gets the slot after
at most one turn of each other member, however many requests the others get.

A swap has two steps, and the status records each step before it takes effect. First the status names the next member,
and no member may have replicas. When the pods of all other members are gone, the status gives the slot to the next
member.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST_SECONDS = 10.0
"""Minimum seconds for which a member keeps the slot after it begins to answer, because its waiting requests take a
moment to arrive."""
IDLE_SECONDS = 2.0
"""Seconds without requests after which a member is idle. A client that sends one request after another leaves shorter
gaps."""
TURNS = 5
"""Number of turns in a swap budget. The budget must suffice for a request that waits for one turn and then for the
model to load."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a pool, with the state of its InferenceService that affects the slot."""

    name: str
    able: bool = True
    """Whether the member would start with the slot, or may keep the slot that it has."""
    stopped: bool = True
    """Whether the member has no pods and will get none."""
    busy: bool | None = None
    """Whether requests for the member are in flight or waiting; None: unknown."""
    since: float = 0.0
    """Unix time since which ``busy`` has had this value."""
    answers_since: float | None = None
    """Unix time since which the member has answered; None: it does not answer."""
    silent_since: float = 0.0
    """Unix time since which the member has not answered; 0: it answers, or the time is unknown."""
    failed: bool = False
    """Whether the member has failed, so that waiting for it is useless."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the slot, as in the status of a pool."""

    resident: str = ""
    """Name of the member that has the slot, and may have a replica if ``pending`` is empty; empty: no member."""
    pending: str = ""
    """Name of the member that gets the slot when no other member has pods; empty: no swap is pending. During a swap, no
    member may have replicas."""
    since: float = 0.0
    """Unix time since which the resident has had the slot."""


class Decision(msgspec.Struct, frozen=True):
    """A decision about the slot: its next state, and when to decide again."""

    slot: Slot
    deferred: str = ""
    """Member whose requests wait until the resident is idle or its turn is over; empty: no requests wait."""
    recheck_seconds: float | None = None
    """Seconds until the decision may change without an event."""


def decide(slot: Slot, members: Sequence[Member], default: str, budget: float, now: float) -> Decision:
    """Decide which member has or gets the slot. ``members`` are in the order of the spec, ``default`` is the name of
    the default member or empty, ``budget`` is the swap budget in seconds, and ``now`` is Unix time."""
    by_name = {member.name: member for member in members}
    resident = by_name.get(slot.resident)
    if slot.pending:
        return Decision(_continue(slot, members, by_name.get(slot.pending), resident, now))
    if resident is None or (not resident.able and resident.stopped):
        return Decision(_allocate(members, default, now))
    waiting = [member for member in members if member is not resident and member.able and member.busy]
    if not waiting:
        return Decision(slot)
    seconds = _leaves_at(slot, resident, waiting, budget) - now
    following = _following(members, resident)
    if following is None or seconds > 0:
        return Decision(slot, waiting[0].name, max(seconds, 0.0))
    return Decision(_continue(msgspec.structs.replace(slot, pending=following.name), members, following, resident, now))


def complete(slot: Slot, members: Sequence[Member], now: float) -> Decision:
    """Decide about the slot of a pool with an invalid spec. A pending swap continues, but no other swap begins."""
    return decide(slot, members, "", 0.0, now) if slot.pending else Decision(slot)


def _continue(
    slot: Slot, members: Sequence[Member], target: Member | None, resident: Member | None, now: float
) -> Slot:
    """Return the next state of a pending swap. If ``target`` cannot start, another waiting member becomes the target.
    If there is no such member, the resident keeps the slot."""
    if target is None or not target.able:
        target = _following(members, resident)
    if target is None or target is resident:
        return msgspec.structs.replace(slot, pending="")
    if all(member.stopped for member in members if member is not target):
        return Slot(resident=target.name, since=now)
    return msgspec.structs.replace(slot, pending=target.name)


def _allocate(members: Sequence[Member], default: str, now: float) -> Slot:
    """Return the next state of a free slot. A running member gets it, or else a member with waiting requests, or else
    the default member. Without such a member, the slot remains free."""
    able = [member for member in members if member.able]
    running = sorted((member for member in able if not member.stopped), key=lambda member: member.name != default)
    if running:
        return Slot(resident=running[0].name, since=now)
    waiting = [member for member in able if member.busy]
    usual = [member for member in able if member.name == default]
    target = next(iter((*waiting, *usual)), None)
    return _continue(Slot(pending=target.name), members, target, None, now) if target else Slot()


def _leaves_at(slot: Slot, resident: Member, waiting: Sequence[Member], budget: float) -> float:
    """Return the Unix time at which the resident gives up the slot to the waiting members. ``budget`` is in seconds."""
    if resident.failed or not resident.able:
        return 0.0
    if resident.answers_since is None:
        return max(slot.since, resident.silent_since) + budget
    served = max(resident.answers_since, slot.since)
    if resident.busy is False:
        return max(served + LEAST_SECONDS, resident.since + IDLE_SECONDS)
    turn = max(budget / TURNS, LEAST_SECONDS)
    return max(served, min(member.since for member in waiting)) + turn


def _following(members: Sequence[Member], resident: Member | None) -> Member | None:
    """Return the next member with waiting requests after the resident, in the circular order of the spec, or None if
    there is none."""
    start = members.index(resident) + 1 if resident else 0
    around = (*members[start:], *members[:start])
    return next((member for member in around if member is not resident and member.able and member.busy), None)
