"""The replicas of an InferenceService, and its HorizontalPodAutoscaler. Pure."""

from __future__ import annotations

from slipway.apis.llmkube.rules.engines import scaling_metric
from slipway.apis.llmkube.services.service import Service, quantity
from slipway.apis.llmkube.types.service import Metric
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, Object
from slipway.serving.contract.api import InvalidSpecError, World
from slipway.serving.pods.policies import Target, autoscaler
from slipway.serving.pods.server import ModelServer

REQUESTS = "2"
"""Default target for requests per replica."""
ACTIVE = "ScalingActive"
"""Type of the autoscaler's condition: whether it can read its metrics."""


def autoscaled(service: Service) -> bool:
    return service.spec.autoscaling is not None and not service.stopped and service.pool is None


def observed(world: World, name: str) -> Object:
    """Return the existing autoscaler ``name``, or an empty dict if there is none."""
    return world.child(HORIZONTAL_POD_AUTOSCALER, name) or {}


def replicas(world: World, service: Service, name: str) -> int | None:
    """Return the replicas to set in the Deployment ``name``, or None if only the autoscaler may set them.

    Until the autoscaler has set the replicas for the first time, their current number, or else the number in the spec,
    is set within the autoscaler's limits, because a Deployment without the field has one replica.
    """
    bounds = service.spec.autoscaling
    if service.stopped:
        return 0
    if service.pool:
        return 1
    if bounds is None:
        return service.spec.replicas
    running = (world.child(DEPLOYMENT, name) or {}).get("spec", {}).get("replicas", 0)
    if running and (observed(world, name).get("status") or {}).get("lastScaleTime"):
        return None
    first: int = running or service.spec.replicas
    return max(min(first, bounds.max_replicas), bounds.min_replicas)


def scaler(service: Service, server: ModelServer, most: int | None = None) -> Object:
    """Build the autoscaler, which follows the metrics in the spec or, if there are none, the requests per replica. The
    service must have ``spec.autoscaling``. ``most`` is an additional limit on replicas, of which at least one remains;
    None: no limit. Raise InvalidSpecError if the limits or metrics are invalid."""
    bounds = service.spec.autoscaling
    if bounds is None:
        raise ValueError("the service is not scaled")
    if bounds.min_replicas > bounds.max_replicas:
        raise InvalidSpecError("InvalidSpec", "spec.autoscaling: minReplicas is more than maxReplicas")
    usual = Target("Pods", scaling_metric(service.engine), REQUESTS)
    targets = tuple(_target(metric) for metric in bounds.metrics) or (usual,)
    upper = bounds.max_replicas if most is None else max(1, min(most, bounds.max_replicas))
    return autoscaler(server, min(bounds.min_replicas, upper), upper, targets)


def _target(metric: Metric) -> Target:
    """Convert a metric of the spec to a target of the autoscaler. Raise InvalidSpecError if the metric has no valid
    target value, because the API server would reject it or use another target."""
    field = f"autoscaling.metrics: {metric.name}"
    if metric.type == "Pods":
        if not metric.target_average_value:
            raise InvalidSpecError("InvalidSpec", f"spec.{field} has no targetAverageValue")
        return Target("Pods", metric.name, quantity(field, metric.target_average_value))
    if (metric.target_average_utilization or 0) < 1:
        raise InvalidSpecError("InvalidSpec", f"spec.{field} has no targetAverageUtilization")
    return Target("Resource", metric.name, str(metric.target_average_utilization))
