"""Scaling: the choice of an autoscaler for the replicas of a component. Pure.

The Kubernetes autoscaler uses CPU or memory, KEDA a Prometheus query, and Slipway's autoscaler the requests at the
gateway. Only Slipway's autoscaler scales to zero, because the gateway holds requests until a replica is ready. A
component with groups of pods is only scaled by KEDA or by requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components.keda import Trigger
from slipway.apis.ome.types.component import ComponentExtensionSpec, KedaConfig
from slipway.engines.definition.engine import Metrics
from slipway.serving.contract.api import InvalidSpecError

CLASSES = ("hpa", "keda", "external")
UTILIZATION, CONCURRENCY = 80, 100
"""Default targets: percent of CPU or memory, and number of in-flight requests per replica."""
INTERVAL, WINDOW, DELAY = 10.0, 600.0, 30.0
"""Timing of Slipway's autoscaler, in seconds. See :class:`slipway.serving.routing.scaling.Scaling`."""
ANNOTATIONS = {
    "server": ("autoscaling.keda.sh/prometheus.serverAddress", "prom_server_address"),
    "query": ("autoscaling.keda.sh/prometheus.query", "custom_prom_query"),
    "threshold": ("autoscaling.keda.sh/threshold", "scaling_threshold"),
    "operator": ("autoscaling.keda.sh/operator", "scaling_operator"),
    "auth_modes": ("", "auth_modes"),
}
"""Field of a Trigger -> the annotation for the field, and the KedaConfig field that applies if the annotation is
missing or empty. The name of the annotation is empty if none sets the field."""
RUNNING = "vllm:num_requests_running"
"""Prometheus metric for requests in flight that KEDA uses if the engine's own metrics are unknown."""


class Scaler(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that determine the replicas of one component."""

    by: Literal["none", "resources", "requests", "keda", "external"]
    """The autoscaler: ``resources`` is that of Kubernetes, ``requests`` is Slipway's, and ``external`` is one of the
    author. ``none`` keeps ``lowest`` replicas."""
    lowest: int
    highest: int
    metric: str = ""
    target: int = 0
    """Target of the metric: percent of CPU or memory per replica, or average number of in-flight requests per replica.
    0 for other autoscalers."""


def scaler(
    name: str,
    extension: ComponentExtensionSpec,
    annotations: Mapping[str, str],
    keda: KedaConfig | None,
    *,
    group: bool,
) -> Scaler:
    """Return the scaler that a component requests. ``name``: the component's name for messages; ``annotations``: the
    service's annotations, overridden by the component's; ``keda``: the service's KedaConfig; ``group``: whether a
    replica consists of several pods. Raise InvalidSpecError for settings that no autoscaler supports."""
    lowest = 1 if extension.min_replicas is None else extension.min_replicas
    highest = max(extension.max_replicas or lowest, lowest)
    metric = extension.scale_metric or annotations.get(names.METRICS) or "cpu"
    chosen, utilization = _class(annotations, extension.keda_config, keda), _utilization(annotations)
    if chosen == "external":
        return Scaler(by="external", lowest=lowest, highest=highest)
    if chosen == "keda":
        return Scaler(by="keda", lowest=max(lowest, 1), highest=highest, metric=extension.scale_metric or "tps")
    if metric in ("rps", "tps"):
        instead = f"set the annotation {names.AUTOSCALER_CLASS}: keda, or use scaleMetric: concurrency"
        raise InvalidSpecError("ScaleMetricNotServed", f"spec.{name}: only KEDA scales by {metric}: {instead}")
    if metric == "concurrency" or lowest == 0:
        own_target = extension.scale_target if metric == "concurrency" else None
        target = max(own_target or extension.container_concurrency or CONCURRENCY, 1)
        return Scaler(by="requests", lowest=lowest, highest=highest, metric=metric, target=target)
    if metric not in ("cpu", "memory"):
        raise InvalidSpecError("InvalidSpec", f"{names.METRICS}: {metric[:32]!r} is neither cpu nor memory")
    if group or lowest == highest:
        return Scaler(by="none", lowest=lowest, highest=lowest)
    target = max(utilization or extension.scale_target or UTILIZATION, 1)
    return Scaler(by="resources", lowest=lowest, highest=highest, metric=metric, target=target)


def trigger(
    name: str,
    workload: str,
    extension: ComponentExtensionSpec,
    annotations: Mapping[str, str],
    keda: KedaConfig | None,
    usual: str,
) -> Trigger:
    """Return the KEDA trigger of a component. For each field, annotations take precedence over the component's
    KedaConfig, and the component's over the service's ``keda``. ``usual`` is the default query. In a configured query,
    ``%s`` is replaced by ``workload``. ``name`` is the component's name for messages.

    Raise InvalidSpecError if KEDA would reject the trigger.
    """
    configs = [one for one in (extension.keda_config, keda) if one]
    settings = {
        field: next((text for text in (annotations.get(first), *(getattr(one, second) for one in configs)) if text), "")
        for field, (first, second) in ANNOTATIONS.items()
    }
    settings["query"] = settings["query"].replace("%s", workload) or usual
    credentials = next((one.authentication_ref for one in configs if one.authentication_ref), None)
    keda_trigger = Trigger(
        metric=extension.scale_metric or "tps",
        authentication=msgspec.to_builtins(credentials) if credentials else None,
        **{field: text for field, text in settings.items() if text},
    )
    if fault := keda_trigger.fault():
        raise InvalidSpecError("InvalidSpec", f"spec.{name}: KEDA cannot scale it: {fault}")
    return keda_trigger


def running_requests(metrics: Metrics | None, namespace: str, workload: str) -> str:
    """Return a Prometheus query for the number of requests in flight in a workload's pods. If ``metrics`` has no metric
    for them, the query uses RUNNING."""
    metric = (metrics.running if metrics else "") or RUNNING
    return f'sum({metric}{{namespace="{namespace}",pod=~"{workload}-.*"}})'


def _class(annotations: Mapping[str, str], *configs: KedaConfig | None) -> str:
    class_name = annotations.get(names.AUTOSCALER_CLASS)
    if class_name is None:
        enabled = next((one.enable_keda for one in configs if one and one.enable_keda is not None), False)
        return "keda" if enabled else "hpa"
    if class_name not in CLASSES:
        raise InvalidSpecError(
            "InvalidSpec", f"{names.AUTOSCALER_CLASS}: {class_name[:32]!r} is not one of {', '.join(CLASSES)}"
        )
    return class_name


def _utilization(annotations: Mapping[str, str]) -> int:
    """Return the target utilization in percent, or 0 if the annotation is missing. Raise InvalidSpecError unless the
    value is an integer from 1 to 100."""
    text = annotations.get(names.TARGET_UTILIZATION)
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= 100):
        text = f"{names.TARGET_UTILIZATION}: {text[:32]!r} is not a percentage from 1 to 100"
        raise InvalidSpecError("InvalidSpec", text)
    return int(text)
