"""Measurements of resources, as their APIs define them, as metrics that are computed from the stores at each scrape.

Every controller process exposes the metrics, whether or not it is the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slipway.apis.description import Description
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Kind
from slipway.serving.contract.settings import Settings


class SamplesCollector(Collector):
    """A Prometheus collector of the measurements that the given APIs define."""

    def __init__(self, apis: Iterable[Description], resources: Sequence[Informer], settings: Settings) -> None:
        """Create a collector. ``resources`` are the informers of the APIs' kinds."""
        self._measures = [api.samples for api in apis if api.samples is not None]
        self._resources: Mapping[Kind, Informer] = {informer.kind: informer for informer in resources}
        self._settings = settings

    def collect(self) -> Iterable[Metric]:
        """Return the metric families. The registry calls this at each scrape."""
        families: dict[str, GaugeMetricFamily] = {}
        there = {kind: informer.store.all() for kind, informer in self._resources.items()}
        for measure in self._measures:
            for name, text, labels, value in measure(there, self._settings):
                family = families.setdefault(name, GaugeMetricFamily(name, text, labels=tuple(labels)))
                family.add_metric(tuple(labels.values()), value)
        return families.values()
