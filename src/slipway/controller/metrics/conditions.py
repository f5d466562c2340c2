"""The conditions of all resources as metrics, computed from the stores at each scrape.

A deleted resource therefore leaves no series behind. Every controller process exposes the metrics, whether or not it is
the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slipway.kube.caches.informer import Informer
from slipway.kube.objects import key

LABELS = ("kind", "namespace", "name", "type", "reason")
_VALUES = {"True": 1, "False": 0}
"""Metric values by condition status. Conditions with status Unknown or without a status are not exposed."""


class ConditionsCollector(Collector):
    """A Prometheus collector of the conditions of all resources in the given informers."""

    def __init__(self, resources: Sequence[Informer]) -> None:
        self._resources = tuple(resources)

    def collect(self) -> Iterable[Metric]:
        """Yield the metric family. The registry calls this at each scrape."""
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
