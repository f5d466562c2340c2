"""Status of an InferenceService: the state of its components, as conditions and in the status fields of the original
OME. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components import overlay, predictor
from slipway.apis.ome.runtimes.selection import excluded_status, runtime_status
from slipway.apis.ome.services import rollout as service_rollout
from slipway.apis.ome.services.fields import ComponentState, address_of, component_fields, model_status
from slipway.apis.ome.services.resolve import ServiceView
from slipway.apis.ome.services.service import Part, Service, workload_names
from slipway.apis.ome.types import fields_ignored
from slipway.kube.objects import DEPLOYMENT, Object, key, labels
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import NO_NODE, Diagnosis, Limits, diagnose
from slipway.serving.contract.api import Rejection, StatusResult
from slipway.serving.pods.groups import LEADER_WORKER_SET, as_workload
from slipway.serving.status.builder import build_status, first_rejection, verdict
from slipway.serving.status.report import REPORTED, Component, Pending, model_id, report, routed

CANARY = "canary"
READY = {"engine": "EngineReady", "decoder": "DecoderReady", "router": "RouterReady", CANARY: "CanaryReady"}
"""Component, or CANARY -> type of the condition that reports whether it is ready."""
CONDITIONS = REPORTED | {
    *READY.values(),
    "IngressReady",
    "RuntimeFits",
    "FieldsIgnored",
    "PredictorDeprecated",
    # Conditions of the original OME.
    "PredictorReady",
    "RoutesReady",
    "LatestDeploymentReady",
}
"""Condition types of InferenceServices."""
NOT_READY = "BaseModelNotReady"
PASSED_THROUGH = frozenset({NOT_READY})
"""Reasons of conditions that are transient states of a service, not errors."""
OF_ENGINES = frozenset({"StartupTimeout", "CrashLoopBackOff"})
"""Reasons of a router's failures that only mean that no engine is ready yet. A router without engines is not ready, and
the kubelet restarts it after some time."""


def status(view: ServiceView, rejection: Rejection | None) -> StatusResult:
    world = view.world
    service = view.service if isinstance(view.service, Service) else None
    pending = _pending(service)
    rejection = first_rejection(rejection, view.service)
    if rejection is not None and rejection.reason == NOT_READY:
        # Not an error: the model's metadata will be known once its files have been inspected.
        rejection, pending = msgspec.structs.replace(rejection, retryable=True), Pending(NOT_READY, rejection.message)
    if service is not None and not service.parts:
        return _virtual(world.resource, rejection)
    components, tried = _observe_components(view, service), _observe_canary(view, service)
    namespace, name = key(world.resource)
    if components and all(one.component.ready for one in components):
        pending = None
    served, ids = f"{namespace}/{name}", service.model_ids if service else (name,)
    # While a router waits for engines, no component is ready. What matters is that the engines are scaled to zero.
    asleep = [one for one in components if one.is_asleep]
    state = report(
        [one.component for one in asleep or components] or [Component(None, Diagnosis())],
        rejection,
        (
            routed(served, ids, world.routed),
            *map(_ready, [*components, *tried]),
            Condition("IngressReady", "True", "IngressDisabled", "The gateway replaces an ingress."),
            *_optional_conditions(view, service),
        ),
        pending,
        "No replica answers yet.",
    )
    entry = next((one for one in components if one.name == "router"), next(iter(components), None))
    counts = ((entry.workload if entry else None) or {}).get("status") or {}
    result: Object = {
        **_addresses(world.resource, service),
        **model_id(served, ids, world.routed),
        "components": {one.name: component_fields(view, service, one) for one in components},
        "modelStatus": model_status(components, rejection),
        **({"runtime": runtime} if view.selection and (runtime := runtime_status(view.selection)) else {}),
        **_excluded(view),
        "replicas": counts.get("replicas", 0),
        "readyReplicas": counts.get("readyReplicas", 0),
    }
    rechecks = [one.diagnosis.recheck_seconds for one in (*components, *tried)]
    return build_status(world.resource, result, state.conditions, rechecks=rechecks, passed_through=PASSED_THROUGH)


def _virtual(resource: Object, rejection: Rejection | None) -> StatusResult:
    """Return the status of a virtual service, for which no workload is created."""
    text = "The service is virtual: nothing is created for it."
    conditions = (
        verdict(rejection, text),
        Condition("Available", "True", "VirtualDeployment", text),
        Condition("Progressing", "False", "Complete", text),
    )
    return build_status(resource, address_of(resource, 80), conditions)


def _observe_components(view: ServiceView, service: Service | None) -> list[ComponentState]:
    """Return the state of each component of a valid service, or of each component of an invalid service that has a
    workload."""
    world, components = view.world, []
    for name in overlay.NAMES:
        part = service.part(name) if service else None
        own = ((part.kind, part.workload_name),) if part else workload_names(key(world.resource).name, name)
        there = (world.child(*one) for one in own)
        workload = next((one for one in there if one is not None), None)
        if part is None and (service is not None or workload is None):
            continue
        if workload is not None and workload["kind"] == LEADER_WORKER_SET.kind:
            workload = as_workload(workload)
        pods = _pods(view, names.component_name(key(world.resource).name, name))
        components.append(
            ComponentState(name=name, workload=workload, pods=pods, diagnosis=_diagnosis(view, part, workload, pods))
        )
    return [_without_consequences(one, components, service) for one in components]


def _pods(view: ServiceView, name: str) -> list[Object]:
    """Return the pods of the component or canary with the given name."""
    return [pod for pod in view.world.pods if labels(pod).get(service_rollout.APP) == name]


def _observe_canary(view: ServiceView, service: Service | None) -> list[ComponentState]:
    """Return a list with the state of the canary, or an empty list if the service has no canary or cannot be served."""
    part = service.routed if service else None
    name = service_rollout.canary_name(service.name, part.component.name) if service and part else ""
    workload = view.world.child(DEPLOYMENT, name)
    if part is None or workload is None:
        return []
    pods = _pods(view, name)
    return [ComponentState(name=CANARY, workload=workload, pods=pods, diagnosis=_diagnosis(view, part, workload, pods))]


def _diagnosis(view: ServiceView, part: Part | None, workload: Object | None, pods: Sequence[Object]) -> Diagnosis:
    settings, engine = view.world.settings, part.recognised.engine if part else None
    limits = Limits(
        startup_seconds=service_rollout.startup_seconds(part.runner) if part else service_rollout.START_SECONDS,
        unschedulable_grace_seconds=settings.unschedulable_grace_seconds,
        container=part.runner.get("name", "") if part else "",
    )
    return diagnose(workload, pods, limits, view.world.now, engine.explain if engine else lambda _log: None)


def _without_consequences(
    one: ComponentState, parts: Sequence[ComponentState], service: Service | None
) -> ComponentState:
    """Return the state of a component without failures that are only consequences of another component that is not
    ready, or of files that no node has yet."""
    failure = one.diagnosis.failure
    waits = one.name == "router" and not all(other.component.ready for other in parts if other.name != "router")
    nowhere = failure is not None and failure.reason in NO_NODE and _pending(service) is not None
    if nowhere or (waits and failure is not None and failure.reason in OF_ENGINES):
        return msgspec.structs.replace(one, diagnosis=Diagnosis(None, one.diagnosis.recheck_seconds))
    return one


def _pending(service: Service | None) -> Pending | None:
    """Return the reason why pods cannot start yet: a model or weights of the service are not Ready. Return None if all
    are Ready, or if ``service`` is None."""
    models = (*([service.model] if service.model else []), *service.weights) if service else ()
    unready = next((one for one in models if (one.get("status") or {}).get("state") != names.READY), None)
    if unready is None:
        return None
    text = f"The {unready['kind']} {key(unready).name} is not ready on any node. See its status."
    return Pending(NOT_READY, text)


def _ready(one: ComponentState) -> Condition:
    component, failure = one.component, one.diagnosis.failure
    if component.ready:
        text = f"{component.ready} replica{'s answer' if component.ready > 1 else ' answers'}."
        return Condition(READY[one.name], "True", "Ready", text)
    if failure:
        return Condition(READY[one.name], "False", failure.reason, failure.message)
    if one.is_asleep:
        return Condition(READY[one.name], "False", "ScaledToZero", "Scaled to zero replicas.")
    return Condition(READY[one.name], "False", "WaitingForPods", "No replica answers yet.")


def _optional_conditions(view: ServiceView, service: Service | None) -> list[Condition]:
    """Return the conditions RuntimeFits, FieldsIgnored and PredictorDeprecated, each only if it applies."""
    resource, chosen = view.world.resource, view.selection.chosen if view.selection else None
    conditions = []
    if chosen and chosen.unfit:
        unfit = f"{chosen.reference.name} does not match this model, but the service names it explicitly"
        conditions.append(Condition("RuntimeFits", "False", "RuntimeUnfit", f"{unfit}: {'; '.join(chosen.unfit)}."))
    elif chosen and service and service.model and service.model["spec"].get("modelFormat"):
        text = f"{chosen.reference.name} matches this model."
        conditions.append(Condition("RuntimeFits", "True", "Fits", text))
    idle = (f"{one} Its minReplicas 0 is treated as 1." for one in (_not_woken(service) if service else ()))
    conditions += fields_ignored.condition(resource["spec"], fields_ignored.SERVICES, *idle)
    if predictor.used(resource):
        text = "spec.predictor is read as spec.engine, spec.model and spec.runtime. Use these fields instead."
        conditions.append(Condition("PredictorDeprecated", "True", "Deprecated", text))
    return conditions


def _not_woken(service: Service) -> list[str]:
    """Return a sentence for each component that requests scaling by requests although another component already
    does."""
    first = service.by_requests
    idle = (one for one in service.parts if one.scaler.by == "requests" and one is not first)
    return [
        f"The replicas of the {one.component.name} do not scale with the requests, because only one part can."
        for one in idle
    ]


def _excluded(view: ServiceView) -> Object:
    selection = view.selection
    if selection is None or not selection.excluded:
        return {}
    return {"excluded": excluded_status(selection), "excludedCount": selection.excluded_count}


def _addresses(resource: Object, service: Service | None) -> Object:
    part = service.routed if service else None
    if part is not None:
        return address_of(resource, part.port)
    before = resource.get("status") or {}  # running pods still receive requests at the same address
    return {field: before[field] for field in ("url", "address") if field in before}
