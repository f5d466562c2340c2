"""The routing table: model IDs, and the endpoints that answer requests for each ID.

This module builds the table from Services and EndpointSlices, and reports faults in them. Each backend is one Service,
to which several IDs may lead. Each version of a Service or slice is parsed only once, so the size of hostile input
limits its cost. An object that cannot be parsed affects only its own Service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from slipway.gateway.routing.keys import Rights
from slipway.kube.objects import Key, Object, key, resource_version
from slipway.serving.routing.claims import DEFAULT, NOT_ROUTED, Rules, alias_holders, by_age, owners, winners
from slipway.serving.routing.route import MODEL_ID, InvalidRouteError, Route, RoutedService, Routes, Target
from slipway.serving.status.unready import Unready, parse_unready

log = logging.getLogger(__name__)

SERVICE_NAME = "kubernetes.io/service-name"
"""Label of an EndpointSlice that contains the name of the Service."""
MOST_ENDPOINTS = 1000
"""Maximum number of endpoints of a Service. Further endpoints are ignored."""
MOST_OF_NAMESPACE = 1 << 20
"""Maximum number of characters of one namespace in the table, as ``_weight`` counts them. It is enough for about 2,000
models with one ID."""
FOREIGN_IGNORED = "endpoints that are not pods in its namespace are ignored, unless foreignEndpoints allows them"
_ID_WEIGHT = 128
"""Number of characters for an ID in addition to its text: its entries in maps, and the fixed part of its card."""


class Backend(NamedTuple):
    """A Service, and the sorted addresses of its ready endpoints: ``host:port``, with IPv6 hosts in brackets."""

    namespace: str
    service: str
    endpoints: tuple[str, ...]
    route: Route = Route()
    """The route in the Service's annotation."""
    unready: Unready | None = None
    """Reason why the Service has no endpoint, as the controller reports it; None if there is no report."""

    @property
    def name(self) -> str:
        """Name of the backend in HAProxy: ``namespace:service``. Neither part can contain a colon."""
        return f"{self.namespace}:{self.service}"

    def target(self, target: Target) -> str:
        """Return the name of the backend to which a target of the route leads. The backend may not exist."""
        return f"{self.namespace}:{target.service or self.service}"


