"""Resolve, plan and status of a ModelPool: who has its slot. It has no children: what follows from its status is in the
plans of its members. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from slipway.apis.llmkube import names, pods, pools
from slipway.apis.llmkube.pool_types import ModelPoolSpec
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.apis.llmkube.slots import Decision, Member, Slot, decide, unfinished
from slipway.kube.conditions import Condition, find, timestamp
from slipway.kube.objects import DEPLOYMENT, Key, Object, deleting, generation, key, labels
from slipway.serving.api import InvalidSpecError, Plan, Rejection, StatusResult, World
from slipway.serving.diagnosis import ended
from slipway.serving.times import unix_time

CONDITIONS = frozenset({"Accepted", "MembersValid", pools.ALLOCATED, "SwapDeferred"})
"""Types of the conditions that ModelPools have."""
PASSED_THROUGH = frozenset({"Swapping", "Starting", "NobodyAsked", "TurnNotOver"})
"""Reasons that pools go through on their way."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A ModelPool that may not be valid, and its members."""

    world: World
    spec: ModelPoolSpec | InvalidSpecError
    services: Mapping[str, Object]
    """By name, of the members that there are."""
    decision: Decision
    decided: bool
    """Whether the status is to say who has the slot. Until it does, members that run go on as if they had no pool."""


def by_service(pod: Object) -> Iterable[str]:
    """``namespace/name`` of the service that a pod is of by its label."""
    name = labels(pod).get(names.SERVICE_LABEL)
    return (f"{key(pod).namespace}/{name}",) if name else ()


def read_of(service: Object) -> tuple[object, ...]:
    """What a pool reads of a member."""
    told = service.get("status") or {}
    kept = [find(service, one) or {} for one in ("Available", "Accepted", pools.GRANTED)]
    seen = [(one.get("status"), one.get("reason"), one.get("lastTransitionTime")) for one in kept]
    return told.get("phase"), told.get("desiredReplicas"), deleting(service), *seen


def resolve(world: World) -> View:
    pool = world.resource
    namespace, found = key(pool).namespace, {}
    for name in pools.member_names(pool):
        service = world.listers.get(INFERENCE_SERVICE, Key(namespace, name))
        if service is not None:
            found[name] = service
    slot = pools.slot_of(pool)
    members = [_member(world, name, found.get(name)) for name in pools.member_names(pool)]
    try:
        spec = pools.read(pool)
    except InvalidSpecError as error:
        decision = unfinished(slot, members, world.now)
        return View(world=world, spec=error, services=found, decision=decision, decided=pools.decided(pool))
    if not pools.decided(pool) and any(_unread(world, service) for service in found.values()):
        return View(world=world, spec=spec, services=found, decision=Decision(slot), decided=False)
    decision = decide(slot, members, spec.default, pools.budget(spec), world.now)
    return View(world=world, spec=spec, services=found, decision=decision, decided=True)


def _unread(world: World, service: Object) -> bool:
    """Whether the member will say whether it could start, and has not yet. One whose spec is refused never may."""
    if deleting(service) or not _owns(world, key(service).name):
        return False
    return not _granted(service) and not _refused_with(service)


def _member(world: World, name: str, service: Object | None) -> Member:
    namespace = key(world.resource).namespace
    demand = world.demand.get(Key(namespace, pods.service_name(name)))
    available = find(service, "Available") if service else None
    answers = available is not None and available["status"] == "True"
    changed = unix_time(available["lastTransitionTime"]) if available else 0.0
    return Member(
        name=name,
        able=service is not None and not deleting(service) and _granted(service) in pools.ABLE and _owns(world, name),
        gone=_gone(world, name, service),
        busy=demand.busy if demand else None,
        since=demand.since if demand else 0.0,
        answers_since=changed if answers else None,
        silent_since=0.0 if answers else changed,
        failed=((service or {}).get("status") or {}).get("phase") == "Failed",
    )


def _granted(service: Object) -> str:
    reason: str = (find(service, pools.GRANTED) or {}).get("reason", "")
    return reason


def _owns(world: World, name: str) -> bool:
    namespace, own = key(world.resource)
    pool = pools.pool_of(world.listers, f"{namespace}/{name}")
    return pool is not None and key(pool).name == own


def _gone(world: World, name: str, service: Object | None) -> bool:
    """Pods count that end, too, and those of a service that was deleted: until they are gone they have their GPUs. What
    another pool has is its own affair."""
    if service is not None and not _owns(world, name):
        return True
    wanted = ((service or {}).get("status") or {}).get("desiredReplicas", 0)
    deployment = Key(key(world.resource).namespace, pods.workload_name(name))
    return not wanted and all(map(ended, world.listers.pods_of_workload(DEPLOYMENT, deployment)))


