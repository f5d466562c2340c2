"""The status of an InferenceService: phase, conditions, and its place in the queue for accelerators. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.models.placement import explain_unready, own_claim
from slipway.apis.llmkube.rules import pools, service_flags
from slipway.apis.llmkube.rules.engines import ENGINES
from slipway.apis.llmkube.rules.fields_used import fields_used
from slipway.apis.llmkube.rules.scheduling import (
    VALUES,
    WAITING,
    Scheduling,
    position,
    scheduling_of,
    scheduling_of_oldest,
)
from slipway.apis.llmkube.rules.updated import stamped
from slipway.apis.llmkube.services import autoscaling, operation, pods, runtime_settings
from slipway.apis.llmkube.services.resolve import ServiceView, priority
from slipway.apis.llmkube.services.service import METAL, Service, mode
from slipway.apis.llmkube.services.surroundings import model_of, pool_of
from slipway.engines.definition.flags import UNSUPPORTED_SETTING
from slipway.engines.definition.log_patterns import Download
from slipway.kube.objects import Object, generation, key, uid
from slipway.kube.schemas.conditions import Condition, find
from slipway.serving.containers.diagnosis import Diagnosis, Failure, Limits, diagnose
from slipway.serving.contract.api import Rejection, StatusResult, World
from slipway.serving.status.adapters import Standing, standings
from slipway.serving.status.builder import build_status, first_rejection, permanent
from slipway.serving.status.report import REPORTED, STARTING, Component, Pending, Report, model_id, report, routed

CONDITIONS = REPORTED | {
    "AdaptersLoaded",
    "Degraded",
    "FieldsUsed",
    "GPUAvailable",
    "GatewayReady",
    "RolloutDeferred",
    "SGLangSpecValid",
    "SLOReady",
    "ScalingActive",
    pools.GRANTED,
    "SpeculativeInvalid",
    "Suspended",
    "VLLMSpecValid",
}
"""Types of the conditions of InferenceServices."""
MODEL_FAILED = "ModelFailed"
PASSED_THROUGH = pools.PASSED_THROUGH | {"ModelNotReady", "NotScheduled", "LoadingAdapters", "QuotaReserved"}
"""Intermediate reasons, which cause no Events."""
OUT_OF_REACH = Rejection(
    "MetalOutOfReach",
    "The Model's accelerator is metal, a Mac outside of the cluster. Nothing is created for this service. Use"
    " another accelerator, or serve the model on the Mac.",
)


class ServiceState(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state from which the status of a service is computed."""

    service: Service | None
    """The valid service; None: it is invalid, and ``rejection`` has the reason."""
    rejection: Rejection | None
    deployment: Object | None
    diagnosis: Diagnosis
    scheduling: Scheduling | None
    pending: Pending | None
    adapters: tuple[Standing, ...]
    """The state of the LoRAAdapters that the service loads."""


def status(view: ServiceView, rejection: Rejection | None) -> StatusResult:
    observed, world = _gather_state(view, rejection), view.world
    resource = world.resource
    metadata = resource["metadata"]
    served = f"{metadata['namespace']}/{pods.service_name(metadata['name'])}"
    ids = (metadata["name"], *(observed.service.further_names if observed.service else ()))
    # A service on a Mac has no objects in the cluster, so there is no route to report.
    route = () if observed.rejection is OUT_OF_REACH else (routed(served, ids, world.routed),)
    others = (*route, *_other_conditions(view, observed), *_at_gateway(observed, route))
    fetches = observed.service is not None and observed.service.placed.way == "engine"
    starting = STARTING if fetches else "No replica answers yet."
    state = report(
        (Component(observed.deployment, observed.diagnosis),), observed.rejection, others, observed.pending, starting
    )
    fields: Object = {
        "phase": _phase(world, observed, state),
        "replicas": state.replicas,
        "desiredReplicas": _desired(world, observed),
        "readyReplicas": state.ready_replicas,
        "selector": ",".join(f"{label}={value}" for label, value in pods.selector(metadata["name"]).items()),
        **_of_service(world, observed),
        **(model_id(served, ids, world.routed) if route else {}),
        **_gateway(observed, route),
        **_adapters(observed),
        **_quota(view, rejection),
        "observedModels": _observed_models(world),
    }
    ages = operation.recycles_in(view, observed.service) if observed.service else None
    result = build_status(
        resource,
        fields,
        (*state.conditions, _degraded(state)),
        rechecks=(observed.diagnosis.recheck_seconds, ages),
        passed_through=PASSED_THROUGH,
    )
    return stamped(result, resource, CONDITIONS, world.now)


