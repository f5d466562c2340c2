"""The status of a GPUQuota, which has no children: its usage, and the waiting services. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from slipway.apis.llmkube.rules import quotas
from slipway.apis.llmkube.rules.fields_used import fields_used
from slipway.apis.llmkube.types.quota import GPUQuotaSpec
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.objects import Object, key, uid
from slipway.kube.schemas.conditions import Condition, timestamp
from slipway.serving.contract.api import InvalidSpecError, Plan, Rejection, StatusResult, World
from slipway.serving.status.builder import build_status, first_rejection, verdict

CONDITIONS = frozenset({"Accepted", "Exceeded", "FieldsUsed"})
"""Types of the conditions of GPUQuotas."""
WITHOUT_EFFECT = {
    "vramBytes": "GPU memory is not measured",
    "costBudgetRef": "the kind CostBudget does not exist",
}


MOST_DIGESTS, DIGEST_LENGTH = 256, 12


class QuotaView(msgspec.Struct, frozen=True):
    """A GPUQuota, valid or not."""

    world: World
    spec: GPUQuotaSpec | InvalidSpecError


def resolve(world: World) -> QuotaView:
    resource = world.resource
    try:
        spec = msgspec.convert(resource["spec"], GPUQuotaSpec)
        quotas.requirements(resource)
    except (msgspec.ValidationError, quotas.InvalidSelectorError) as error:
        return QuotaView(world, InvalidSpecError("InvalidSpec", f"spec: {error}"))
    return QuotaView(world, spec)


def plan(view: QuotaView) -> Plan:
    """Return an empty plan. Raise InvalidSpecError if the quota is invalid."""
    if isinstance(view.spec, InvalidSpecError):
        raise view.spec
    return Plan(children=())


def status(view: QuotaView, rejection: Rejection | None) -> StatusResult:
    world, resource = view.world, view.world.resource
    name = str(key(resource))
    used = quotas.used(world.listers, name)
    waiting = world.listers.count(INFERENCE_SERVICE, quotas.DENIED, name)
    before: Object = resource.get("status") or {}
    digests = _digests(world, name) if waiting <= MOST_DIGESTS else None
    more = _denials(before, digests, waiting)
    accepted = verdict(
        first_rejection(_fault(view), rejection), "Services in its namespaces start while the quota has enough GPUs."
    )
    conditions = (accepted, _exceeded(view, used), _fields_used(resource["spec"]))
    fields: Object = {
        "usedGPUCount": used,
        "usedVRAMBytes": 0,
        "waiting": waiting,
        **({"waitingDigests": digests} if digests else {}),
        "admissionDenials": before.get("admissionDenials", 0) + more,
    }
    last = timestamp(world.now) if more else before.get("lastDenial")
    return build_status(resource, fields, conditions, trailing={"lastDenial": last} if last else {})


def _digests(world: World, name: str) -> list[str]:
    services = world.listers.list(INFERENCE_SERVICE, quotas.DENIED, name)
    return sorted(hashlib.sha256(uid(one).encode()).hexdigest()[:DIGEST_LENGTH] for one in services)


def _denials(before: Object, digests: list[str] | None, waiting: int) -> int:
    """Return the number of services that have begun to wait since the status ``before``. If digests are missing,
    because too many services wait or the cluster's definition lacks the field, only an increase of the total counts."""
    previous: list[str] | None = before.get("waitingDigests", None if before.get("waiting") else [])
    if digests is None or previous is None:
        return max(0, waiting - int(before.get("waiting", 0)))
    return len(set(digests).difference(previous))


def _fault(view: QuotaView) -> Rejection | None:
    if isinstance(view.spec, InvalidSpecError):
        return Rejection(view.spec.reason, f"The quota has no effect. {view.spec.message}")
    return None


def _exceeded(view: QuotaView, used: int) -> Condition:
    """Return the condition Exceeded, for ``used`` GPUs. A quota that is exceeded never stops running services."""
    if not isinstance(view.spec, InvalidSpecError) and used > view.spec.gpu_count:
        text = f"{used} GPUs are in use, and {view.spec.gpu_count} allowed. Running services continue."
        return Condition("Exceeded", "True", "QuotaExceeded", text)
    return Condition("Exceeded", "False", "AsExpected", "The quota is not exceeded.")


def _fields_used(spec: Object) -> Condition:
    return fields_used({field: why for field, why in WITHOUT_EFFECT.items() if spec.get(field)})
