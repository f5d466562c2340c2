"""The view, plan and status of a ModelPool, which decide which member has the slot. Pure.

A pool has no children. The plans of its members read its status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slipway.apis.llmkube.rules import pools
from slipway.apis.llmkube.rules.slots import Decision, Member, Slot, complete, decide
from slipway.apis.llmkube.services import pods
from slipway.apis.llmkube.types.pool import ModelPoolSpec
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.objects import DEPLOYMENT, Key, Object, deleting, key
from slipway.kube.schemas.conditions import Condition, find, timestamp
from slipway.kube.values.times import unix_time
from slipway.serving.containers.diagnosis import ended
from slipway.serving.contract.api import InvalidSpecError, Plan, Rejection, StatusResult, World
from slipway.serving.status.builder import build_status, first_rejection, verdict

CONDITIONS = frozenset({"Accepted", "MembersValid", pools.ALLOCATED})
"""Types of the conditions of ModelPools."""
PASSED_THROUGH = frozenset({"Swapping", "Starting", "Unallocated"})
"""Reasons that occur in normal operation and cause no Events."""
METAL = "MetalOutOfReach"


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A ModelPool, valid or not, and its members."""

    world: World
    spec: ModelPoolSpec | InvalidSpecError
    owned: tuple[str, ...]
    """Names of the members that do not belong to an older pool. Their services may not exist."""
    services: Mapping[str, Object]
    """Name of a member -> its service, if the service exists."""
    decision: Decision
    decided: bool
    """Whether the slot has been decided, in the status or by ``decision``. Until then, running members continue as if
    they had no pool."""


def member_fields(service: Object) -> tuple[object, ...]:
    """Return the values in a member's service that its pool reads, to detect changes."""
    status = service.get("status") or {}
    conditions = [find(service, type_) or {} for type_ in ("Available", "Accepted", pools.GRANTED)]
    states = [(one.get("status"), one.get("reason"), one.get("lastTransitionTime")) for one in conditions]
    return status.get("phase"), status.get("desiredReplicas"), deleting(service), *states


def resolve(world: World) -> PoolView:
    pool = world.resource
    namespace = key(pool).namespace
    owned = tuple(name for name in pools.member_names(pool) if _owns(world, name))
    observed = {name: world.listers.get(INFERENCE_SERVICE, Key(namespace, name)) for name in owned}
    services = {name: service for name, service in observed.items() if service}
    members = [_member(world, name, services.get(name)) for name in owned]
    slot, decided = pools.slot_of(pool), pools.decided(pool)
    spec: ModelPoolSpec | InvalidSpecError
    try:
        spec = pools.parse_pool(pool)
        if decided or not any(map(_unread, services.values())):
            decision, decided = decide(slot, members, spec.default, pools.budget(spec), world.now), True
        else:
            decision = Decision(slot)
    except InvalidSpecError as error:
        spec, decision = error, complete(slot, members, world.now)
    return PoolView(world=world, spec=spec, owned=owned, services=services, decision=decision, decided=decided)


def _owns(world: World, name: str) -> bool:
    namespace, own = key(world.resource)
    pool = pools.pool_of(world.listers, Key(namespace, name))
    return pool is not None and key(pool).name == own


def _unread(service: Object) -> bool:
    """Whether a member's status does not show yet whether the member could start. A rejected service never shows that,
    so it does not count."""
    return not deleting(service) and not _granted(service) and not _refusal(service)


def _member(world: World, name: str, service: Object | None) -> Member:
    demand = world.demand.get(Key(key(world.resource).namespace, pods.service_name(name)))
    available = find(service, "Available") if service else None
    answers = available is not None and available["status"] == "True"
    changed = unix_time(available["lastTransitionTime"]) if available else 0.0
    return Member(
        name=name,
        able=service is not None and not deleting(service) and _granted(service) in pools.ABLE,
        stopped=_has_stopped(world, name, service),
        busy=demand.busy if demand else None,
        since=demand.since if demand else 0.0,
        answers_since=changed if answers else None,
        silent_since=0.0 if answers else changed,
        failed=_phase_of(service) == "Failed",
    )


def _granted(service: Object) -> str:
    return str((find(service, pools.GRANTED) or {}).get("reason", ""))


def _refusal(service: Object) -> str:
    accepted = find(service, "Accepted") or {}
    return str(accepted.get("reason", "")) if accepted.get("status") == "False" else ""