def plan(view: View) -> Plan:
    """Raises InvalidSpecError."""
    if isinstance(view.spec, InvalidSpecError):
        raise view.spec
    namespace, slot = key(view.world.resource).namespace, view.decision.slot
    counted = {name: Key(namespace, pods.service_name(name)) for name in view.services}
    satisfied = () if slot.pending or slot.resident not in counted else (counted[slot.resident],)
    return Plan(children=(), counted=tuple(counted.values()), satisfied=satisfied)


def status(view: View, _rejection: Rejection | None) -> StatusResult:
    resource, slot = view.world.resource, view.decision.slot
    observed, awake = generation(resource), "" if slot.pending else slot.resident
    conditions = (_accepted(view), _members_valid(view), *_slot(view))
    told: Object = {
        "phase": _phase(view, conditions),
        "residentMember": slot.resident,
        "pendingMember": slot.pending,
        "members": [_of_member(view, name, awake) for name in pools.member_names(resource)],
        "observedGeneration": observed,
        "conditions": [
            msgspec.to_builtins(msgspec.structs.replace(one, observed_generation=observed)) for one in conditions
        ],
    }
    since = {"residentSince": timestamp(slot.since)} if slot.resident else {}
    return StatusResult(told | since, view.decision.recheck_seconds, PASSED_THROUGH)


def _of_member(view: View, name: str, awake: str) -> Object:
    phase = ((view.services.get(name) or {}).get("status") or {}).get("phase", "")
    return {"name": name, "phase": phase, "resident": name == awake}


def _phase(view: View, conditions: Iterable[Condition]) -> str:
    if any(one.type in ("Accepted", "MembersValid") and one.status == "False" for one in conditions):
        return "Degraded"
    if view.decision.slot.pending:
        return "Swapping"
    return "Ready" if _answers(view, view.decision.slot) else "Pending"


def _answers(view: View, slot: Slot) -> bool:
    service = view.services.get(slot.resident)
    return service is not None and (find(service, "Available") or {}).get("status") == "True"


def _accepted(view: View) -> Condition:
    if isinstance(view.spec, InvalidSpecError):
        text = f"Who has the slot keeps it. {view.spec.message}"
        return Condition("Accepted", "False", view.spec.reason, text)
    return Condition("Accepted", "True", "Valid", "Its members get the slot when requests wait for them.")


def _members_valid(view: View) -> Condition:
    world, all_names = view.world, pools.member_names(view.world.resource)
    missing = [name for name in all_names if name not in view.services]
    if missing:
        text = f"There is no InferenceService {', '.join(missing)}: the others share the slot."
        return Condition("MembersValid", "False", "MemberMissing", text)
    elsewhere = [name for name in all_names if not _owns(world, name)]
    if elsewhere:
        text = f"An older ModelPool has {', '.join(elsewhere)} as its member: the others share this slot."
        return Condition("MembersValid", "False", "MemberOfOtherPool", text)
    outside = [name for name, one in view.services.items() if _refused_with(one) == "MetalOutOfReach"]
    if outside:
        text = f"A Mac outside of the cluster computes {', '.join(outside)}, so that no pool can start it."
        return Condition("MembersValid", "False", "MetalOutOfReach", text)
    return Condition("MembersValid", "True", "Valid", "Every member is an InferenceService of this pool alone.")


def _refused_with(service: Object) -> str:
    accepted = find(service, "Accepted") or {}
    return str(accepted.get("reason", "")) if accepted.get("status") == "False" else ""


def _slot(view: View) -> tuple[Condition, ...]:
    return (_allocated(view), _deferred(view)) if view.decided else ()


def _allocated(view: View) -> Condition:
    slot = view.decision.slot
    if slot.pending:
        whose = f"{slot.resident} finishes what it has begun" if slot.resident else "the others finish what they do"
        return Condition(pools.ALLOCATED, "False", "Swapping", f"{slot.pending} gets the slot: {whose}.")
    if not slot.resident:
        return Condition(pools.ALLOCATED, "False", "NobodyAsked", "The first member that a request asks for gets it.")
    if _answers(view, slot):
        return Condition(pools.ALLOCATED, "True", "Resident", f"{slot.resident} has the slot and answers.")
    return Condition(pools.ALLOCATED, "True", "Starting", f"{slot.resident} has the slot and does not answer yet.")


def _deferred(view: View) -> Condition:
    waits = view.decision.deferred
    if waits:
        text = f"Requests wait for {waits}, until {view.decision.slot.resident} is idle or has had its turn."
        return Condition("SwapDeferred", "True", "TurnNotOver", text)
    return Condition("SwapDeferred", "False", "AsExpected", "No request waits for the slot.")
