"""The cluster as the source of table and keys: Services, EndpointSlices, names of namespaces, one Secret."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import Gauge

from slipway.gateway import keys
from slipway.gateway.control import Control
from slipway.gateway.handovers import Handover, Handovers, Holder
from slipway.gateway.settings import Settings
from slipway.gateway.table import SERVICE_NAME, Assembler, Backend, Fault, RoutingTable
from slipway.gateway.wake import Waker
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, NotFound
from slipway.kube.events import Recorder
from slipway.kube.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.objects import ENDPOINT_SLICE, NAMESPACE, SECRET, SERVICE, Key, Object, key, uid
from slipway.kube.store import Change
from slipway.serving.claims import Rules, only_name
from slipway.serving.route import MOST_PORTS, NOT_HELD, ROUTE, bounded

log = logging.getLogger(__name__)

_KEYS_SECONDS = 5.0
"""How often the Secret is read. A plain read needs the least permission: one verb on one name."""
_SETTLE_SECONDS = 0.02
DEFAULTS = Settings()
_MOST_HELD = 4 << 20
"""Characters of annotations that are held of one namespace: many times what its room in the table can use."""
_TOLD_A_MINUTE = 50
"""Faults and handovers of one namespace that are logged and made Events: whoever edits routes all day tells no more."""


class _Patience:
    """Counts what was told in this minute, of each subject apart, so that noise about one hides no other."""

    def __init__(self) -> None:
        self._minute = 0
        self._told: Counter[str] = Counter()

    def bears(self, subject: str) -> bool:
        """Whether one more may be told. The first that may not is logged."""
        minute = int(time.monotonic() / 60)
        if minute != self._minute:
            self._minute, self._told = minute, Counter()
        self._told[subject] += 1
        if self._told[subject] == _TOLD_A_MINUTE + 1:
            log.warning("%s: more than is told in a minute", subject)
        return self._told[subject] <= _TOLD_A_MINUTE


class Cluster:
    """Services with the route label and their EndpointSlices, by watch; the Secret of keys, by reading it."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        secret: Key | None,
        waiting: Callable[[], Awaitable[Mapping[str, int]]],
        settings: Settings = DEFAULTS,
    ) -> None:
        """`secret` holds the API keys; `waiting` says for which backends requests wait, see wake.Waker.

        Of `settings` those count that say who may have which id and which endpoints are used.
        """
        self._client = client
        self._secret = secret
        self._settings = settings
        self._room = Room()
        self._services = Informer(client, SERVICE, labels=f"{ROUTE}=true", trim=self._room.trim)
        self._services.add_handler(self._room.leave)
        # Slices carry the labels of their Service, so that only those of routed Services are asked for.
        self._slices = Informer(client, ENDPOINT_SLICE, labels=f"{ROUTE}=true", trim=_trim_slice)
        chosen = settings.routed_namespaces
        self._namespaces = Informer(client, NAMESPACE, labels=chosen, trim=only_name) if chosen else None
        self._assembler = Assembler(foreign_endpoints=settings.foreign_endpoints)
        self._handovers, self._patience = Handovers(), _Patience()
        self._recorder = Recorder(client, "slipway-gateway", metrics=metrics)
        self._waker = Waker(client, waiting, self._not_woken)
        self._told: frozenset[Fault] = frozenset()
        self._dirty = asyncio.Event()
        self._faults = Gauge(
            "slipway_gateway_route_faults",
            "Services, or parts of their routes, that cannot be served.",
            registry=metrics.registry,
        )

    async def run(self, control: Control) -> None:
        """Feeds `control` until cancelled."""
        informers = [self._services, self._slices, *([self._namespaces] if self._namespaces else [])]
        for informer in informers:
            informer.add_handler(lambda _unused: self._dirty.set())
            informer.on_fault(self._recorder.record_fault)
        async with asyncio.TaskGroup() as tasks:
            for run in (*(informer.run for informer in informers), self._recorder.run):
                tasks.create_task(run())
            for informer in informers:
                await informer.synced.wait()
            if self._secret:
                control.admit(await self._read_keys(self._secret))
                tasks.create_task(self._watch_keys(control, self._secret))
            self._route(control)
            tasks.create_task(control.run())
            tasks.create_task(self._waker.run(lambda: control.table))
            while True:
                await self._dirty.wait()
                await asyncio.sleep(_SETTLE_SECONDS)
                self._route(control)

    def _route(self, control: Control) -> None:
        self._dirty.clear()
        services = self._services.store.all()
        table, faults = self._assembler.build(services, self._slices.store.all(), self._rules())
        self._tell(frozenset(faults))
        self._tell_handovers(table, services)
        control.route(table)

    def _rules(self) -> Rules:
        chosen = self._namespaces
        namespaces = frozenset(key(obj).name for obj in chosen.store.all()) if chosen else None
        return Rules(self._settings.id_owners, frozenset(self._settings.hub_organizations), namespaces)

    def _tell(self, faults: frozenset[Fault]) -> None:
        """Logs each new fault and makes it an Event of its Service."""
        self._faults.set(len(faults))
        told = set(faults & self._told)
        for fault in sorted(faults - self._told):
            if not self._patience.bears(f"faults in namespace {fault.namespace}"):
                continue
            told.add(fault)
            log.warning("Service %s/%s: %s", fault.namespace, fault.service, fault.message)
            service = self._services.store.get(Key(fault.namespace, fault.service))
            if service is not None:
                self._recorder.record(SERVICE, service, "Warning", "InvalidRoute", fault.message)
        self._told = frozenset(told)

    def _tell_handovers(self, table: RoutingTable, services: list[Object]) -> None:
        """Logs ids that changed hands and makes them Events of both Services, also of one that is gone."""
        uids = {f"{key(service).namespace}:{key(service).name}": uid(service) for service in services}
        for handover in self._handovers.observe(table, uids):
            between = f"ids that go from namespace {handover.loser.namespace} to {handover.winner.namespace}"
            if self._patience.bears(between):
                self._tell_handover(handover)

    def _tell_handover(self, handover: Handover) -> None:
        loser, winner = handover.loser, handover.winner
        log.warning("Service %s: %s", loser.key, handover.told_to_loser())
        self._recorder.record(SERVICE, _named(loser), "Warning", "IdLost", handover.told_to_loser())
        self._recorder.record(SERVICE, _named(winner), "Normal", "IdTaken", handover.told_to_winner())

    def _not_woken(self, backend: Backend, message: str) -> None:
        service = self._services.store.get(Key(backend.namespace, backend.service))
        if service is not None:
            self._recorder.record(SERVICE, service, "Warning", "NotWoken", message)

    async def _watch_keys(self, control: Control, secret: Key) -> None:
        while True:
            await asyncio.sleep(_KEYS_SECONDS)
            control.admit(await self._read_keys(secret))

    async def _read_keys(self, secret: Key) -> tuple[tuple[str, str], ...]:
        """Hashes of the keys. Without the Secret nobody is let in; while the API server is away the last keys count."""
        pause = 1.0
        while True:
            try:
                return keys.hashes(await self._client.get(SECRET, secret))
            except NotFound:
                return ()
            except ApiError as error:
                log.warning("Secret %s cannot be read: %s", secret, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)


