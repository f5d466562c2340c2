"""Metrics of the controller runtime, with the names that Kubernetes controllers use, and their Prometheus text
format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The metrics registry of the process. Callers may add their own metrics to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "rest_client_requests", "Requests to the API server.", ["code", "method"], registry=self.registry
        )
        self.queue_depth = Gauge("workqueue_depth", "Keys in the queue.", ["name"], registry=self.registry)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that keys waited in the queue.",
            ["name"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.reconciles = Counter(
            "reconcile", "Reconciliations by result.", ["controller", "result"], registry=self.registry
        )
        self.reconcile_seconds = Histogram(
            "reconcile_time_seconds",
            "Duration of reconciliations.",
            ["controller"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.informer_lists = Counter("informer_lists", "Full list requests.", ["kind"], registry=self.registry)
        self.object_faults = Gauge(
            "slipway_object_faults",
            "Objects that cannot be used. Each has an Event with the reason.",
            ["kind"],
            registry=self.registry,
        )
        self.leading = Gauge(
            "leader_election_master_status", "1 while this process leads.", ["name"], registry=self.registry
        )
        self.events_dropped = Counter(
            "events_dropped", "Events that were lost because the API server was unreachable.", registry=self.registry
        )

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)
