"""Slots: which member of a ModelPool has the slot, and when it passes to another member. Pure.

At most one member has replicas. It keeps the slot until requests wait for another member. Then it leaves the slot as
soon as it has been idle for a moment. If it keeps getting requests, it leaves after a turn, and only to members that
have waited for a turn. Members take turns in the order of the spec, so each waiting member gets the slot after one turn
of each other member, however many requests the others get.

A swap has two steps, and each one is in the status before anything follows from it. First the status names the next
member, and no member may have replicas. When the pods of all others are gone, the status gives the slot to that member.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST_SECONDS = 10.0
"""How long a member keeps the slot at least after it begins to answer, because its waiting requests take a moment to
arrive."""
IDLE_SECONDS = 2.0
"""How long a member must be without requests to count as idle, because a client that sends one after another leaves
gaps."""
TURNS = 5
"""Number of turns in a swap budget. A request that waits for one turn must also be able to wait while the model
loads."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The relevant fields of an InferenceService."""

    name: str
    able: bool = True
    """Whether it would start with the slot, or may keep the slot that it has."""
    stopped: bool = True
    """Whether it has no pods and will get none."""
    busy: bool | None = None
    """Whether requests for it are in flight or waiting. None: not known yet."""
    since: float = 0.0
    """Unix time since which ``busy`` has had this value."""
    answers_since: float | None = None
    """Unix time since which it has answered. None: it does not answer."""
    silent_since: float = 0.0
    """Unix time since which it has not answered, if it does not."""
    failed: bool = False
    """Whether it cannot answer, and waiting is useless."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the slot."""

    resident: str = ""
    """Name of the member that may have a replica if ``pending`` is empty."""
    pending: str = ""
    """Name of the member that gets the slot when no other member has pods. Until then no member may have replicas."""
    since: float = 0.0
    """Unix time since which the resident has had the slot."""


class Decision(msgspec.Struct, frozen=True):
    """The slot from now on."""

    slot: Slot
    deferred: str = ""
    """Member whose requests wait until the resident is idle or its turn is over."""
    recheck_seconds: float | None = None
    """Seconds until the decision may change without an event."""


def decide(slot: Slot, members: Sequence[Member], default: str, budget: float, now: float) -> Decision:
    """Decides about the slot. ``members``: in the order of the spec. ``default``: see ModelPoolSpec. ``budget``: how
    long requests wait, in seconds."""
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
    """Returns the slot of a pool with an invalid spec: a pending swap continues, but no other one begins."""
    return decide(slot, members, "", 0.0, now) if slot.pending else Decision(slot)


def _continue(
    slot: Slot, members: Sequence[Member], target: Member | None, resident: Member | None, now: float
) -> Slot:
    """Continues a pending swap if possible. If its target cannot start, another member becomes the target. If there is
    none, the resident keeps the slot."""
    if target is None or not target.able:
        target = _following(members, resident)
    if target is None or target is resident:
        return msgspec.structs.replace(slot, pending="")
    if all(member.stopped for member in members if member is not target):
        return Slot(resident=target.name, since=now)
    return msgspec.structs.replace(slot, pending=target.name)


def _allocate(members: Sequence[Member], default: str, now: float) -> Slot:
    """Gives a free slot to a member that is already running, or to one with waiting requests, or to the default."""
    able = [member for member in members if member.able]
    running = sorted((member for member in able if not member.stopped), key=lambda member: member.name != default)
    if running:
        return Slot(resident=running[0].name, since=now)
    waiting = [member for member in able if member.busy]
    usual = [member for member in able if member.name == default]
    target = next(iter((*waiting, *usual)), None)
    return _continue(Slot(pending=target.name), members, target, None, now) if target else Slot()


def _leaves_at(slot: Slot, resident: Member, waiting: Sequence[Member], budget: float) -> float:
    """Returns the Unix time at which the resident leaves the slot to the waiting members."""
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
    """Returns the next member with waiting requests after the resident, in the (circular) order of the spec; None if
    there is none."""
    start = members.index(resident) + 1 if resident else 0
    around = (*members[start:], *members[:start])
    return next((member for member in around if member is not resident and member.able and member.busy), None)
