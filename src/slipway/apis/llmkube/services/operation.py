"""The operation of an InferenceService: the maximum age of its pods, their protection from eviction, and its service
level objective. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.llmkube.services.resolve import ServiceView
from slipway.apis.llmkube.services.service import Service
from slipway.apis.llmkube.types.operation import Disruption, Slo
from slipway.kube.objects import Kind, Object, deleting
from slipway.kube.schemas.conditions import Condition
from slipway.kube.values.names import fitting
from slipway.kube.values.times import unix_time
from slipway.serving.containers.drain import MARGIN_SECONDS
from slipway.serving.pods.policies import UNMOVED, disruption_budget
from slipway.serving.pods.server import ModelServer, Scale
from slipway.serving.pods.workload import child

OBJECTIVE = Kind("pyrra.dev", "v1alpha1", "ServiceLevelObjective", "servicelevelobjectives")
INSTALLED_BY = "Pyrra, https://github.com/pyrra-dev/pyrra"
KARPENTER = "karpenter.sh/do-not-disrupt"
RECYCLED = "slipway.inference/recycled"
"""Annotation of pods with a time. Pods that started before or at this time exceed their maximum age."""


def pod_annotations(view: ServiceView, service: Service) -> dict[str, str]:
    """Return the annotations of the pods. They keep Karpenter from moving the pods if the spec always protects them,
    and change when pods that are too old must be replaced."""
    disruption = service.spec.disruption
    annotations = {KARPENTER: UNMOVED[KARPENTER]} if disruption and disruption.protect_always else {}
    until = _recycled_until(view, service)
    return annotations | ({RECYCLED: until} if until else {})


def _recycled_until(view: ServiceView, service: Service) -> str:
    """Return the start time of the youngest pod that is too old. A new value replaces all older pods, like ``kubectl
    rollout restart``. While no pod is too old, the current value is returned, because any change would replace the
    pods. The result is empty if no pod has been too old."""
    metadata = view.deployment["spec"].get("template", {}).get("metadata", {}) if view.deployment else {}
    before = str((metadata.get("annotations") or {}).get(RECYCLED, ""))
    limit = service.spec.max_pod_lifetime_seconds
    old = [start for start in _start_times(view) if limit and view.world.now - unix_time(start) >= limit]
    return max([before, *old])


def recycles_in(view: ServiceView, service: Service) -> float | None:
    """Return the seconds until the next pod is too old; None if pods have no maximum age, or none will reach it."""
    limit = service.spec.max_pod_lifetime_seconds
    remaining = [unix_time(start) + limit - view.world.now for start in _start_times(view)] if limit else []
    return min((seconds for seconds in remaining if seconds > 0), default=None)


def _start_times(view: ServiceView) -> Iterable[str]:
    pods = (pod for pod in view.world.pods if not deleting(pod))
    return [start for pod in pods if (start := str((pod.get("status") or {}).get("startTime") or ""))]


def budget(view: ServiceView, service: Service, server: ModelServer, scale: Scale) -> tuple[Object, ...]:
    """Build the PodDisruptionBudget of a service, if it gets one. No pod is evicted while another pod is starting,
    unless the service allows that. If the operator disables budgets, only services that request one get it."""
    settings, protected = view.world.settings, service.spec.eviction_protection
    budgets = disruption_budget(server, scale, settings, protected=protected)
    asks = service.spec.disruption or (Disruption() if settings.disruption_budgets else None)
    if protected or not (asks and asks.protect_startup) or scale.replicas == 0 or not _starts(view):
        return budgets
    [whole] = disruption_budget(server, scale, settings, protected=True)
    return ({**whole, "spec": {**whole["spec"], "unhealthyPodEvictionPolicy": "IfHealthyBudget"}},)


def _starts(view: ServiceView) -> bool:
    """Whether some of the pods do not answer yet. A rollout that exceeds its deadline does not count, because its pods
    must not block a node drain."""
    if view.deployment is None:
        return view.waits is None
    spec, status = (view.deployment.get(part) or {} for part in ("spec", "status"))
    overdue = ("Progressing", "False")
    if any((one.get("type"), one.get("status")) == overdue for one in status.get("conditions") or ()):
        return False
    return int(status.get("readyReplicas", 0)) < int(spec.get("replicas", 1))


def objective(service: Service, server: ModelServer) -> tuple[Object, ...]:
    """Build the ServiceLevelObjective from which Pyrra creates rules. It uses the metric labels of the role
    ``monitoring``. The result is empty if the service has no objective, or its runtime lacks the metric."""
    slo = service.spec.slo
    if slo is None or not measured(service, slo):
        return ()
    labels = f'namespace="{service.namespace}",model="{service.name}"'
    latency = {
        "success": {"metric": f'vllm:e2e_request_latency_seconds_bucket{{{labels},le="{slo.latency_threshold}"}}'},
        "total": {"metric": f"vllm:e2e_request_latency_seconds_count{{{labels}}}"},
    }
    indicator = {"latency": latency} if slo.indicator == "latency" else {"bool_gauge": {"metric": f"up{{{labels}}}"}}
    description = f"{slo.indicator} of the model {service.name}"
    spec = {"target": slo.objective, "window": slo.window, "description": description, "indicator": indicator}
    return (child(OBJECTIVE, objective_name(service.name, slo), server.namespace, server.labels, spec=spec),)


def objective_name(service: str, slo: Slo) -> str:
    return fitting(slo.name or f"{service}-{slo.indicator}")


def measured(service: Service, slo: Slo) -> bool:
    """Whether the service's runtime has the metric that an objective needs."""
    return slo.indicator == "availability" or service.spec.runtime == "vllm"


