"""Autoscaler: replicas follow requests. Gateways' metrics -> load -> the scale subresource, every two seconds.

The numbers come from :mod:`slipway.serving.scaling`. Averages are kept in a ConfigMap, so that replicas do not fall
when the controller is restarted or another one takes over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client import Counter, Gauge

from slipway.controller.gateways import Gateways, Traffic
from slipway.controller.reconciler import Reconciler, Scaled
from slipway.decoding import DecodingError, decode_json
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, Conflict, Forbidden, NotFound, NotLeader
from slipway.kube.events import Recorder
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, Key, Kind, Object, generation, resource_version
from slipway.serving.scaling import Load, Scaling, begin, follow

log = logging.getLogger(__name__)

SECONDS = 2.0
"""Between two samples."""
STATE_BYTES = 1 << 20
"""Of the averages of one kind: a ConfigMap takes no more."""
FIELD_MANAGER = "slipway-autoscaler"
LABELS = ("kind", "namespace", "name")
_ALL_KNOWN_SECONDS = 600.0
"""After this time every resource that there is was reconciled, thousands of them too."""
_REST = 5.0
"""The gateways rest at least so many times as long as it took to ask them."""


class Subject(NamedTuple):
    """A resource whose replicas are looked after."""

    kind: str
    """``models.kubeai.org``."""
    name: Key

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values of the metrics' labels."""
        return self.kind, *self.name