def _named(holder: Holder) -> Object:
    return {"metadata": {"namespace": holder.namespace, "name": holder.service, "uid": holder.uid}}


class Room:
    """What is held of Services: of each namespace a bounded number of characters of annotations."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._held: Counter[str] = Counter()

    def trim(self, service: Object) -> Object:
        """A Service as it is stored; without its annotation where its namespace has no more room."""
        trimmed = _trim_service(service)
        ident, namespace, annotations = uid(service), key(service).namespace, trimmed["metadata"]["annotations"]
        size, others = len(annotations.get(ROUTE, "")), self._held[namespace] - self._sizes.get(ident, 0)
        if others + size > _MOST_HELD:
            size, annotations[ROUTE] = 0, NOT_HELD
        self._sizes[ident], self._held[namespace] = size, others + size
        return trimmed

    def leave(self, change: Change) -> None:
        """Makes room where a Service is gone."""
        if change.new is None and change.old is not None:
            self._held[change.key.namespace] -= self._sizes.pop(uid(change.old), 0)


def _trim_service(service: Object) -> Object:
    """What the table reads of a Service, and what an Event about it needs. Of more than is read, enough to see that."""
    metadata = service["metadata"]
    kept = {
        k: metadata[k] for k in ("namespace", "name", "uid", "resourceVersion", "creationTimestamp") if k in metadata
    }
    annotation = (metadata.get("annotations") or {}).get(ROUTE)
    kept["annotations"] = {ROUTE: bounded(annotation)} if annotation is not None else {}
    ports = ((service.get("spec") or {}).get("ports") or [])[: MOST_PORTS + 1]
    return {"metadata": kept, "spec": {"ports": [{"name": port.get("name", "")} for port in ports]}}


def _trim_slice(piece: Object) -> Object:
    """What the table reads of an EndpointSlice."""
    metadata = piece["metadata"]
    kept = {k: metadata[k] for k in ("namespace", "name", "uid", "resourceVersion") if k in metadata}
    kept["labels"] = {SERVICE_NAME: (metadata.get("labels") or {}).get(SERVICE_NAME, "")}
    endpoints = [
        {
            "addresses": (endpoint.get("addresses") or [])[:1],
            "conditions": endpoint.get("conditions") or {},
            "targetRef": {k: v for k, v in (endpoint.get("targetRef") or {}).items() if k in ("kind", "namespace")},
        }
        for endpoint in piece.get("endpoints") or ()
    ]
    return {
        "metadata": kept,
        "addressType": piece.get("addressType", "IPv4"),
        "ports": piece.get("ports") or [],
        "endpoints": endpoints,
    }
