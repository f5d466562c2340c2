"""A server's Kubernetes objects for autoscaling, priority and disruption. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from slipway.kube.objects import (
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    Object,
)
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.server import Scale
from slipway.serving.pods.workload import child

SCALE_UP: Object = {
    "stabilizationWindowSeconds": 30,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 60},
        {"type": "Pods", "value": 2, "periodSeconds": 60},
    ],
}
"""Scale-up behavior. A new replica needs minutes before it takes load off the others, so further replicas in the
meantime would be too many."""
SCALE_DOWN: Object = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}
"""Scale-down behavior: one replica at a time, and only after a long period of low load. Starting a replica costs more
than keeping one idle for a while."""
UNMOVED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations of pods that node autoscalers must not evict."""


class PolicySubject(Protocol):
    """The fields of pods and their Deployment that a policy needs. A ModelServer or a Rollout has them."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def selector(self) -> Mapping[str, str]: ...


class Target(msgspec.Struct, frozen=True):
    """A metric and its target average over the replicas."""

    type: Literal["Pods", "Resource"]
    name: str
    """Name of a pod metric, or ``cpu`` or ``memory``."""
    average: str
    """A quantity for pod metrics. For ``cpu`` and ``memory``, a percentage of the pod's request."""


def autoscaler(server: PolicySubject, lowest: int, highest: int, targets: tuple[Target, ...]) -> Object:
    """Build a HorizontalPodAutoscaler for the server's Deployment."""
    spec = {
        "scaleTargetRef": {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": server.name},
        "minReplicas": lowest,
        "maxReplicas": highest,
        "metrics": [_metric(target) for target in targets],
        "behavior": {"scaleUp": SCALE_UP, "scaleDown": SCALE_DOWN},
    }
    return child(HORIZONTAL_POD_AUTOSCALER, server.name, server.namespace, server.labels, spec=spec)


def _metric(target: Target) -> Object:
    if target.type == "Pods":
        average = {"type": "AverageValue", "averageValue": target.average}
        return {"type": "Pods", "pods": {"metric": {"name": target.name}, "target": average}}
    share = {"type": "Utilization", "averageUtilization": int(target.average)}
    return {"type": "Resource", "resource": {"name": target.name, "target": share}}


def disruption_budget(
    server: PolicySubject, scale: Scale, settings: Settings, *, protected: bool = False, limit: Object | None = None
) -> tuple[Object, ...]:
    """Build a PodDisruptionBudget that allows the eviction of one serving pod at a time, or of none if the server is
    protected.

    Pods that do not serve can always be evicted. A single unprotected pod gets no budget. If
    ``Settings.disruption_budgets`` is false, only a protected server gets a budget. ``limit`` contains ``minAvailable``
    or ``maxUnavailable`` from the spec and replaces these rules. Without a budget, the result is empty.
    """
    several = scale.replicas is None or scale.replicas > 1
    if not (limit or protected or (several and settings.disruption_budgets)):
        return ()
    spec = {
        **(limit or {"maxUnavailable": 0 if protected else 1}),
        "selector": {"matchLabels": dict(server.selector)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return (child(POD_DISRUPTION_BUDGET, server.name, server.namespace, server.labels, spec=spec),)


def priority_class(name: str, value: int, description: str, *, preempts: bool) -> Object:
    """Build a PriorityClass, which is cluster-scoped and shared by several resources. Kubernetes does not allow a
    change of its value."""
    return {
        "apiVersion": PRIORITY_CLASS.api_version,
        "kind": PRIORITY_CLASS.kind,
        "metadata": {"name": name},
        "value": value,
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
        "description": description,
    }