class Autoscaler:
    """Scales the resources of every API that says how they scale. Runs in the leader only."""

    def __init__(
        self,
        client: Client,
        reconcilers: Sequence[Reconciler],
        gateways: Gateways,
        namespace: str,
        recorder: Recorder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``namespace`` is where the averages are kept."""
        self._client, self._reconcilers, self._gateways = client, tuple(reconcilers), gateways
        self._recorder, self._clock = recorder, clock
        self._averages = Averages(client, namespace)
        self._loads: dict[Subject, Load] = {}
        registry = metrics.registry
        self._active = Gauge(
            "slipway_autoscaler_active_requests", "In flight and waiting at all gateways.", LABELS, registry=registry
        )
        self._wanted = Gauge(
            "slipway_autoscaler_wanted_replicas", "What the requests ask for.", LABELS, registry=registry
        )
        self._incomplete = Counter(
            "slipway_autoscaler_incomplete_samples", "Looks at which a gateway did not answer.", registry=registry
        )

    async def run(self) -> None:
        """Looks and scales until cancelled."""
        started = self._clock()
        while True:
            began = self._clock()
            if began - started > _ALL_KNOWN_SECONDS:
                self._averages.forget_unasked()
            try:
                await self.look()
            except ApiError as error:
                log.warning("autoscaler: %s", error)
            except Exception:  # the next look may go better
                log.exception("autoscaler")
            took = self._clock() - began
            await asyncio.sleep(max(SECONDS - took, _REST * took))

    async def look(self) -> None:
        """One sample of every resource, and what follows from it."""
        subjects = dict(self._subjects())
        self._forget(subjects)
        if not subjects:
            return
        traffic = await self._gateways.traffic()
        if not traffic.complete:
            self._incomplete.inc()
        steps = [self._step(subject, *found, traffic) for subject, found in subjects.items()]
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        scalings = {subject: scaled.scaling for subject, (_unused, scaled) in subjects.items()}
        await self._averages.keep(scalings, self._loads, self._clock())
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _subjects(self) -> Iterator[tuple[Subject, tuple[Reconciler, Scaled]]]:
        for reconciler in self._reconcilers:
            kind = f"{reconciler.kind.plural}.{reconciler.kind.group}"
            for name, scaled in reconciler.scaled.items():
                yield Subject(kind, name), (reconciler, scaled)

    def _forget(self, subjects: Mapping[Subject, object]) -> None:
        for gone in [subject for subject in self._loads if subject not in subjects]:
            del self._loads[gone]
            self._active.remove(*gone.labels)
            self._wanted.remove(*gone.labels)

    async def _step(self, subject: Subject, reconciler: Reconciler, scaled: Scaled, traffic: Traffic) -> None:
        now, scaling = self._clock(), scaled.scaling
        if subject not in self._loads:
            self._loads[subject] = begin(scaling, await self._averages.known(scaling.state, subject), now)
        requests = sum(traffic.requests.get(service, 0.0) for service in reconciler.services(subject.name))
        load, wanted = follow(self._loads[subject], scaling, requests, now, complete=traffic.complete)
        self._loads[subject] = load
        self._active.labels(*subject.labels).set(requests)
        self._wanted.labels(*subject.labels).set(wanted)
        resource = reconciler.resources.store.get(subject.name)
        # Numbers of an older spec say nothing of this one: the next look has newer ones.
        if wanted != scaling.replicas and resource is not None and generation(resource) == scaled.generation:
            await self._scale(reconciler.kind, resource, scaling.replicas, wanted, requests)

    async def _scale(self, kind: Kind, resource: Object, replicas: int, wanted: int, requests: float) -> None:
        """Writes the replicas, if nobody changed the resource meanwhile."""
        name = Key(resource["metadata"].get("namespace", ""), resource["metadata"]["name"])
        patch = {"metadata": {"resourceVersion": resource_version(resource)}, "spec": {"replicas": wanted}}
        try:
            await self._client.merge_patch(kind, name, patch, subresource="scale", field_manager=FIELD_MANAGER)
        except (Conflict, NotFound, NotLeader) as error:
            log.debug("%s %s not scaled: %s", kind.kind, name, error)
            return
        text = f"Scaled from {replicas} to {wanted} replicas: {requests:g} requests in flight or waiting."
        log.info("%s %s: %s", kind.kind, name, text)
        self._recorder.record(kind, resource, "Normal", "Scaled", text)


class _Kept(msgspec.Struct):
    """Content of one ConfigMap: kind -> ``namespace/name`` -> average."""

    averages: dict[str, dict[str, float]]
    """As it was written or read last."""
    unasked: dict[Subject, float]
    """What was read of resources that were not looked at since: they may not have been reconciled yet."""
    written: float = float("-inf")
    """When it was written last (monotonic)."""


class Averages:
    """The averages of all resources, in the ConfigMaps that their scaling names. Values have three digits."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._kept: dict[str, _Kept] = {}
        self._reading = asyncio.Lock()

    async def known(self, state: str, subject: Subject) -> float:
        """What was kept of a resource, 0 when there is nothing. Raises ApiError."""
        async with self._reading:
            if state not in self._kept:
                read = await self._read(state)
                unasked = {
                    Subject(kind, Key(*name.split("/", 1))): average
                    for kind, found in read.items()
                    for name, average in found.items()
                    if "/" in name
                }
                self._kept[state] = _Kept(read, unasked)
        return self._kept[state].unasked.pop(subject, 0.0)

    async def keep(self, scalings: Mapping[Subject, Scaling], loads: Mapping[Subject, Load], now: float) -> None:
        """Writes what changed, each ConfigMap at most once in the shortest interval of its resources."""
        for state, kept in self._kept.items():
            mine = [subject for subject in scalings if scalings[subject].state == state and subject in loads]
            interval = min((scalings[subject].interval for subject in mine), default=SECONDS)
            averages = _by_kind({**kept.unasked, **{subject: loads[subject].average for subject in mine}})
            if averages != kept.averages and now - kept.written >= interval:
                kept.written = now
                await self._write(state, averages)
                kept.averages = averages

    def forget_unasked(self) -> None:
        """Who was not asked for by now is gone."""
        for kept in self._kept.values():
            kept.unasked.clear()

    async def _read(self, state: str) -> dict[str, dict[str, float]]:
        try:
            found = await self._client.get(CONFIG_MAP, Key(self._namespace, state))
        except NotFound:
            return {}
        except Forbidden as error:
            log.warning("averages are not kept: %s", error)
            return {}
        return {kind: averages for kind, text in found.get("data", {}).items() if (averages := _averages(text))}

    async def _write(self, state: str, averages: Mapping[str, Mapping[str, float]]) -> None:
        data = {kind: msgspec.json.encode(found, order="deterministic").decode() for kind, found in averages.items()}
        metadata = {"name": state, "namespace": self._namespace, "labels": {"app.kubernetes.io/part-of": "slipway"}}
        written = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "metadata": metadata, "data": data}
        await self._client.apply(CONFIG_MAP, written, field_manager=FIELD_MANAGER)


def _averages(text: str) -> dict[str, float]:
    """``namespace/name`` -> average. Empty for what is none of ours: the original keeps its own in the same place."""
    try:
        return decode_json(text, dict[str, float], most=STATE_BYTES)
    except DecodingError:
        return {}


def _by_kind(averages: Mapping[Subject, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for subject, average in averages.items():
        if rounded := float(f"{average:.3g}"):
            found.setdefault(subject.kind, {})[str(subject.name)] = rounded
    return found
