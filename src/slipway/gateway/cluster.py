"""The cluster as the source of table and keys: Services, EndpointSlices, one Secret."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import Gauge

from slipway.gateway import keys
from slipway.gateway.control import Control
from slipway.gateway.table import SERVICE_NAME, Backend, Fault, build
from slipway.gateway.wake import Waker
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, NotFound
from slipway.kube.events import Recorder
from slipway.kube.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.objects import ENDPOINT_SLICE, SECRET, SERVICE, Key, Object
from slipway.serving.route import ROUTE

log = logging.getLogger(__name__)

_KEYS_SECONDS = 5.0
"""How often the Secret is read. A plain read needs the least permission: one verb on one name."""
_SETTLE_SECONDS = 0.02


class Cluster:
    """Services with the route label and their EndpointSlices, by watch; the Secret of keys, by reading it."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        secret: Key | None,
        waiting: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        """`secret` holds the API keys; `waiting` says for which backends requests wait, see wake.Waker."""
        self._client = client
        self._secret = secret
        self._services = Informer(client, SERVICE, labels=f"{ROUTE}=true", trim=_trim_service)
        # Slices carry the labels of their Service, so that only those of routed Services are asked for.
        self._slices = Informer(client, ENDPOINT_SLICE, labels=f"{ROUTE}=true", trim=_trim_slice)
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
        for informer in (self._services, self._slices):
            informer.add_handler(lambda _unused: self._dirty.set())
        async with asyncio.TaskGroup() as tasks:
            for run in (self._services.run, self._slices.run, self._recorder.run):
                tasks.create_task(run())
            await self._services.synced.wait()
            await self._slices.synced.wait()
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
        table, faults = build(self._services.store.all(), self._slices.store.all())
        self._tell(frozenset(faults))
        control.route(table)

    def _tell(self, faults: frozenset[Fault]) -> None:
        """Logs each new fault and makes it an Event of its Service."""
        self._faults.set(len(faults))
        for fault in faults - self._told:
            log.warning("Service %s/%s: %s", fault.namespace, fault.service, fault.message)
            service = self._services.store.get(Key(fault.namespace, fault.service))
            if service is not None:
                self._recorder.record(SERVICE, service, "Warning", "InvalidRoute", fault.message)
        self._told = faults

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


def _trim_service(service: Object) -> Object:
    """What the table reads of a Service, and what an Event about it needs."""
    metadata = service["metadata"]
    kept = {
        k: metadata[k] for k in ("namespace", "name", "uid", "resourceVersion", "creationTimestamp") if k in metadata
    }
    annotation = (metadata.get("annotations") or {}).get(ROUTE)
    kept["annotations"] = {ROUTE: annotation} if annotation is not None else {}
    return {"metadata": kept, "spec": {"ports": service["spec"].get("ports", [])}}


def _trim_slice(piece: Object) -> Object:
    """What the table reads of an EndpointSlice."""
    metadata = piece["metadata"]
    kept = {k: metadata[k] for k in ("namespace", "name", "uid", "resourceVersion") if k in metadata}
    kept["labels"] = {SERVICE_NAME: (metadata.get("labels") or {}).get(SERVICE_NAME, "")}
    fields = ("addressType", "ports", "endpoints")
    return {"metadata": kept, **{field: piece[field] for field in fields if field in piece}}
