"""An autoscaler, which sets the number of replicas based on the number of requests.

Every two seconds, it reads the gateways' metrics, computes the load, and writes the scale subresource. The decisions
come from :mod:`slipway.serving.routing.scaling`. Averages are kept in a ConfigMap, so that a restart or a new leader
does not reduce the replicas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import Counter, Gauge

from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.gateways import Gateways, Traffic
from slipway.controller.scaling.scaled import Scaled, ScaledResources, Subject
from slipway.decoding import DecodingError, decode_json
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, ForbiddenError, NotFoundError, NotLeaderError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, Key, Object, generation, resource_version
from slipway.kube.writes.events import Recorder
from slipway.serving.routing.scaling import Load, Scaling, add_sample, begin

log = logging.getLogger(__name__)

SECONDS = 2.0
"""Seconds between two samples."""
STATE_BYTES = 1 << 20
"""Maximum size in bytes of the averages of one kind, which is the limit of a ConfigMap."""
FIELD_MANAGER = "slipway-autoscaler"
LABELS = ("kind", "namespace", "name")
_RESTORE_SECONDS = 600.0
"""Seconds after which every existing resource has been reconciled, even if there are thousands."""
_REST = 5.0
"""Minimum ratio of the pause after a sample to the sample's duration, so that the gateways are not busy all the
time."""


class Autoscaler:
    """The autoscaler of the resources of every API that defines scaling. It runs only in the leader."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        scaled: ScaledResources,
        gateways: Gateways,
        namespace: str,
        recorder: Recorder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an autoscaler. ``scaled`` contains the resources that the reconcilers register, and ``namespace`` the
        ConfigMaps with the averages."""
        self._client, self._caches, self._scaled, self._gateways = client, caches, scaled, gateways
        self._recorder, self._clock = recorder, clock
        self._averages = Averages(client, namespace)
        self._loads: dict[Subject, Load] = {}
        registry = metrics.registry
        self._active = Gauge(
            "slipway_autoscaler_active_requests",
            "Requests in flight and waiting at all gateways.",
            LABELS,
            registry=registry,
        )
        self._replicas_gauge = Gauge(
            "slipway_autoscaler_wanted_replicas", "Replicas needed for these requests.", LABELS, registry=registry
        )
        self._incomplete = Counter(
            "slipway_autoscaler_incomplete_samples", "Samples without the response of a gateway.", registry=registry
        )

    async def run(self) -> None:
        """Take samples and scale until the task is cancelled."""
        started = self._clock()
        while True:
            began = self._clock()
            if began - started > _RESTORE_SECONDS:
                self._averages.forget_unclaimed()
            try:
                await self.sample()
            except ApiError as error:
                log.warning("autoscaler: %s", error)
            except Exception:  # the next sample may succeed
                log.exception("autoscaler")
            took = self._clock() - began
            await asyncio.sleep(max(SECONDS - took, _REST * took))

    async def sample(self) -> None:
        """Take one sample of every resource, and scale the resources that need it."""
        subjects = dict(self._scaled.items())
        self._forget(subjects)
        if not subjects:
            return
        traffic = await self._gateways.traffic()
        if not traffic.complete:
            self._incomplete.inc()
        steps = [self._step(subject, scaled, traffic) for subject, scaled in subjects.items()]
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        _log_failures(dict(zip(subjects, outcomes, strict=True)))
        scalings = {subject: scaled.scaling for subject, scaled in subjects.items()}
        await self._averages.save(scalings, self._loads, self._clock())

    def _forget(self, subjects: Mapping[Subject, object]) -> None:
        for removed in [subject for subject in self._loads if subject not in subjects]:
            del self._loads[removed]
            self._active.remove(*removed.labels)
            self._replicas_gauge.remove(*removed.labels)

    async def _step(self, subject: Subject, scaled: Scaled, traffic: Traffic) -> None:
        now, scaling = self._clock(), scaled.scaling
        if subject not in self._loads:
            self._loads[subject] = begin(scaling, await self._averages.restore(scaling.state, subject), now)
        requests = sum(traffic.requests.get(service, 0.0) for service in scaled.services)
        load, replicas = add_sample(self._loads[subject], scaling, requests, now, complete=traffic.complete)
        self._loads[subject] = load
        self._active.labels(*subject.labels).set(requests)
        self._replicas_gauge.labels(*subject.labels).set(replicas)
        target = self._caches.get(*scaled.target)
        # Numbers of an older spec do not apply to this one; the next sample has newer ones.
        if replicas != scaling.replicas and target is not None and generation(target) == scaled.generation:
            figures = describe_decision(scaling, replicas, requests, load)
            await self._scale(subject, scaled, target, replicas, figures)

    async def _scale(self, subject: Subject, scaled: Scaled, target: Object, replicas: int, text: str) -> None:
        """Write the number of replicas, unless the target has changed in the meantime. ``text`` is the reason for the
        log and the Event."""
        kind, name = scaled.target
        patch = {"metadata": {"resourceVersion": resource_version(target)}, "spec": {"replicas": replicas}}
        # The scale of a child has no label by which the API server could recognize it as ours.
        subresource = "scale" if kind == subject.kind else ""
        try:
            await self._client.merge_patch(kind, name, patch, subresource=subresource, field_manager=FIELD_MANAGER)
        except (ConflictError, NotFoundError, NotLeaderError) as error:
            log.debug("%s %s not scaled: %s", kind.kind, name, error)
            return
        log.info("%s %s: %s", kind.kind, name, text)
        resource = self._caches.get(*subject)
        if resource is not None:
            self._recorder.record(subject.kind, resource, "Normal", "Scaled", text)


def _log_failures(outcomes: Mapping[Subject, BaseException | None]) -> None:
    """Log one failure of each type. If the API server rejects all requests, every resource has the same failure."""
    failures = {subject: error for subject, error in outcomes.items() if error is not None}
    for type_ in dict.fromkeys(map(type, failures.values())):
        first, *others = (subject for subject, error in failures.items() if type(error) is type_)
        error, more = failures[first], f", and {len(others)} more" if others else ""
        text = "Could not scale %s %s%s; retrying with the next sample: %s"
        trace = None if isinstance(error, ApiError) else error
        log.warning(text, first.kind.kind, first.name, more, error, exc_info=trace)


class _StoredAverages(msgspec.Struct):
    """Averages in one ConfigMap."""

    averages: dict[str, dict[str, float]]
    """The averages as last written or read: kind to key to average."""
    unclaimed: dict[tuple[str, Key], float]
    """Averages of resources that have not been sampled since the ConfigMap was read. They may not have been reconciled
    yet."""
    written_at: float = float("-inf")
    """Monotonic time of the last write in seconds."""


class Averages:
    """The averages of all resources, in ConfigMaps whose names come from ``Scaling.state``. Values have three
    significant digits."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._stored: dict[str, _StoredAverages] = {}
        self._reading = asyncio.Lock()

    async def restore(self, state: str, subject: Subject) -> float:
        """Return the stored average of a resource and forget it. Return 0 if there is none, or if the controller lacks
        the permission to read the ConfigMap. Raise ApiError if the ConfigMap cannot be read for another reason."""
        async with self._reading:
            if state not in self._stored:
                read = await self._read_config_map(state)
                unclaimed = {
                    (kind, _key(name)): average for kind, averages in read.items() for name, average in averages.items()
                }
                self._stored[state] = _StoredAverages(read, unclaimed)
        return self._stored[state].unclaimed.pop((subject.kind_name, subject.name), 0.0)

    async def save(self, scalings: Mapping[Subject, Scaling], loads: Mapping[Subject, Load], now: float) -> None:
        """Write changed averages. Each ConfigMap is written at most once in the shortest interval of its resources.
        Failed writes are logged and retried after the interval."""
        for state, stored in self._stored.items():
            mine = [subject for subject in scalings if scalings[subject].state == state and subject in loads]
            interval = min((scalings[subject].interval for subject in mine), default=SECONDS)
            measured = {(subject.kind_name, subject.name): loads[subject].average for subject in mine}
            averages = _by_kind({**stored.unclaimed, **measured})
            if averages != stored.averages and now - stored.written_at >= interval:
                stored.written_at = now
                try:
                    await self._write(state, averages)
                except ApiError as error:
                    log.warning("Could not write averages to the ConfigMap %s; trying again later: %s", state, error)
                else:
                    stored.averages = averages

    def forget_unclaimed(self) -> None:
        """Forget stored averages of resources that have not been restored by now."""
        for stored in self._stored.values():
            stored.unclaimed.clear()

    async def _read_config_map(self, state: str) -> dict[str, dict[str, float]]:
        try:
            config_map = await self._client.get(CONFIG_MAP, Key(self._namespace, state))
        except NotFoundError:
            return {}
        except ForbiddenError as error:
            log.warning("cannot persist the averages: %s", error)
            return {}
        return {kind: averages for kind, text in config_map.get("data", {}).items() if (averages := _averages(text))}

    async def _write(self, state: str, averages: Mapping[str, Mapping[str, float]]) -> None:
        data = {
            kind: msgspec.json.encode(by_name, order="deterministic").decode() for kind, by_name in averages.items()
        }
        metadata = {"name": state, "namespace": self._namespace, "labels": {"app.kubernetes.io/part-of": "slipway"}}
        config_map = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "metadata": metadata, "data": data}
        await self._client.apply(CONFIG_MAP, config_map, field_manager=FIELD_MANAGER)