def _gather_state(view: ServiceView, rejection: Rejection | None) -> ServiceState:
    world, deployment = view.world, view.deployment
    service = view.service if isinstance(view.service, Service) else None
    outside = service is not None and service.model.hardware.accelerator == METAL
    rejection = first_rejection(rejection, view.service, OUT_OF_REACH if outside else None)
    resource = _accelerator(deployment)
    scheduling = scheduling_of_oldest(world.pods, resource)
    waits = None if permanent(rejection) else view.waits
    # Accelerators that are in use are not a failure, however long that lasts.
    started = [pod for pod in world.pods if not _queues(pod, resource)]
    diagnosis, pending = _diagnosis(world, started, service, deployment), None
    if waits and waits[0] == MODEL_FAILED:
        diagnosis = Diagnosis(Failure(*waits))
    elif waits:
        pending = Pending(*waits)
    if scheduling and scheduling.resource:
        pending = _queued(world, service, scheduling)
    return ServiceState(
        service=service,
        rejection=rejection,
        deployment=deployment,
        diagnosis=diagnosis,
        scheduling=scheduling,
        pending=pending,
        adapters=standings(pods.adapters(service).adapters, world.pods, world.agents) if service else (),
    )


def _quota(view: ServiceView, rejection: Rejection | None) -> Object:
    """Return the status field with the service's share of GPUQuotas, if it has any. A service with a rejected plan
    cannot start, however many GPUs are free. The rejection of a single object does not count, because only the objects
    of a starting service are sent."""
    refused = permanent(rejection)
    record = view.quota_while_blocked if refused and not refused.of_object else view.quota
    return {"quota": msgspec.to_builtins(record)} if record.names else {}


def _adapters(observed: ServiceState) -> Object:
    """Return the status field with an entry for each adapter, which LoRAAdapters read. The result is empty if the
    service has no adapters."""
    if not (observed.service and observed.adapters):
        return {}
    stopped = observed.deployment is not None and not observed.deployment["spec"].get("replicas", 1)
    entries = []
    for lora, one in zip(observed.service.loras, observed.adapters, strict=True):
        message = {"message": one.message} if one.message else {}
        phase = "Stopped" if stopped else one.phase
        entries.append({"name": lora.name, "path": lora.path, "phase": phase, **message})
    return {"adapters": entries}


def _adapters_loaded(observed: ServiceState) -> Condition:
    """Return the condition AdaptersLoaded, which reports whether every replica has all adapters. Each LoRAAdapter
    reports its own state."""
    for one in observed.adapters:
        if one.phase == "Failed":
            return Condition("AdaptersLoaded", "False", "AdapterFailed", f"{one.adapter.name} {one.message}")
    loading = [one.adapter.name for one in observed.adapters if one.phase == "Loading"]
    if loading:
        return Condition("AdaptersLoaded", "False", "LoadingAdapters", f"On their way: {', '.join(loading)}.")
    loaded = ", ".join(one.adapter.name for one in observed.adapters)
    return Condition("AdaptersLoaded", "True", "Loaded", f"Every replica has {loaded}.")


def _queues(pod: Object, resource: str) -> bool:
    scheduling = scheduling_of(pod, resource)
    return scheduling is not None and bool(scheduling.resource)


def _queued(world: World, service: Service | None, scheduling: Scheduling) -> Pending:
    place = f" (position {_position(world, service, scheduling)} in the queue)" if service else ""
    text = f"The pods are waiting for {scheduling.resource}{place}. Scheduler: {scheduling.message}"
    return Pending(WAITING, text)


def _position(world: World, service: Service, scheduling: Scheduling) -> int:
    number = priority(world, service)
    return position(world, VALUES["normal"] if number is None else number, scheduling.resource)


def _accelerator(deployment: Object | None) -> str:
    """Return the accelerator that the pods of the Deployment request: the first extended resource among their limits.
    The result is empty if there is no Deployment, or its pods request no accelerator."""
    containers = deployment["spec"]["template"]["spec"]["containers"] if deployment else ()
    limits = (name for one in containers for name in (one.get("resources") or {}).get("limits") or {})
    return next((name for name in limits if "/" in name), "")


def _diagnosis(
    world: World, started: Sequence[Object], service: Service | None, deployment: Object | None
) -> Diagnosis:
    runtime = world.resource["spec"].get("runtime", "llamacpp")
    engine, settings = ENGINES.get(runtime, ENGINES["generic"]), world.settings
    limits = Limits(
        startup_seconds=pods.startup_seconds(service) if service else pods.START_SECONDS,
        unschedulable_grace_seconds=settings.unschedulable_grace_seconds,
        container=engine.container,
    )
    download = Download(service.placed.weights if service else None, settings.hugging_face_endpoint)
    return diagnose(deployment, started, limits, world.now, partial(engine.explain, download=download))


