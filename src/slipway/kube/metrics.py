"""The runtime's own metrics, under the names that Kubernetes controllers use, and their text form for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """One registry a process. Callers may add metrics of their own to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "rest_client_requests", "Requests to the API server.", ["code", "method"], registry=self.registry
        )
        self.queue_depth = Gauge("workqueue_depth", "Keys that wait.", ["name"], registry=self.registry)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited.",
            ["name"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.reconciles = Counter(
            "reconcile", "Reconciliations by result.", ["controller", "result"], registry=self.registry
        )
        self.reconcile_seconds = Histogram(
            "reconcile_time_seconds",
            "How long reconciliations took.",
            ["controller"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.informer_lists = Counter("informer_lists", "Full lists taken.", ["kind"], registry=self.registry)
        self.object_faults = Gauge(
            "slipway_object_faults",
            "Objects that cannot be used as they are; each has an Event that says why.",
            ["kind"],
            registry=self.registry,
        )
        self.leading = Gauge(
            "leader_election_master_status", "1 while this process leads.", ["name"], registry=self.registry
        )
        self.events_dropped = Counter(
            "events_dropped", "Events that were not written, the server being away.", registry=self.registry
        )

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)
