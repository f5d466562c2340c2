"""The membership of an InferenceService in a ModelPool. Pure.

The status of a pool, which only the controller writes, names the member with the slot. The plans of the members read
this status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from slipway.apis.llmkube.rules.slots import Slot
from slipway.apis.llmkube.types.pool import KIND, ModelPoolSpec
from slipway.kube.objects import Key, Object, deleting, key
from slipway.kube.schemas.conditions import Condition, find
from slipway.kube.values.names import label_value
from slipway.kube.values.times import parse_duration, unix_time
from slipway.serving.contract.api import InvalidSpecError, Listers
from slipway.spelling import did_you_mean

MEMBERS = "members"
"""Index of ModelPools: ``namespace/name`` of each service that a pool names."""
MEMBER_PODS = "member-pods"
"""Index of ModelPools: ``namespace/label`` of each service that a pool names. ``label`` is the label of the service's
pods, which is shorter than a long name."""
GRANTED = "SlotGranted"
"""Type of a member's condition: whether the member has the slot."""
ALLOCATED = "SlotAllocated"
"""Type of a ModelPool's condition: whether a member has the slot."""
UNDECIDED = "PoolUndecided"
ABLE = frozenset({"Granted", "Asleep", UNDECIDED})
"""Reasons of SlotGranted for services that run once they have the slot."""
PASSED_THROUGH = ABLE | {"SwitchedOff"}
"""Reasons of SlotGranted that occur in normal operation and cause no Events."""
MOST_SECONDS = 86400
IN_POOL = "a member of a ModelPool has one replica while it has the slot"


class Membership(NamedTuple):
    """The effects of a pool on a service."""

    pool: str
    """Name of the pool."""
    awake: bool
    """Whether the service has the slot."""
    nodes: Mapping[str, str]
    """Labels of the nodes with the slot."""
    wait_seconds: int
    """Maximum seconds for which requests wait for the service; 0: as for any other model."""


def by_member(pool: Object) -> Iterable[str]:
    """Return the values of a pool in the index :data:`MEMBERS`. A pool that is being deleted has none."""
    return [] if deleting(pool) else [f"{key(pool).namespace}/{name}" for name in member_names(pool)]


def by_member_pods(pool: Object) -> Iterable[str]:
    """Return the values of a pool in the index :data:`MEMBER_PODS`. A pool that is being deleted has none."""
    labels = dict.fromkeys(map(label_value, member_names(pool)))
    return [] if deleting(pool) else [f"{key(pool).namespace}/{label}" for label in labels]


def member_names(pool: Object) -> tuple[str, ...]:
    """Return the names of the services that a pool names, without duplicates."""
    names = (str(member["inferenceServiceRef"].get("name", "")) for member in pool["spec"].get("members") or ())
    return tuple(dict.fromkeys(name for name in names if name))


def pool_of(listers: Listers, service: Key) -> Object | None:
    """Return the oldest pool that names a service, or None. The cost does not depend on the number of other pools."""
    return next(iter(listers.oldest(KIND, MEMBERS, str(service), 1)), None)


def membership(pool: Object | None, service: str, *, runs: bool) -> Membership | None:
    """Return the effects of ``pool`` on the service, or None if there is no pool or it has no effect yet. ``runs``
    means that the service already has replicas."""
    if pool is None or (not decided(pool) and (runs or not is_valid(pool))):
        return None
    slot = slot_of(pool)
    awake = decided(pool) and slot.resident == service and not slot.pending
    nodes = {str(label): str(value) for label, value in (pool["spec"].get("nodeSelector") or {}).items()}
    return Membership(key(pool).name, awake, nodes, _wait_seconds(pool))


def decided(pool: Object) -> bool:
    """Whether the status of a pool shows a decision about which member, if any, has the slot. Until then, running
    members continue as if they had no pool, and the others do not start if the pool is valid."""
    return find(pool, ALLOCATED) is not None


def slot_of(pool: Object) -> Slot:
    """Return the state of the slot in the status of a pool."""
    status = pool.get("status") or {}
    since = status.get("residentSince")
    return Slot(
        resident=status.get("residentMember", ""),
        pending=status.get("pendingMember", ""),
        since=unix_time(since) if since else 0.0,
    )


def granted(pool: Object, membership: Membership | None, obstacle: str, *, off: bool) -> Condition:
    """Return the condition SlotGranted of a member, which its pool also reads. ``obstacle`` is the reason why the
    service would not start with the slot; empty: it would start. ``off`` means that the service's own spec requests
    zero replicas."""
    name = key(pool).name
    if membership and membership.awake:
        return Condition(GRANTED, "True", "Granted", f"The service has the slot of the ModelPool {name}.")
    if off:
        text = f"The service has spec.suspend or spec.replicas: 0, so the ModelPool {name} leaves it out."
        return Condition(GRANTED, "False", "SwitchedOff", text)
    if obstacle:
        text = f"The service cannot start, so the ModelPool {name} leaves it out. {obstacle}"
        return Condition(GRANTED, "False", "CannotStart", text)
    if not decided(pool):
        text = f"The ModelPool {name} has not allocated its slot yet. A running service continues until it has."
        return Condition(GRANTED, "False", UNDECIDED, text)
    text = f"The service sleeps. If requests wait for it, it gets the slot of the ModelPool {name}."
    return Condition(GRANTED, "False", "Asleep", text)


def parse_pool(pool: Object) -> ModelPoolSpec:
    """Parse the spec of a ModelPool. Raise InvalidSpecError if the spec is invalid."""
    try:
        spec = msgspec.convert(pool["spec"], ModelPoolSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", f"spec: {error}") from error
    budget(spec)
    names = member_names(pool)
    if spec.default and spec.default not in names:
        suggestion = did_you_mean(spec.default, names) or "."
        text = f"spec.default: {spec.default[:64]!r} is not a member{suggestion} Name a member, or remove it."
        raise InvalidSpecError("InvalidSpec", text)
    return spec


def is_valid(pool: Object) -> bool:
    try:
        parse_pool(pool)
    except InvalidSpecError:
        return False
    return True


def budget(spec: ModelPoolSpec) -> float:
    """Return the maximum seconds for which requests wait for a member. Raise InvalidSpecError if the swap budget is
    invalid."""
    try:
        seconds = parse_duration(spec.swap_budget)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.swapBudget: {error}") from error
    if not 1 <= seconds <= MOST_SECONDS:
        text = f"spec.swapBudget: {spec.swap_budget!r} is out of range. Set a value from 1s to 24h."
        raise InvalidSpecError("InvalidSpec", text)
    return seconds


def _wait_seconds(pool: Object) -> int:
    """Return the maximum seconds for which requests wait for a member. Return 0 if the pool is invalid: requests then
    wait as for any other model."""
    try:
        return int(budget(parse_pool(pool)))
    except InvalidSpecError:
        return 0
