"""What the page shows: resources, routing table and counters in, documents of the JSON interface out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from slipway.gateway.haproxy.metrics import BackendCounters
from slipway.gateway.routing.table import Backend, Fault, RoutingTable, find_lost_ids
from slipway.gateway.ui.advice import advise
from slipway.gateway.ui.resources import Condition, Resource
from slipway.kube.schemas.conditions import READY, RECONCILING, STALLED

SERVICE = "services"
"""Kind of a model that nobody declared but by a labelled Service."""
ROUTED = "Routed"
"""Condition that says whether ids lead to the resource."""


class Cluster(NamedTuple):
    """What is known of the cluster at one moment."""

    resources: Sequence[Resource] = ()
    owners: Mapping[str, str] = {}
    """Uid of the resource that each routed Service belongs to, by its backend's name."""
    faults: tuple[Fault, ...] = ()
    away_since: float = 0.0
    """Unix time since when the API server does not answer; 0 while it does."""
    unread: tuple[str, ...] = ()
    """Kinds about which the API server says nothing."""

    def within(self, serves: Callable[[str], bool]) -> Cluster:
        """The same without what is in namespaces that are not served: those who ask here need not know of it."""
        return self._replace(
            resources=[resource for resource in self.resources if serves(resource.namespace)],
            faults=tuple(fault for fault in self.faults if serves(fault.namespace)),
        )