def _phase_of(service: Object | None) -> str:
    return str(((service or {}).get("status") or {}).get("phase", ""))


def _has_stopped(world: World, name: str, service: Object | None) -> bool:
    """Whether a member has no pods that hold GPUs of the slot, and will get none. Terminating pods and pods of a
    deleted service still hold GPUs."""
    desired = ((service or {}).get("status") or {}).get("desiredReplicas", 0)
    deployment = Key(key(world.resource).namespace, pods.workload_name(name))
    return not desired and all(map(ended, world.listers.pods_of_workload(DEPLOYMENT, deployment)))


def plan(view: PoolView) -> Plan:
    """Return a plan that has no children, and counts the requests of the pool's services. Raise InvalidSpecError if the
    pool is invalid."""
    if isinstance(view.spec, InvalidSpecError):
        raise view.spec
    namespace, slot = key(view.world.resource).namespace, view.decision.slot
    counted = {name: Key(namespace, pods.service_name(name)) for name in view.services}
    satisfied = () if slot.pending or slot.resident not in counted else (counted[slot.resident],)
    return Plan(children=(), counted=tuple(counted.values()), satisfied=satisfied)


def status(view: PoolView, rejection: Rejection | None) -> StatusResult:
    resource, slot = view.world.resource, view.decision.slot
    accepted = verdict(first_rejection(view.spec, rejection), "Members get the slot when requests wait for them.")
    conditions = (accepted, _members_valid(view), *([_allocated(view)] if view.decided else []))
    holder = "" if slot.pending else slot.resident
    fields: Object = {
        "phase": _phase(view, conditions),
        "residentMember": slot.resident,
        "pendingMember": slot.pending,
        "members": [
            {"name": name, "phase": _phase_of(view.services.get(name)), "resident": name == holder}
            for name in pools.member_names(resource)
        ],
        **({"residentSince": timestamp(slot.since)} if slot.resident else {}),
    }
    rechecks = (view.decision.recheck_seconds,)
    return build_status(resource, fields, conditions, rechecks=rechecks, passed_through=PASSED_THROUGH)


def _phase(view: PoolView, conditions: Iterable[Condition]) -> str:
    if any(one.type in ("Accepted", "MembersValid") and one.status == "False" for one in conditions):
        return "Degraded"
    if view.decision.slot.pending:
        return "Swapping"
    return "Ready" if _answers(view, view.decision.slot) else "Pending"


def _answers(view: PoolView, slot: Slot) -> bool:
    service = view.services.get(slot.resident)
    return service is not None and (find(service, "Available") or {}).get("status") == "True"


def _members_valid(view: PoolView) -> Condition:
    names = pools.member_names(view.world.resource)
    elsewhere = [name for name in names if name not in view.owned]
    if elsewhere:
        return _invalid("MemberOfOtherPool", elsewhere, "belong to an older ModelPool")
    missing = [name for name in names if name not in view.services]
    if missing:
        return _invalid("MemberMissing", missing, "do not exist")
    outside = [name for name, service in view.services.items() if _refusal(service) == METAL]
    if outside:
        return _invalid(METAL, outside, "run on a Mac outside the cluster")
    return Condition("MembersValid", "True", "Valid", "All members are InferenceServices of this pool.")


def _invalid(reason: str, names: Sequence[str], what: str) -> Condition:
    text = f"These InferenceServices {what}: {', '.join(names)}. The other members share the slot."
    return Condition("MembersValid", "False", reason, text)


def _allocated(view: PoolView) -> Condition:
    slot = view.decision.slot
    if slot.pending:
        text = f"{slot.pending} gets the slot when the pods of the other members are gone."
        return Condition(pools.ALLOCATED, "False", "Swapping", text)
    if not slot.resident:
        return Condition(pools.ALLOCATED, "False", "Unallocated", "The first member with a request gets the slot.")
    waits = view.decision.deferred
    rest = f" Requests wait for {waits} until {slot.resident} is idle or its turn is over." if waits else ""
    if _answers(view, slot):
        return Condition(pools.ALLOCATED, "True", "Resident", f"{slot.resident} has the slot and answers.{rest}")
    return Condition(pools.ALLOCATED, "True", "Starting", f"{slot.resident} has the slot and is starting.{rest}")