def _averages(text: str) -> dict[str, float]:
    """Parse an entry of a ConfigMap and return the averages by key. The result is empty if the content is not ours: the
    original system stores its own averages in the same ConfigMap."""
    try:
        return decode_json(text, dict[str, float], most=STATE_BYTES)
    except DecodingError:
        return {}


def _key(text: str) -> Key:
    """Parse a key in the format of ``str(Key)``. Text without a slash is the key of a cluster-scoped object."""
    namespace, _slash, name = text.rpartition("/")
    return Key(namespace, name)


def _by_kind(averages: Mapping[tuple[str, Key], float]) -> dict[str, dict[str, float]]:
    by_kind: dict[str, dict[str, float]] = {}
    for (kind, name), average in averages.items():
        if rounded := float(f"{average:.3g}"):
            by_kind.setdefault(kind, {})[str(name)] = rounded
    return by_kind


def describe_decision(scaling: Scaling, desired: int, requests: float, load: Load) -> str:
    """Return a sentence with the decision and the figures behind it. ``requests`` is the number in flight or waiting in
    this sample."""
    replicas = f"{desired} replica{'s' * (desired != 1)}"
    return (
        f"Scaled from {scaling.replicas} to {replicas}: {requests:g} requests in flight or waiting now,"
        f" {load.average:.3g} on average over {scaling.window:g} s; target: {scaling.target_requests} per replica."
    )