def conditions(view: ServiceView, service: Service) -> list[Condition]:
    """Return the conditions about the service level objective, if the spec has one, and about the rollout policy, if it
    waits for idle replicas."""
    outcomes = []
    if service.spec.slo:
        outcomes.append(_objective(view, service, service.spec.slo))
    if service.waits_for_idle:
        outcomes.append(_rollout(service))
    return outcomes


def _rollout(service: Service) -> Condition:
    """Return the condition RolloutDeferred, which reports how a rollout replaces pods."""
    drain = service.engine.drain(service.settings.drain_seconds)
    if not _finishes(service):
        text = (
            "Rollouts do not wait for idle replicas, because it is unknown whether a pod is idle. A terminating pod"
            f" gets no new requests, and has {drain.grace_seconds - MARGIN_SECONDS} seconds for its current ones."
        )
        return Condition("RolloutDeferred", "False", "IdleCheckUnsupported", text)
    text = (
        "Rollouts start at once and replace one pod at a time. A terminating pod gets no new requests, and has"
        f" {drain.seconds} seconds for its current ones."
    )
    return Condition("RolloutDeferred", "False", "PodsFinish", text)


def _finishes(service: Service) -> bool:
    """Whether a terminating pod continues until it has finished its requests."""
    drain = service.engine.drain(service.settings.drain_seconds)
    return drain.shell and drain.seconds > 0


def _objective(view: ServiceView, service: Service, slo: Slo) -> Condition:
    if not measured(service, slo):
        text = f"The runtime {service.spec.runtime} has no latency metric, so no objective is created."
        return Condition("SLOReady", "False", "IndicatorUnsupportedForRuntime", text)
    name = objective_name(service.name, slo)
    if view.world.child(OBJECTIVE, name) is None:
        text = f"There is no ServiceLevelObjective {name} yet; it needs {INSTALLED_BY}."
        return Condition("SLOReady", "False", "NotCreated", text)
    return Condition("SLOReady", "True", "SLOCreated", f"The ServiceLevelObjective {name} exists for Pyrra.")


def without_effect(service: Service) -> dict[str, str]:
    """Return the fields for operation that have no effect, as a mapping from the field to the reason."""
    spec, sharing = service.spec, service.spec.resources.gpu_sharing
    patience, seconds = spec.max_pod_lifetime_idle_timeout_seconds, service.settings.drain_seconds
    unknown, limit = "it is unknown whether a pod is idle", f"a terminating pod has {seconds} seconds for its requests"
    longer = spec.rollout_policy.idle_timeout_seconds > seconds
    rows = (
        ("rolloutPolicy.waitForIdle", service.waits_for_idle and not _finishes(service), unknown),
        ("rolloutPolicy.idleTimeoutSeconds", service.waits_for_idle and longer, limit),
        ("maxPodLifetimeIdleTimeoutSeconds", patience is not None, limit),
        ("resources.gpuSharing.memoryLimitGiB", sharing.memory_limit_gi_b, "it is not enforced"),
        ("endpoint.gateway.gatewayRef", service.further_names, "Slipway's own gateway serves the model"),
        ("slo", spec.slo and not measured(service, spec.slo), "the runtime has no latency metric"),
    )
    return {field: why for field, idle, why in rows if idle}
