"""The cluster as the source of the routing table and of the API keys: Services, EndpointSlices, namespaces and one
Secret."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import time
from collections import Counter
from collections.abc import Callable

from prometheus_client import Gauge

from slipway.gateway.routing import keys
from slipway.gateway.routing.handovers import Handover, Handovers, Holder
from slipway.gateway.routing.keys import Keyring
from slipway.gateway.routing.table import (
    SERVICE_NAME,
    Backend,
    Fault,
    Publish,
    RoutingTable,
    Snapshot,
    TableBuilder,
    find_lost_ids,
)
from slipway.gateway.settings import Settings, join_address, split_address
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, NotFoundError
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    ENDPOINT_SLICE,
    NAMESPACE,
    SECRET,
    SERVICE,
    Key,
    Kind,
    Object,
    controller_owner,
    key,
    uid,
)
from slipway.kube.writes.events import Recorder
from slipway.serving.routing.claims import Rules, only_name
from slipway.serving.routing.route import MOST_PORTS, NOT_HELD, ROUTE, bounded
from slipway.serving.status.unready import MOST_BYTES, UNREADY

log = logging.getLogger(__name__)

GATEWAY_SERVICE = "slipway-gateway"
"""Name of the Service of the gateway pods."""

_KEYS_SECONDS = 5.0
"""Seconds between two reads of the Secret. Polling needs fewer permissions than a watch: only ``get`` for one name."""
_SETTLE_SECONDS = 0.02
DEFAULTS = Settings()
_MOST_CHARACTERS = 4 << 20
"""Maximum number of characters of the cached routes of one namespace, which is many times the namespace's limit in the
table."""
_REPORTS_PER_MINUTE = 50
"""Maximum number of reports per minute for each subject. A subject is the faults in one namespace, the wake-ups in one
namespace, or the handovers between two namespaces. The limit prevents a tenant from flooding the log and the Events."""


class _RateLimiter:
    """A limiter of reports per minute, separately for each subject, so that many reports about one subject do not hide
    reports about others."""

    def __init__(self) -> None:
        self._minute = 0
        self._counts: Counter[str] = Counter()

    def allows(self, subject: str) -> bool:
        """Whether one more report about ``subject`` is allowed in this minute. Count the report, and log a warning
        when the limit is first exceeded."""
        minute = int(time.monotonic() / 60)
        if minute != self._minute:
            self._minute, self._counts = minute, Counter()
        self._counts[subject] += 1
        if self._counts[subject] == _REPORTS_PER_MINUTE + 1:
            log.warning("%s: too many in this minute; not reporting more", subject)
        return self._counts[subject] <= _REPORTS_PER_MINUTE


class KubernetesSource:
    """A source that watches Services with the route label and their EndpointSlices, and polls the Secret with the API
    keys."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        secret: Key | None,
        settings: Settings = DEFAULTS,
    ) -> None:
        """``secret`` is the Secret with the API keys, or None if no key is required."""
        self._client = client
        self._secret = secret
        self._settings = settings
        self._annotations = AnnotationBudget()
        self._services = Informer(client, SERVICE, labels=f"{ROUTE}=true", trim=self._annotations.trim)
        self._services.add_handler(self._annotations.release)
        # Slices have the labels of their Service, so this watches the slices of routed Services only.
        self._slices = Informer(client, ENDPOINT_SLICE, labels=f"{ROUTE}=true", trim=_trim_slice)
        chosen = settings.routed_namespaces
        self._namespaces = Informer(client, NAMESPACE, labels=chosen, trim=only_name) if chosen else None
        self._gateways = None
        if secret and settings.exchange_key_file:
            labels = f"{SERVICE_NAME}={GATEWAY_SERVICE}"
            self._gateways = Informer(
                client, ENDPOINT_SLICE, namespace=secret.namespace, labels=labels, trim=_trim_slice
            )
        self._builder = TableBuilder(foreign_endpoints=settings.foreign_endpoints)
        self._handovers, self._limiter = Handovers(), _RateLimiter()
        self._recorder = Recorder(client, "slipway-gateway", metrics=metrics)
        self._reported: frozenset[Fault] = frozenset()
        self.faults: tuple[Fault, ...] = ()
        """Faults of the latest table."""
        self._keys, self._key_problems = Keyring(), frozenset[str]()
        self._changed = asyncio.Event()
        self._faults = Gauge(
            "slipway_gateway_route_faults",
            "Services, or parts of their routes, that cannot be served.",
            registry=metrics.registry,
        )
        self._owners = Gauge(
            "slipway_gateway_key_info", "1 for each API key with an owner.", ("key", "owner"), registry=metrics.registry
        )

    async def run(self, publish: Publish) -> None:
        """Publish the first snapshot once table and keys are complete, and then each new snapshot, until cancelled."""
        optional = (self._namespaces, self._gateways)
        informers = [self._services, self._slices, *(informer for informer in optional if informer)]
        for informer in informers:
            informer.add_handler(lambda _unused: self._changed.set())
            informer.on_fault(self._recorder.record_fault)
        async with asyncio.TaskGroup() as tasks:
            for run in (*(informer.run for informer in informers), self._recorder.run):
                tasks.create_task(run())
            for informer in informers:
                await informer.synced.wait()
            if self._secret:
                self._keys = await self._read_keys(self._secret)
                tasks.create_task(self._watch_keys(self._secret))
            while True:
                publish(Snapshot(self._build_table(), self._keys.hashes, self._keys.rights, self._exchange_addresses()))
                await self._changed.wait()
                await asyncio.sleep(_SETTLE_SECONDS)

    def _exchange_addresses(self) -> dict[str, bool]:
        """Return whether each gateway pod is Ready, by the address of its exchange (``host:port``). The addresses are
        of the same IP family as this pod's address. Empty if gateways share no limits."""
        _host, port = split_address(self._settings.exchange_listen)
        family = "IPv6" if ":" in os.environ.get("POD_IP", "") else "IPv4"
        pieces = self._gateways.store.all() if self._gateways else ()
        pods = [pod for piece in pieces if piece["addressType"] == family for pod in pod_hosts(piece).items()]
        return {join_address(host, port): ready for host, ready in sorted(pods)}

    def _build_table(self) -> RoutingTable:
        self._changed.clear()
        services = self._services.store.all()
        table, self.faults = self._builder.build(services, self._slices.store.all(), self._rules())
        self._faults.set(len(self.faults))
        self._report_faults(frozenset((*self.faults, *find_lost_ids(table))))
        self._report_handovers(table, services)
        return table

    @property
    def away_since(self) -> float:
        """Unix time since which the API server has been unreachable; 0 while it responds."""
        return max(self._services.silent_since, self._slices.silent_since)

    def serves(self) -> Callable[[str], bool]:
        """Return a function that checks whether the gateway currently serves the Services of a namespace.

        For an empty namespace, as of cluster-scoped objects, the function returns true only if all namespaces are
        served.
        """
        return self._rules().serves

    def owners(self) -> dict[str, str]:
        """Return the UID of the resource that owns each Service, by backend name. Omit Services without an owner."""
        owned = ((key(service), controller_owner(service)) for service in self._services.store.all())
        return {f"{name.namespace}:{name.name}": owner.uid for name, owner in owned if owner}

    def _rules(self) -> Rules:
        chosen = self._namespaces
        namespaces = frozenset(key(obj).name for obj in chosen.store.all()) if chosen else None
        return Rules(self._settings.id_owners, frozenset(self._settings.hub_organizations), namespaces)

    def _report_faults(self, faults: frozenset[Fault]) -> None:
        """Log each new fault, and record an Event for its Service. Faults above the rate limit remain new."""
        reported = set(faults & self._reported)
        for fault in sorted(faults - self._reported):
            if not self._limiter.allows(f"faults in namespace {fault.namespace}"):
                continue
            reported.add(fault)
            log.warning("Service %s/%s: %s", fault.namespace, fault.service, fault.message)
            service = self._services.store.get(Key(fault.namespace, fault.service))
            if service is not None:
                self._recorder.record(SERVICE, service, "Warning", "InvalidRoute", fault.message)
        self._reported = frozenset(reported)

    def _report_handovers(self, table: RoutingTable, services: list[Object]) -> None:
        """Log IDs that now lead to another Service, and record Events for both Services, even if one was deleted.
        Ignore handovers above the rate limit."""
        uids = {f"{key(service).namespace}:{key(service).name}": uid(service) for service in services}
        for handover in self._handovers.observe(table, uids):
            between = f"IDs that move from namespace {handover.loser.namespace} to {handover.winner.namespace}"
            if self._limiter.allows(between):
                self._report_handover(handover)

    def _report_handover(self, handover: Handover) -> None:
        loser, winner = handover.loser, handover.winner
        log.warning("Service %s: %s", loser.key, handover.message_to_loser())
        self._recorder.record(SERVICE, _reference(loser), "Warning", "IdLost", handover.message_to_loser())
        self._recorder.record(SERVICE, _reference(winner), "Normal", "IdTaken", handover.message_to_winner())

    def report_not_woken(self, backend: Backend, message: str) -> None:
        """Record an Event for the Service of a model that cannot be scaled from zero, if the Service still exists."""
        service = self._services.store.get(Key(backend.namespace, backend.service))
        if service is not None:
            self._recorder.record(SERVICE, service, "Warning", "NotWoken", message)

    def report_woken(self, backend: Backend, message: str) -> None:
        """Record an Event for the resource that owns the Service of a model that was scaled from zero. Do nothing if
        there is no owner, or the rate limit is exceeded."""
        service = self._services.store.get(Key(backend.namespace, backend.service))
        owner = controller_owner(service) if service is not None else None
        if owner is None or not self._limiter.allows(f"wake-ups in namespace {backend.namespace}"):
            return
        group, _slash, version = owner.api_version.rpartition("/")
        resource = {"metadata": {"namespace": backend.namespace, "name": owner.name, "uid": owner.uid}}
        self._recorder.record(Kind(group, version, owner.kind, ""), resource, "Normal", "Scaled", message)

    async def _watch_keys(self, secret: Key) -> None:
        while True:
            await asyncio.sleep(_KEYS_SECONDS)
            new = await self._read_keys(secret)
            if new != self._keys:
                self._keys = new
                self._changed.set()

    async def _read_keys(self, secret: Key) -> Keyring:
        """Read the API keys. Return an empty keyring if the Secret does not exist.

        After any other error, retry until the API server returns the Secret. Until then, the old keys remain valid.
        """
        pause = 1.0
        while True:
            try:
                return self._keyring(await self._client.get(SECRET, secret))
            except NotFoundError:
                return Keyring()
            except ApiError as error:
                log.warning("Could not read Secret %s: %s", secret, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)

    def _keyring(self, secret: Object) -> Keyring:
        """Return the keys in the Secret. Log each new problem with their rights, and record an Event for it."""
        counted = self._settings.count_tokens
        now = dt.datetime.now(dt.UTC)
        ring, problems = keys.build_keyring(secret, self._keys, now, tokens_counted=counted)
        for problem in sorted(set(problems) - self._key_problems):
            log.warning("Secret %s: %s", self._secret, problem)
            self._recorder.record(SECRET, secret, "Warning", "InvalidKeyRights", problem)
        self._key_problems = frozenset(problems)
        self._owners.clear()
        for name, rights in ring.rights.items():
            if rights.owner:
                self._owners.labels(name, rights.owner).set(1)
        return ring


