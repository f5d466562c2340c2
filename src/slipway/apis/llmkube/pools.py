"""Pools: what an InferenceService has of the ModelPool that it is a member of. Pure.

The pool's status, which nobody but the controller writes, says who has the slot. Members read it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from slipway.apis.llmkube.pool_types import KIND, ModelPoolSpec
from slipway.apis.llmkube.slots import Slot
from slipway.kube.conditions import find
from slipway.kube.names import label_value
from slipway.kube.objects import Object, deleting, key
from slipway.serving.api import InvalidSpecError, Listers
from slipway.serving.times import parse_duration, unix_time

MEMBERS = "members"
"""Index of ModelPools: ``namespace/name`` of each service that one names, and the same of its pods' label."""
GRANTED = "SlotGranted"
"""Condition of services that are members: whether they have the slot."""
ALLOCATED = "SlotAllocated"
"""Condition of ModelPools: whether one of the members has the slot, and whose it is."""
UNDECIDED = "PoolUndecided"
ABLE = frozenset({"Granted", "Asleep", UNDECIDED})
"""Its reasons of services that run once they have the slot."""
MOST_SECONDS = 86400


class Membership(NamedTuple):
    """What a service has of its pool."""

    pool: str
    awake: bool
    """Whether it has the slot."""
    nodes: Mapping[str, str]
    """Labels of the nodes with the slot."""
    wait_seconds: int
    """How long requests wait for it."""


def by_member(pool: Object) -> Iterable[str]:
    """Index function for :data:`MEMBERS`."""
    names = member_names(pool)
    return [f"{key(pool).namespace}/{name}" for name in dict.fromkeys((*names, *map(label_value, names)))]


def member_names(pool: Object) -> tuple[str, ...]:
    """The services that a pool names, each once."""
    names = (str(one["inferenceServiceRef"].get("name", "")) for one in pool["spec"].get("members") or ())
    return tuple(dict.fromkeys(name for name in names if name))


def pool_of(listers: Listers, service: str) -> Object | None:
    """The pool that has a service, ``namespace/name``: the oldest of those that name it."""
    found = (one for one in listers.list(KIND, MEMBERS, service) if not deleting(one))
    return min(found, key=lambda one: (one["metadata"].get("creationTimestamp", ""), key(one).name), default=None)


def membership(listers: Listers, service: Object, *, runs: bool) -> Membership | None:
    """None: the service is a member of no pool, or of one that changes nothing for it yet. ``runs``: whether replicas
    of it are wanted already."""
    pool = pool_of(listers, str(key(service)))
    if pool is None or (not decided(pool) and (runs or not valid(pool))):
        return None
    slot = slot_of(pool)
    awake = decided(pool) and slot.resident == key(service).name and not slot.pending
    nodes = {str(label): str(value) for label, value in (pool["spec"].get("nodeSelector") or {}).items()}
    return Membership(key(pool).name, awake, nodes, wait_seconds(pool))


def decided(pool: Object) -> bool:
    """Whether its status says who has the slot. Until it does, members that run go on as if they had no pool, and those
    of a pool that is valid do not start."""
    return find(pool, ALLOCATED) is not None


def slot_of(pool: Object) -> Slot:
    """As the pool's status has it."""
    told = pool.get("status") or {}
    since = told.get("residentSince")
    return Slot(
        resident=told.get("residentMember", ""),
        pending=told.get("pendingMember", ""),
        since=unix_time(since) if since else 0.0,
    )


def read(pool: Object) -> ModelPoolSpec:
    """Raises InvalidSpecError."""
    try:
        spec = msgspec.convert(pool["spec"], ModelPoolSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", f"spec: {error}") from error
    budget(spec)
    if spec.default and spec.default not in member_names(pool):
        raise InvalidSpecError("InvalidSpec", f"spec.default: {spec.default[:64]!r} is none of the members")
    return spec


def valid(pool: Object) -> bool:
    """Whether it can be read."""
    try:
        read(pool)
    except InvalidSpecError:
        return False
    return True


def budget(spec: ModelPoolSpec) -> float:
    """Seconds that requests wait for a member. Raises InvalidSpecError."""
    try:
        seconds = parse_duration(spec.swap_budget)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.swapBudget: {error}") from error
    if not 1 <= seconds <= MOST_SECONDS:
        raise InvalidSpecError("InvalidSpec", "spec.swapBudget: it has to be from 1s to 24h")
    return seconds


def wait_seconds(pool: Object) -> int:
    """The same of a pool that may not be valid; 0: as for any model."""
    try:
        return int(budget(read(pool)))
    except InvalidSpecError:
        return 0