class Model(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One model, or what belongs to models, as the page shows it. Fields that are empty are left out."""

    kind: str
    namespace: str
    name: str
    state: str
    """See docs/reference/page.md."""
    reason: str = ""
    message: str = ""
    advice: str = ""
    """What to do."""
    ids: tuple[str, ...] = ()
    """Ids that lead to it, the one to use first."""
    features: tuple[str, ...] = ()
    source: str = ""
    created: int = 0
    ready: int = 0
    """Replicas that take requests."""
    desired: int | None = msgspec.field(default=None, name="wanted")
    """Replicas that its spec asks for, where it says."""
    active: int = 0
    """Requests that replicas work on."""
    waiting: int = 0
    """Requests that wait for a replica."""
    answered: int = 0
    failed: int = 0
    """Of the answers those with a status of 500 and above."""
    passed_over: int = 0
    """Replicas that get no requests, as they answer errors or nothing while others answer well."""
    first_byte_ms: int | None = None
    """Mean time to the first byte of an answer."""
    devices: Mapping[str, int] = {}
    """GPUs and other devices of one replica, by type, if the spec names them."""
    progress: int | None = None
    """Percentage of the weights that is loaded, while they load."""
    weights: bool = False
    """Whether it holds weights for others and answers no requests itself."""
    conflicts: tuple[str, ...] = ()
    """What is wrong with its routes."""


class Conflict(msgspec.Struct, frozen=True):
    """A Service whose route is not served, or not as it asks for."""

    namespace: str
    service: str
    message: str


class Service(msgspec.Struct, frozen=True):
    """A Service of a model, and its part of the requests."""

    name: str
    ids: tuple[str, ...]
    endpoints: tuple[str, ...]
    strategy: str
    targets: tuple[str, ...] = ()
    """The Services that answer for its ids; empty: it alone does."""


class Detail(msgspec.Struct, frozen=True):
    """One model in full."""

    model: Model
    conditions: tuple[Condition, ...]
    services: tuple[Service, ...]


def restrict_to(cluster: Cluster, table: RoutingTable, backends: Collection[str]) -> tuple[Cluster, RoutingTable]:
    """What somebody may know who may ask these backends only."""
    owned = {owner for name, owner in cluster.owners.items() if name in backends}
    restricted = cluster._replace(
        resources=[resource for resource in cluster.resources if resource.uid in owned],
        owners={name: owner for name, owner in cluster.owners.items() if name in backends},
        faults=tuple(fault for fault in cluster.faults if f"{fault.namespace}:{fault.service}" in backends),
    )
    routed = table._replace(
        backends={name: backend for name, backend in table.backends.items() if name in backends},
        models={model: name for model, name in table.models.items() if name in backends},
    )
    return restricted, routed


def build_models(cluster: Cluster, table: RoutingTable, figures: Mapping[str, BackendCounters]) -> list[Model]:
    """All of them, by namespace, name and kind."""
    index = _ModelIndex(cluster, table, figures)
    uids = {resource.uid for resource in cluster.resources}
    rows = [index.build_declared(resource) for resource in cluster.resources]
    rows += [index.build_undeclared(backend) for backend in index.list_unowned(uids)]
    return sorted(rows, key=lambda model: (model.namespace, model.name, model.kind))


def find_conflicts(cluster: Cluster, table: RoutingTable) -> list[Conflict]:
    """What is wrong with the routes of each Service: what cannot be served, and ids that lead to another one."""
    problems = [Conflict(*fault) for fault in (*cluster.faults, *find_lost_ids(table))]
    return sorted(problems, key=lambda one: (one.namespace, one.service))


def build_detail(
    cluster: Cluster, table: RoutingTable, figures: Mapping[str, BackendCounters], kind: str, namespace: str, name: str
) -> Detail | None:
    """One of them in full; None where there is none of this name."""
    index = _ModelIndex(cluster, table, figures)
    for resource in cluster.resources:
        if (resource.kind, resource.namespace, resource.name) == (kind, namespace, name):
            return Detail(index.build_declared(resource), resource.conditions, index.build_services(resource.uid))
    for backend in index.list_unowned({resource.uid for resource in cluster.resources}) if kind == SERVICE else ():
        if (backend.namespace, backend.service) == (namespace, name):
            return Detail(index.build_undeclared(backend), (), (index.build_service(backend),))
    return None


class _ModelIndex:
    """The routing table, arranged by who owns its Services."""

    def __init__(self, cluster: Cluster, table: RoutingTable, figures: Mapping[str, BackendCounters]) -> None:
        self._table, self._owners, self._figures = table, cluster.owners, figures
        self._ids: dict[str, list[str]] = {}
        for model, name in table.models.items():
            self._ids.setdefault(name, []).append(model)
        self._owned: dict[str, list[Backend]] = {}
        for backend in table.backends.values():
            self._owned.setdefault(self._owners.get(backend.name, ""), []).append(backend)
        self._conflicts: dict[str, list[str]] = {}
        for one in find_conflicts(cluster, table):
            self._conflicts.setdefault(f"{one.namespace}:{one.service}", []).append(one.message)
        self._services: dict[str, list[str]] = {}
        for service, owner in cluster.owners.items():
            self._services.setdefault(owner, []).append(service)

    def list_unowned(self, uids: set[str]) -> list[Backend]:
        """Backends of none of these resources."""
        return [backend for owner, owned in self._owned.items() if owner not in uids for backend in owned]

    def build_services(self, owner: str) -> tuple[Service, ...]:
        """Those of a resource."""
        return tuple(self.build_service(backend) for backend in self._backends_of(owner))

    def build_service(self, backend: Backend) -> Service:
        """One of them."""
        targets = tuple(dict.fromkeys(target.service or backend.service for target in backend.route.targets))
        return Service(backend.service, self._ordered_ids(backend), backend.endpoints, backend.route.strategy, targets)

    def build_declared(self, resource: Resource) -> Model:
        """A resource that a user wrote."""
        backends = self._backends_of(resource.uid)
        services = self._services.get(resource.uid, ())  # those that the table does not have, too
        reachable = not services or any(self._ids.get(name) for name in services)
        state, condition = _state(resource, backends, reachable=reachable)
        model = self._build_model(
            backends,
            services,
            kind=resource.kind,
            namespace=resource.namespace,
            name=resource.name,
            state=state,
            created=resource.created,
            desired=resource.desired,
            condition=condition,
        )
        return msgspec.structs.replace(
            model,
            devices=resource.devices,
            progress=resource.progress if state in ("starting", "updating") else None,
            weights=not services and _serves_nothing(resource),
        )

    def build_undeclared(self, backend: Backend) -> Model:
        """A Service that no such resource owns."""
        state, reason, message = "ready", "", ""
        if not self._ids.get(backend.name) and not backend.route.internal:
            state = "unreachable"
        elif not backend.endpoints and backend.route.scale:
            state = "asleep"
        elif not backend.endpoints:
            state, reason, message = "starting", "WaitingForPods", "The Service has no ready endpoint."
        return self._build_model(
            [backend],
            (backend.name,),
            kind=SERVICE,
            namespace=backend.namespace,
            name=backend.service,
            state=state,
            created=backend.route.created,
            desired=None,
            condition=Condition("", "", reason, message),
        )

    def _build_model(
        self,
        backends: Sequence[Backend],
        names: Iterable[str],
        *,
        kind: str,
        namespace: str,
        name: str,
        state: str,
        created: int,
        desired: int | None,
        condition: Condition,
    ) -> Model:
        counted = [self._figures[backend.name] for backend in backends if backend.name in self._figures]
        first_bytes = sum(one.first_bytes for one in counted)
        return Model(
            kind=kind,
            namespace=namespace,
            name=name,
            state=state,
            reason=condition.reason,
            message=condition.message,
            advice=_advice(state, condition),
            ids=tuple(model for backend in backends for model in self._ordered_ids(backend)),
            features=tuple(dict.fromkeys(feature for backend in backends for feature in backend.route.features)),
            source=next((backend.route.source for backend in backends if backend.route.source), ""),
            created=created,
            ready=sum(len(backend.endpoints) for backend in backends if not _is_adapter(backend, backends)),
            desired=desired,
            active=sum(one.active for one in counted),
            waiting=sum(one.waiting for one in counted),
            answered=sum(one.answered for one in counted),
            failed=sum(one.failed for one in counted),
            passed_over=sum(one.passed_over for one in counted),
            first_byte_ms=round(sum(one.first_byte_ms for one in counted) / first_bytes) if first_bytes else None,
            conflicts=tuple(message for one in sorted(names) for message in self._conflicts.get(one, ())),
        )

    def _backends_of(self, owner: str) -> list[Backend]:
        """Backends of a resource: the one that its own name leads to first, canaries last."""
        return sorted(
            self._owned.get(owner, ()),
            key=lambda backend: (backend.route.internal, len(backend.service), backend.service),
        )

    def _ordered_ids(self, backend: Backend) -> tuple[str, ...]:
        """Ids of a backend as its route orders them; those that begin with the namespace come last."""
        order = {model: place for place, model in enumerate(backend.route.models)}
        qualified = f"{backend.namespace}/"
        return tuple(
            sorted(
                self._ids.get(backend.name, ()),
                key=lambda model: (model.startswith(qualified), order.get(model, len(order)), model),
            )
        )


def _is_adapter(backend: Backend, backends: Sequence[Backend]) -> bool:
    """Whether another Service of the same resource leads to the same pods."""
    return backend is not backends[0] and set(backend.endpoints) <= set(backends[0].endpoints)


def _serves_nothing(resource: Resource) -> bool:
    """Whether its controller reports no route: it does for each kind that answers requests."""
    return bool(resource.conditions) and not resource.leaving and resource.find_condition(ROUTED) is None


_NO_CONDITION = Condition("", "", "", "")
_UNSEEN_ADVICE = "Check that Slipway's controller is running and serves this API."


def _advice(state: str, condition: Condition) -> str:
    """What to do about a state and the condition that says why."""
    if state == "unseen":
        return _UNSEEN_ADVICE
    return "" if state in ("ready", "asleep") else advise(condition.reason, condition.message)


def _state(resource: Resource, backends: Sequence[Backend], *, reachable: bool) -> tuple[str, Condition]:
    """How a resource is, and the condition that says why."""
    ready, changing, stalled = (
        resource.find_condition(type_) or _NO_CONDITION for type_ in (READY, RECONCILING, STALLED)
    )
    if resource.leaving:
        return "leaving", _NO_CONDITION if ready.status == "True" else ready
    if not ready.status:
        return "unseen", Condition("", "", "", "No controller has reported a status yet.")
    if ready.status != "True":
        return ("failed", stalled) if stalled.status == "True" else ("starting", ready)
    if stalled.status == "True":
        return "degraded", stalled
    if not reachable:
        return "unreachable", resource.find_condition(ROUTED) or _NO_CONDITION
    if backends and not any(backend.endpoints for backend in backends):
        return ("asleep" if any(backend.route.scale for backend in backends) else "stopped"), ready
    return ("updating", changing) if changing.status == "True" else ("ready", ready)
