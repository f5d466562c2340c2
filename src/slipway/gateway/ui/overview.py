"""The data of the page: builds the documents of the JSON API from resources, the routing table and counters. Pure."""

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
"""Kind of a model that consists only of a labelled Service, which no resource on the page owns."""
ROUTED = "Routed"
"""Type of the condition that shows whether model IDs lead to the resource."""


class Cluster(NamedTuple):
    """The state of the cluster at one point in time."""

    resources: Sequence[Resource] = ()
    owners: Mapping[str, str] = {}
    """Backend name -> UID of the resource that owns the Service."""
    faults: tuple[Fault, ...] = ()
    away_since: float = 0.0
    """Unix time since which the API server has been unreachable; 0 while it responds."""
    unread: tuple[str, ...] = ()
    """Kinds that cannot be read from the API server."""

    def within(self, serves: Callable[[str], bool]) -> Cluster:
        """Return the state without resources and faults in namespaces for which ``serves`` returns false. The namespace
        of a cluster-scoped resource is empty."""
        return self._replace(
            resources=[resource for resource in self.resources if serves(resource.namespace)],
            faults=tuple(fault for fault in self.faults if serves(fault.namespace)),
        )


class Model(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A row of the page: a model, or a resource that models use. The JSON omits empty fields."""

    kind: str
    """Plural and group, such as ``models.example.com``; ``SERVICE`` for a Service that no resource owns."""
    namespace: str
    """Namespace; empty for cluster-scoped resources."""
    name: str
    state: str
    """State of the model, such as ``ready`` or ``asleep`` (see docs/reference/page.md)."""
    reason: str = ""
    message: str = ""
    advice: str = ""
    """Recommended action for the user."""
    ids: tuple[str, ...] = ()
    """IDs that lead to the model, beginning with the recommended ID."""
    features: tuple[str, ...] = ()
    source: str = ""
    created: int = 0
    ready: int = 0
    """Number of replicas that accept requests."""
    desired: int | None = msgspec.field(default=None, name="wanted")
    """Number of replicas in the spec; None if the spec does not have the field."""
    active: int = 0
    """Requests in progress at the replicas."""
    waiting: int = 0
    """Requests that wait for a replica."""
    answered: int = 0
    failed: int = 0
    """Answers with status 500 or higher, also counted in ``answered``."""
    passed_over: int = 0
    """Replicas that get no requests, because they return errors or do not answer while others succeed."""
    first_byte_ms: int | None = None
    """Mean time to the first byte of an answer in milliseconds; None if there are no answers yet."""
    devices: Mapping[str, int] = {}
    """Type of GPU or other device -> number per replica, if the spec names them."""
    progress: int | None = None
    """Percentage of the weights that are loaded; None unless weights are being loaded."""
    weights: bool = False
    """Whether the resource only provides weights to other models, and answers no requests."""
    conflicts: tuple[str, ...] = ()
    """Problems of the model's routes."""


class Conflict(msgspec.Struct, frozen=True):
    """A problem of a Service whose route cannot be served completely."""

    namespace: str
    service: str
    message: str


class Service(msgspec.Struct, frozen=True):
    """A Service of a model, as the page shows it."""

    name: str
    ids: tuple[str, ...]
    endpoints: tuple[str, ...]
    strategy: str
    targets: tuple[str, ...] = ()
    """Names of the Services in the targets of its route. Empty if it has no targets, so that only this Service
    answers."""


class Detail(msgspec.Struct, frozen=True):
    """All data of one model: its row, the conditions of its resource, and its Services."""

    model: Model
    conditions: tuple[Condition, ...]
    services: tuple[Service, ...]


def restrict_to(cluster: Cluster, table: RoutingTable, backends: Collection[str]) -> tuple[Cluster, RoutingTable]:
    """Return the state and the table with only the given ``backends``, their faults, and the resources that own
    them."""
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
    """Return all models, sorted by namespace, name and kind. ``figures``: HAProxy's counters by backend name."""
    index = _ModelIndex(cluster, table, figures)
    uids = {resource.uid for resource in cluster.resources}
    rows = [index.build_declared(resource) for resource in cluster.resources]
    rows += [index.build_undeclared(backend) for backend in index.list_unowned(uids)]
    return sorted(rows, key=lambda model: (model.namespace, model.name, model.kind))


def find_conflicts(cluster: Cluster, table: RoutingTable) -> list[Conflict]:
    """Return the problems of the routes of all Services: faults, and IDs that lead to another Service."""
    problems = [Conflict(*fault) for fault in (*cluster.faults, *find_lost_ids(table))]
    return sorted(problems, key=lambda one: (one.namespace, one.service))


def build_detail(
    cluster: Cluster, table: RoutingTable, figures: Mapping[str, BackendCounters], kind: str, namespace: str, name: str
) -> Detail | None:
    """Return all data of one model, or None if the model does not exist. ``kind``, ``namespace`` and ``name`` are as in
    ``Model``."""
    index = _ModelIndex(cluster, table, figures)
    for resource in cluster.resources:
        if (resource.kind, resource.namespace, resource.name) == (kind, namespace, name):
            return Detail(index.build_declared(resource), resource.conditions, index.build_services(resource.uid))
    for backend in index.list_unowned({resource.uid for resource in cluster.resources}) if kind == SERVICE else ():
        if (backend.namespace, backend.service) == (namespace, name):
            return Detail(index.build_undeclared(backend), (), (index.build_service(backend),))
    return None


class _ModelIndex:
    """The routing table, indexed by the resources that own its Services."""

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
        """Return the backends whose owner is not one of the resources with the given UIDs."""
        return [backend for owner, owned in self._owned.items() if owner not in uids for backend in owned]

    def build_services(self, owner: str) -> tuple[Service, ...]:
        """Return the Services in the routing table that the resource with the UID ``owner`` owns."""
        return tuple(self.build_service(backend) for backend in self._backends_of(owner))

    def build_service(self, backend: Backend) -> Service:
        """Return the Service of a backend, with its IDs and endpoints."""
        targets = tuple(dict.fromkeys(target.service or backend.service for target in backend.route.targets))
        return Service(backend.service, self._ordered_ids(backend), backend.endpoints, backend.route.strategy, targets)

    def build_declared(self, resource: Resource) -> Model:
        """Return the row for a user's resource."""
        backends = self._backends_of(resource.uid)
        services = self._services.get(resource.uid, ())  # including Services that are not in the table
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
        """Return the row for a Service that no resource on the page owns."""
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
        """Return the backends of the resource with the UID ``owner``: the main backend first, and internal backends,
        such as canaries, last."""
        return sorted(
            self._owned.get(owner, ()),
            key=lambda backend: (backend.route.internal, len(backend.service), backend.service),
        )

    def _ordered_ids(self, backend: Backend) -> tuple[str, ...]:
        """Return the IDs that lead to a backend, in the order of its route. Aliases follow, and IDs that begin with its
        namespace are last."""
        order = {model: place for place, model in enumerate(backend.route.models)}
        qualified = f"{backend.namespace}/"
        return tuple(
            sorted(
                self._ids.get(backend.name, ()),
                key=lambda model: (model.startswith(qualified), order.get(model, len(order)), model),
            )
        )


def _is_adapter(backend: Backend, backends: Sequence[Backend]) -> bool:
    """Whether a backend is not the main backend, which is the first of ``backends``, but all its pods also belong to
    it. The Services of adapters have such backends."""
    return backend is not backends[0] and set(backend.endpoints) <= set(backends[0].endpoints)


def _serves_nothing(resource: Resource) -> bool:
    """Whether a resource answers no requests. Controllers report a condition ``Routed`` for all resources that do. The
    result is false for a resource without conditions, or during its deletion."""
    return bool(resource.conditions) and not resource.leaving and resource.find_condition(ROUTED) is None


_NO_CONDITION = Condition("", "", "", "")
_UNSEEN_ADVICE = "Check that Slipway's controller is running and serves this API."


def _advice(state: str, condition: Condition) -> str:
    """Return the advice for a state and the condition that explains it; empty if there is none."""
    if state == "unseen":
        return _UNSEEN_ADVICE
    return "" if state in ("ready", "asleep") else advise(condition.reason, condition.message)


def _state(resource: Resource, backends: Sequence[Backend], *, reachable: bool) -> tuple[str, Condition]:
    """Return the state of a resource, and the condition that explains it."""
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