def _reference(holder: Holder) -> Object:
    return {"metadata": {"namespace": holder.namespace, "name": holder.service, "uid": holder.uid}}


class AnnotationBudget:
    """The limit for the characters of routes that the cache keeps for each namespace."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._used: Counter[str] = Counter()

    def trim(self, service: Object) -> Object:
        """Return the parts of a Service to cache. Replace the route with a marker if the namespace has used its
        budget."""
        trimmed = _trim_service(service)
        ident, namespace, annotations = uid(service), key(service).namespace, trimmed["metadata"]["annotations"]
        size, others = len(annotations.get(ROUTE, "")), self._used[namespace] - self._sizes.get(ident, 0)
        if others + size > _MOST_CHARACTERS:
            size, annotations[ROUTE] = 0, NOT_HELD
        self._sizes[ident], self._used[namespace] = size, others + size
        return trimmed

    def release(self, change: Change) -> None:
        """Release the budget that a deleted Service used."""
        if change.new is None and change.old is not None:
            self._used[change.key.namespace] -= self._sizes.pop(uid(change.old), 0)


def _trim_service(service: Object) -> Object:
    """Return the fields of a Service that the table and Events need.

    Cut a list or text that is too long, but leave it long enough to be rejected as too long. Omit a reason why the
    Service is unready if it is too long.
    """
    metadata = service["metadata"]
    metadata_left = {
        k: metadata[k] for k in ("namespace", "name", "uid", "resourceVersion", "creationTimestamp") if k in metadata
    }
    annotation = (metadata.get("annotations") or {}).get(ROUTE)
    metadata_left["annotations"] = {ROUTE: bounded(annotation)} if annotation is not None else {}
    unready = (metadata.get("annotations") or {}).get(UNREADY, "")
    if 0 < len(unready) <= MOST_BYTES:
        metadata_left["annotations"][UNREADY] = unready
    metadata_left["ownerReferences"] = [
        owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")
    ][:1]
    ports = ((service.get("spec") or {}).get("ports") or [])[: MOST_PORTS + 1]
    return {"metadata": metadata_left, "spec": {"ports": [{"name": port.get("name", "")} for port in ports]}}


def pod_hosts(piece: Object) -> dict[str, bool]:
    """Return whether each pod in a trimmed EndpointSlice is Ready, by the address of the pod. Unknown readiness means
    Ready. Omit endpoints that are not pods in the namespace of the EndpointSlice."""
    namespace = key(piece).namespace
    return {
        host: endpoint["conditions"].get("ready") is not False
        for endpoint in piece["endpoints"]
        for host in endpoint["addresses"]
        if endpoint["targetRef"].get("kind") == "Pod" and endpoint["targetRef"].get("namespace") == namespace
    }


def _trim_slice(piece: Object) -> Object:
    """Return the fields of an EndpointSlice that the table needs, with the first address of each endpoint."""
    metadata = piece["metadata"]
    metadata_left = {k: metadata[k] for k in ("namespace", "name", "uid", "resourceVersion") if k in metadata}
    metadata_left["labels"] = {SERVICE_NAME: (metadata.get("labels") or {}).get(SERVICE_NAME, "")}
    endpoints = [
        {
            "addresses": (endpoint.get("addresses") or [])[:1],
            "conditions": endpoint.get("conditions") or {},
            "targetRef": {k: v for k, v in (endpoint.get("targetRef") or {}).items() if k in ("kind", "namespace")},
        }
        for endpoint in piece.get("endpoints") or ()
    ]
    return {
        "metadata": metadata_left,
        "addressType": piece.get("addressType", "IPv4"),
        "ports": piece.get("ports") or [],
        "endpoints": endpoints,
    }
