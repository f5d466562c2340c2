"""The conditions of all resources as metrics, computed from the stores at each scrape.

A deleted resource therefore leaves no series behind. Every controller exposes them, whether or not it is the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slipway.kube.caches.informer import Informer
from slipway.kube.objects import key

LABELS = ("kind", "namespace", "name", "type", "reason")
_VALUES = {"True": 1, "False": 0}
"""Unknown conditions, and those without a status, are not exposed: one of them must not hide all others."""


class ConditionsCollector(Collector):
    """Exposes the conditions of these informers' resources."""

    def __init__(self, resources: Sequence[Informer]) -> None:
        self._resources = tuple(resources)

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics; called by the registry."""
        family = GaugeMetricFamily(
            "slipway_resource_condition",
            "1 if a condition of a resource is true, 0 if it is false.",
            labels=LABELS,
        )
        for informer in self._resources:
            kind = f"{informer.kind.plural}.{informer.kind.group}"
            for resource in informer.store.all():
                for condition in (resource.get("status") or {}).get("conditions") or ():
                    value = _VALUES.get(condition.get("status"))
                    if value is not None:
                        labels = (kind, *key(resource), condition.get("type", ""), condition.get("reason", ""))
                        family.add_metric(labels, value)
        yield family