def _desired(world: World, observed: ServiceState) -> int:
    """Return the desired number of replicas: the number in the Deployment, because an autoscaler may have set it, or
    the number in the spec if there is no Deployment. It is 0 for a suspended service. It is also 0 for a pool member
    that has no Deployment and gets none, so that other members need not wait for it."""
    resource, deployment = world.resource, observed.deployment
    uncreated = observed.service is None or observed.service.stopped or observed.rejection is OUT_OF_REACH
    if deployment is None and uncreated and pool_of(world):
        return 0
    spec = resource["spec"] if deployment is None else deployment["spec"]
    replicas: int = spec.get("replicas", 1)
    return 0 if resource["spec"].get("suspend") else replicas


def _phase(world: World, observed: ServiceState, state: Report) -> str:
    suspended = observed.service is not None and observed.service.spec.suspend
    refused = permanent(observed.rejection)
    ready, desired = state.ready_replicas, _desired(world, observed)
    if suspended:
        return "Suspended"
    if not ready and (refused or observed.diagnosis.failure):
        return "Failed"
    if observed.deployment is not None and desired == 0:
        return "Stopped"
    if ready:
        return "Ready" if ready >= desired else "Progressing"
    if observed.scheduling and observed.scheduling.resource:
        return WAITING
    return "Pending" if observed.pending else "Creating"


def _of_service(world: World, observed: ServiceState) -> Object:
    """Return the status fields about scheduling, the Model and the endpoint."""
    service, scheduling = observed.service, observed.scheduling
    fields: Object = {"queuePosition": 0}
    if scheduling:
        fields |= {"schedulingStatus": scheduling.status, "schedulingMessage": scheduling.message}
    if service is None:
        # Running pods keep their address even if their Model is gone.
        before = (world.resource.get("status") or {}) if observed.deployment else {}
        return fields | {name: before[name] for name in ("mode", "endpoint") if name in before}
    number = priority(world, service)
    if number is not None:
        fields["effectivePriority"] = number
    if scheduling and scheduling.resource:
        fields["waitingFor"] = f"{scheduling.resource}: {service.accelerators.count}"
        fields["queuePosition"] = _position(world, service, scheduling)
    model = model_of(world, service.spec.model_ref)
    fields |= {"mode": mode(service.spec), "modelReady": model is not None and explain_unready(model) is None}
    # A service without objects has no address either.
    outside = service.model.hardware.accelerator == METAL
    return fields if outside else fields | {"endpoint": pods.endpoint_url(service)}


def _observed_models(world: World) -> list[Object]:
    """Return the status field ``observedModels``. The generations of the Models show whether the status is newer than a
    change of a Model."""
    models = [model_of(world, name) for name in usage.model_names(world.resource)]
    return [
        {
            "name": key(model).name,
            "uid": uid(model),
            "generation": generation(model),
            "ready": explain_unready(model) is None,
        }
        for model in models
        if model
    ]


def _gateway(observed: ServiceState, route: Sequence[Condition]) -> Object:
    """Return the status field with the additional model ID at the gateway, if there is one."""
    names = observed.service.further_names if observed.service else ()
    ready = any(one.status == "True" for one in route)
    return {"gateway": {"modelName": names[0], "routeReady": ready}} if names else {}


def _at_gateway(observed: ServiceState, route: Sequence[Condition]) -> list[Condition]:
    if not (observed.service and observed.service.further_names and route):
        return []
    return [msgspec.structs.replace(one, type="GatewayReady") for one in route]


def _other_conditions(view: ServiceView, observed: ServiceState) -> tuple[Condition, ...]:
    service, world = observed.service, view.world
    if service is None:
        return runtime_settings.invalid(world.resource["spec"], observed.rejection)
    if observed.rejection is OUT_OF_REACH:
        return ()
    conditions = [fields_used(unused(service, world.resource["spec"]))]
    if service.accelerators.count and _desired(world, observed):
        conditions.append(_gpu_available(observed))
    if observed.adapters:
        conditions.append(_adapters_loaded(observed))
    if pool := pool_of(world):
        conditions.append(pools.granted(pool, service.pool, _obstacle(view, observed), off=service.is_off))
    if autoscaling.autoscaled(service):
        conditions.append(_scaling_active(world))
    conditions += runtime_settings.conditions(world, service)
    conditions += operation.conditions(view, service)
    if service.spec.suspend:
        text = "The service is suspended: it has no replicas until spec.suspend is false."
        conditions.append(Condition("Suspended", "True", "Suspended", text))
    return tuple(conditions)


def _obstacle(view: ServiceView, observed: ServiceState) -> str:
    """Return the reason why the service would not start, or an empty string if it would."""
    refused = permanent(observed.rejection)
    return refused.message if refused else (view.waits or ("", ""))[1]