class Card(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model in the answer of ``/v1/models``, with OpenAI's four fields and the gateway's own fields."""

    id: str
    created: int
    owned_by: str
    namespace: str
    object: str = msgspec.field(default="model")
    source: str = ""
    features: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    """Labels that label selectors match. The answer does not contain them."""

    def to_json(self) -> dict[str, Any]:
        """Return the card as a JSON object, with the fields in the order of OpenAI's documentation. Omit the labels,
        and ``source`` if it is empty."""
        card: dict[str, Any] = {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "owned_by": self.owned_by,
            "namespace": self.namespace,
            "features": self.features,
        }
        return card | ({"source": self.source} if self.source else {})


class RoutingTable(NamedTuple):
    """The routing table, from which HAProxy's configuration and the model list are derived."""

    backends: Mapping[str, Backend]
    """Backend name -> backend."""
    models: Mapping[str, str]
    """Model ID in requests -> backend name."""
    cards: Mapping[str, Card]
    """Model ID in requests -> card. The model list contains only the cards of ``listed`` IDs."""
    listed: tuple[str, ...]
    """IDs in the complete model list: all public IDs, and ``namespace/name`` of each Service that has this ID but no
    public ID."""
    aliases: frozenset[str] = frozenset()
    """IDs that are only aliases of a Service."""
    refused: Mapping[str, str] = {}
    """ID of a rejected model, which is not in ``models`` -> reason of the rejection."""


EMPTY = RoutingTable({}, {}, {}, ())


class Snapshot(NamedTuple):
    """The routing table, API keys and gateways of a source at one point in time."""

    table: RoutingTable
    keys: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 of each API key, and the key's name."""
    rights: Mapping[str, Rights] = {}
    """Rights by the name of the key or subject, if it has an entry."""
    gateways: Mapping[str, bool] = {}
    """``host:port`` of a gateway pod's exchange -> whether the pod is Ready."""


Publish = Callable[[Snapshot], None]
"""A function that gets each new snapshot of a source."""


class Fault(NamedTuple):
    """The problems of a Service that the gateway cannot serve as its route requires."""

    namespace: str
    service: str
    message: str


class _Slice(NamedTuple):
    """The parsed content of an EndpointSlice."""

    owner: tuple[str, str]
    family: str
    ports: Mapping[str, int]
    """Port name -> port number."""
    hosts: tuple[str, ...]
    """Addresses of the endpoints that accept new requests."""
    has_foreign: bool
    """Whether the slice has further ready endpoints, which are ignored because they are not pods in its namespace."""


class TableBuilder:
    """A builder of routing tables that caches parsed objects. After a change of one object, it parses only that
    object."""

    def __init__(self, *, foreign_endpoints: bool = False) -> None:
        """``foreign_endpoints``: whether to use endpoints that are not pods in the namespace of their Service."""
        self._foreign = foreign_endpoints
        self._routes = Routes()
        self._parsed_slices: dict[str, tuple[str, _Slice | None]] = {}

    def build(
        self, services: Iterable[Object], slices: Iterable[Object], rules: Rules = DEFAULT
    ) -> tuple[RoutingTable, tuple[Fault, ...]]:
        """Return the table for ``services``, and their faults. Ignore EndpointSlices of other Services. ``rules`` are
        the operator's rules for namespaces and model IDs."""
        faults: dict[tuple[str, str], list[str]] = {}
        services = list(services)
        routed = _limit_namespaces(self._parse_services(services, rules, faults), faults)
        unready = {key(obj): parse_unready(obj["metadata"].get("annotations") or {}) for obj in services}
        pieces = self._group_slices(slices)
        backends = {}
        for service in routed:
            own = pieces.get((service.namespace, service.name), ())
            if any(piece.has_foreign for piece in own):
                _add_fault(faults, service, FOREIGN_IGNORED)
            addresses = _addresses(own, service.route.port)
            if len(addresses) > MOST_ENDPOINTS:
                _add_fault(
                    faults, service, f"more than {MOST_ENDPOINTS} endpoints: the first {MOST_ENDPOINTS} are used"
                )
            condition = unready.get(Key(service.namespace, service.name))
            backend = Backend(service.namespace, service.name, addresses[:MOST_ENDPOINTS], service.route, condition)
            backends[backend.name] = backend
        _check_targets(backends, faults)
        table = _build_table(backends, routed, faults)
        reports = (Fault(*name, "; ".join(messages)) for name, messages in sorted(faults.items()))
        return table, tuple(reports)

    def _parse_services(
        self, services: Sequence[Object], rules: Rules, faults: dict[tuple[str, str], list[str]]
    ) -> list[RoutedService]:
        self._routes.forget_others(services)
        routed = []
        for obj in services:
            namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
            if not rules.serves(namespace):
                faults[namespace, name] = [f"it {NOT_ROUTED}"]
                continue
            try:
                service = rules.apply(self._routes.read(obj))
            except InvalidRouteError as error:
                faults[namespace, name] = [str(error)]
                continue
            if service.refused:
                _add_fault(faults, service, service.complaint)
            routed.append(service)
        return routed

    def _group_slices(self, slices: Iterable[Object]) -> dict[tuple[str, str], list[_Slice]]:
        groups: dict[tuple[str, str], list[_Slice]] = {}
        cache: dict[str, tuple[str, _Slice | None]] = {}
        for obj in slices:
            ident, version = obj["metadata"].get("uid", ""), resource_version(obj)
            entry = self._parsed_slices.get(ident)
            if entry is None or entry[0] != version:
                entry = version, _parse_slice(obj, foreign=self._foreign)
            if ident and version:
                cache[ident] = entry
            if entry[1] is not None:
                groups.setdefault(entry[1].owner, []).append(entry[1])
        self._parsed_slices = cache
        return groups


def build(
    services: Iterable[Object], slices: Iterable[Object], rules: Rules = DEFAULT, *, foreign_endpoints: bool = False
) -> tuple[RoutingTable, tuple[Fault, ...]]:
    """Return a single table and its faults. ``TableBuilder`` is faster for a series of tables."""
    return TableBuilder(foreign_endpoints=foreign_endpoints).build(services, slices, rules)


def _add_fault(faults: dict[tuple[str, str], list[str]], service: RoutedService, message: str) -> None:
    faults.setdefault((service.namespace, service.name), []).append(message)


def _check_targets(backends: Mapping[str, Backend], faults: dict[tuple[str, str], list[str]]) -> None:
    for backend in backends.values():
        missing = {target.service for target in backend.route.targets if backend.target(target) not in backends}
        if missing:
            names = ", ".join(map(repr, sorted(missing)))
            text = f"targets: its namespace has no Service {names} with a route, so no request goes there"
            faults.setdefault((backend.namespace, backend.service), []).append(text)


def _weight(service: RoutedService) -> int:
    """Return the approximate number of characters of a Service in the table and in the model list."""
    route = service.route
    card = _ID_WEIGHT + len(service.namespace) + len(route.owned_by) + len(route.source) + sum(map(len, route.features))
    ids = (*route.models, *route.aliases, service.qualified)
    labels = sum(len(key) + len(value) for key, value in route.labels.items())
    return sum(map(len, ids)) + card * len(ids) + labels


def _limit_namespaces(routed: Iterable[RoutedService], faults: dict[tuple[str, str], list[str]]) -> list[RoutedService]:
    """Return the Services that fit in the limit of their namespace, oldest first, so that a new Service displaces no
    older Service. Add a fault to ``faults`` for each omitted Service."""
    used: dict[str, int] = {}
    accepted = []
    for service in by_age(routed):
        weight = used.get(service.namespace, 0) + _weight(service)
        if weight > MOST_OF_NAMESPACE:
            text = "the model IDs of its namespace's Services, with their metadata, exceed the gateway's limit"
            _add_fault(faults, service, f"not served: {text} for one namespace. Remove unused routes")
            continue
        used[service.namespace] = weight
        accepted.append(service)
    return accepted


def find_lost_ids(table: RoutingTable) -> list[Fault]:
    """Return a fault for each model ID in a Service's route that leads to another Service. Ignore internal Services."""
    faults = []
    for backend in table.backends.values():
        for model in () if backend.route.internal else backend.route.models:
            winner = table.models.get(model, backend.name)
            if winner != backend.name:
                text = f"the ID {model!r} belongs to Service {winner.replace(':', '/')}, which is older"
                faults.append(Fault(backend.namespace, backend.service, text))
    return faults


def _build_table(
    backends: Mapping[str, Backend], aged: Sequence[RoutedService], faults: dict[tuple[str, str], list[str]]
) -> RoutingTable:
    qualified = owners(aged)
    for service in aged:
        winner = qualified.get(service.qualified)
        if winner is not None and winner is not service:
            _add_fault(
                faults, service, f"the ID {service.qualified!r} belongs to Service {winner.name!r}, which is older"
            )
    # The qualified ID belongs to its owner, so no other Service can have it as a public name.
    public = {model: winner for model, winner in winners(aged).items() if model not in qualified}
    named = public | qualified
    aliases = alias_holders(aged, named)
    answering = named | aliases
    winning = {winner.key for winner in public.values()}
    listed = [*public, *(name for name, service in qualified.items() if service.key not in winning)]
    return RoutingTable(
        backends=dict(sorted(backends.items())),
        models={model: f"{owner.namespace}:{owner.name}" for model, owner in sorted(answering.items())},
        cards={model: _card(model, owner) for model, owner in sorted(answering.items())},
        listed=tuple(sorted(listed)),
        aliases=frozenset(aliases),
        refused=_refused_models(aged, answering),
    )


def _refused_models(aged: Sequence[RoutedService], answering: Container[str]) -> dict[str, str]:
    """Return the reason of the oldest rejection for each rejected model ID that no Service has. Omit IDs of other
    namespaces."""
    reasons: dict[str, str] = {}
    for service in aged:
        refusal = service.route.refusal
        if refusal is None or not service.route.internal:
            continue
        for model in refusal.models:
            own = "/" not in model or model.startswith(f"{service.namespace}/")
            if own and model not in answering and MODEL_ID.fullmatch(model):
                reasons.setdefault(model, refusal.reason)
    return dict(sorted(reasons.items()))


def _parse_slice(obj: Object, *, foreign: bool) -> _Slice | None:
    """Parse an EndpointSlice. Return None if it is invalid or of an unsupported address type."""
    try:
        metadata = obj["metadata"]
        namespace, family = metadata["namespace"], obj.get("addressType", "IPv4")
        owner = (namespace, (metadata.get("labels") or {}).get(SERVICE_NAME, ""))
        ports: dict[str, int] = {}
        for port in obj.get("ports") or ():
            if port.get("port") is not None:
                ports.setdefault(port.get("name") or "", port["port"])
        ready = [endpoint for endpoint in obj.get("endpoints") or () if _takes_requests(endpoint)]
        used = ready if foreign else [endpoint for endpoint in ready if _is_pod(endpoint, namespace)]
        # All addresses of an endpoint belong to the same pod. Kubernetes specifies that clients use the first.
        hosts = tuple({endpoint["addresses"][0] for endpoint in used})
        return _Slice(owner, family, ports, hosts, len(used) < len(ready)) if family in ("IPv4", "IPv6") else None
    except Exception as error:  # noqa: BLE001 - a broken slice must not affect other Services
        log.warning(
            "Ignoring EndpointSlice %s, which cannot be read: %s", obj["metadata"].get("name"), type(error).__name__
        )
        return None


def _takes_requests(endpoint: Object) -> bool:
    """Whether an endpoint is ready and not terminating. An unknown readiness means ready, as the Kubernetes API
    specifies."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready", True) is not False and not conditions.get("terminating")


def _is_pod(endpoint: Object, namespace: str) -> bool:
    """Whether an endpoint refers to a pod in ``namespace``. Kubernetes writes such endpoints for a Service with a
    selector."""
    target = endpoint.get("targetRef") or {}
    return target.get("kind") == "Pod" and target.get("namespace", namespace) == namespace


def _addresses(pieces: Iterable[_Slice], port: str) -> tuple[str, ...]:
    """Return the sorted addresses, ``host:port``, of a Service's endpoints at the named port. If there are addresses
    of both IP families, return only IPv4."""
    families: dict[str, set[str]] = {"IPv4": set(), "IPv6": set()}
    for piece in pieces:
        number = piece.ports.get(port)
        if number is not None:
            families[piece.family].update(
                f"[{host}]:{number}" if ":" in host else f"{host}:{number}" for host in piece.hosts
            )
    return tuple(sorted(families["IPv4"] or families["IPv6"]))


def _card(model: str, owner: RoutedService) -> Card:
    route = owner.route
    return Card(
        model,
        route.created,
        route.owned_by,
        owner.namespace,
        source=route.source,
        features=route.features,
        labels=route.labels,
    )