def unused(service: Service, raw_spec: Object) -> dict[str, str]:
    """Return the set fields that have no effect, as a mapping from the field to the reason. ``raw_spec`` is the spec
    before it is parsed."""
    spec = service.spec
    reasons = dict.fromkeys(service_flags.fields_of_other_runtimes(spec, raw_spec), UNSUPPORTED_SETTING)
    reasons |= {field: f"{other} takes precedence" for field, other in service_flags.overridden_fields(spec).items()}
    idle, place = service.engine.without_effect(service.launch, "extraArgs"), service.placed
    reasons |= {one.field: idle[one.setting] for one in service_flags.explicit_settings(spec) if one.setting in idle}
    retired = service.renewal.changes
    reasons |= {f"extraArgs {flag}": f"the default image does not support it, {what}" for flag, what in retired.items()}
    reasons |= _overridden_fields(service) | operation.without_effect(service)
    cache = spec.model_cache
    if (cache.claim_name or cache.persistence) and place.way not in ("cache", "loader"):
        reasons["modelCache"] = "the weights come from elsewhere"
    elif cache.persistence == "Cached" and place.way == "loader" and not own_claim(spec, service.settings):
        reasons["modelCache.persistence"] = "the operator keeps no caches"
    for metric in spec.autoscaling.metrics if spec.autoscaling else ():
        if metric.type == "Resource" and not pods.asks_for(service, metric.name):
            reasons[f"autoscaling.metrics: {metric.name}"] = "the pods request none, so there is no utilization"
    if service.endpoint.node_port and service.endpoint.type == "ClusterIP":
        reasons["endpoint.nodePort"] = "a Service of type ClusterIP has none"
    if spec.resources.gpu_memory and not (service.accelerators.count and service.accelerators.vendor == "nvidia"):
        reasons["resources.gpuMemory"] = "it selects nodes with NVIDIA GPUs, and the service requests none"
    return reasons


def _overridden_fields(service: Service) -> dict[str, str]:
    """Return the fields that other fields override, as a mapping from the field to the reason."""
    spec, count = service.spec, service.model.hardware.gpu.count
    draft, decoding = spec.vllm_config.speculative, spec.speculative_decoding
    sglang = spec.sglang_config.speculative
    rows = (
        ("autoscaling", spec.autoscaling and service.is_off, "the service has no replicas"),
        ("autoscaling", spec.autoscaling and service.pool, pools.IN_POOL),
        ("replicas", spec.replicas > 1 and service.pool, pools.IN_POOL),
        (
            "resources.gpu",
            count and spec.resources.gpu not in (0, count),
            "the Model's hardware.gpu.count takes precedence",
        ),
        ("resources.memory", spec.resources.memory and spec.resources.host_memory, "hostMemory takes precedence"),
        ("priority", spec.priority != "normal" and spec.priority_class_name, "priorityClassName takes precedence"),
        (
            "sglangConfig.speculative",
            spec.runtime == "sglang" and sglang.draft_model_path and not sglang.enabled,
            "speculative.enabled is not true",
        ),
        (
            "speculativeDecoding",
            decoding and not decoding.active and (decoding.n_draft_max or decoding.p_min),
            "its type is none",
        ),
        ("vllmConfig.speculative.model", draft.model and not draft.enabled, "speculative.enabled is not true"),
    )
    return {field: why for field, idle, why in rows if idle}


def _gpu_available(observed: ServiceState) -> Condition:
    if observed.scheduling and observed.scheduling.resource:
        return Condition("GPUAvailable", "False", observed.scheduling.status, observed.scheduling.message)
    if observed.deployment is None or observed.scheduling:
        return Condition("GPUAvailable", "Unknown", "NotScheduled", "No pod has been scheduled yet.")
    return Condition("GPUAvailable", "True", "Scheduled", "No pod waits for accelerators.")


def _scaling_active(world: World) -> Condition:
    """Return the condition ScalingActive of the autoscaler, Unknown if it has none yet. Without metrics the replicas do
    not change, and no other condition shows why."""
    name = pods.workload_name(world.resource["metadata"]["name"])
    condition = find(autoscaling.observed(world, name), autoscaling.ACTIVE)
    if condition is None:
        return Condition(autoscaling.ACTIVE, "Unknown", "NotYet", "The autoscaler has not evaluated its metrics yet.")
    return Condition(autoscaling.ACTIVE, condition["status"], condition["reason"], condition.get("message", ""))


def _degraded(state: Report) -> Condition:
    """Return the condition Degraded, which is True while there is a failure that does not resolve without a change."""
    by_type = {condition.type: condition for condition in state.conditions}
    accepted, progressing = by_type["Accepted"], by_type["Progressing"]
    if accepted.status == "False":
        return Condition("Degraded", "True", accepted.reason, "See the condition Accepted.")
    if progressing.status == "False" and progressing.reason != "Complete":
        text = "See the condition Progressing." if state.ready_replicas else "See the condition Available."
        return Condition("Degraded", "True", progressing.reason, text)
    return Condition("Degraded", "False", "AsExpected", "No failure prevents serving.")
