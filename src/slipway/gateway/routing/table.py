"""The routing table: which model ids exist and which endpoints answer for each.

Services and EndpointSlices in, table and faults out. One backend is one Service; several ids may lead to it. Each
Service and slice is parsed once per version, so the cost of hostile input is bounded by its size, and one that cannot
be parsed affects its own Service only.
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
from slipway.serving.status.unready import Unready
from slipway.serving.status.unready import parse_unready as read_unready

log = logging.getLogger(__name__)

SERVICE_NAME = "kubernetes.io/service-name"
"""Label by which an EndpointSlice names its Service."""
MOST_ENDPOINTS = 1000
"""Endpoints of one Service that are used."""
MOST_OF_NAMESPACE = 1 << 20
"""Characters that one namespace may have in the table, as ``_weight`` counts them: about 2,000 models of one id."""
FOREIGN_IGNORED = "endpoints that are not pods in its namespace are ignored, unless foreignEndpoints allows them"
_ID_WEIGHT = 128
"""What an id weighs beside its own text: its entries in maps and the fixed part of its card."""


class Backend(NamedTuple):
    """One Service and the addresses (``host:port``, IPv6 in brackets) of its ready endpoints, sorted."""

    namespace: str
    service: str
    endpoints: tuple[str, ...]
    route: Route = Route()
    """What the Service says of itself."""
    unready: Unready | None = None
    """Why none of its endpoints answers, as far as the controller knows."""

    @property
    def name(self) -> str:
        """Its name in HAProxy. Neither part can hold a colon."""
        return f"{self.namespace}:{self.service}"

    def target(self, target: Target) -> str:
        """Name of the backend of one of them."""
        return f"{self.namespace}:{target.service or self.service}"


class Card(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as ``/v1/models`` shows it: OpenAI's four fields, then ours."""

    id: str
    created: int
    owned_by: str
    namespace: str
    object: str = msgspec.field(default="model")
    source: str = ""
    features: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """The fields in the order of OpenAI's documentation; `source` only where it is known."""
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
    """Everything that the data plane and the model list need."""

    backends: Mapping[str, Backend]
    """By the backend's name."""
    models: Mapping[str, str]
    """Backend name of each id that may stand in a request."""
    cards: Mapping[str, Card]
    """Card of each such id."""
    listed: tuple[str, ...]
    """Ids shown in the model list: every public id, and ``namespace/name`` of a Service that won none."""
    aliases: frozenset[str] = frozenset()
    """Those of the ids that the Service they lead to has as an alias only."""
    refused: Mapping[str, str] = {}
    """Ids of models that are refused, which lead nowhere, and the reason of each."""


EMPTY = RoutingTable({}, {}, {}, ())


class Snapshot(NamedTuple):
    """All that a source knows at one moment."""

    table: RoutingTable
    keys: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 of each API key, and the key's name."""
    rights: Mapping[str, Rights] = {}
    """By name of the key, of those that have any."""
    gateways: Mapping[str, bool] = {}
    """``host:port`` of the exchange of each gateway pod, and whether the pod is Ready."""


Publish = Callable[[Snapshot], None]
"""By which a source hands on each new snapshot."""


class Fault(NamedTuple):
    """A Service that cannot be served, or not as it asks for, and everything that is wrong with it."""

    namespace: str
    service: str
    message: str


class _Slice(NamedTuple):
    """What an EndpointSlice says."""

    owner: tuple[str, str]
    family: str
    ports: Mapping[str, int]
    """Number of each port by its name."""
    hosts: tuple[str, ...]
    """Those that may take new requests."""
    has_foreign: bool
    """Whether there are more that would, and that are no pods of the namespace."""


class TableBuilder:
    """Builds tables, and caches what it parsed: a change of one Service or slice parses that one only."""

    def __init__(self, *, foreign_endpoints: bool = False) -> None:
        """`foreign_endpoints`: whether endpoints are used that are no pods of their Service's namespace."""
        self._foreign = foreign_endpoints
        self._routes = Routes()
        self._parsed_slices: dict[str, tuple[str, _Slice | None]] = {}

    def build(
        self, services: Iterable[Object], slices: Iterable[Object], rules: Rules = DEFAULT
    ) -> tuple[RoutingTable, tuple[Fault, ...]]:
        """The table of labelled Services and of EndpointSlices (others than theirs are ignored)."""
        faults: dict[tuple[str, str], list[str]] = {}
        services = list(services)
        routed = _limit_namespaces(self._parse_services(services, rules, faults), faults)
        unready = {key(obj): read_unready(obj["metadata"].get("annotations") or {}) for obj in services}
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
        self._routes.keep(services)
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
    """A single table; for a series of them see TableBuilder."""
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
    """Characters that a Service costs the table and the model list."""
    route = service.route
    card = _ID_WEIGHT + len(service.namespace) + len(route.owned_by) + len(route.source) + sum(map(len, route.features))
    ids = (*route.models, *route.aliases, service.qualified)
    labels = sum(len(key) + len(value) for key, value in route.labels.items())
    return sum(map(len, ids)) + card * len(ids) + labels


def _limit_namespaces(routed: Iterable[RoutedService], faults: dict[tuple[str, str], list[str]]) -> list[RoutedService]:
    """The Services that their namespace has room for, the oldest first, so that a new one displaces none."""
    used: dict[str, int] = {}
    kept = []
    for service in by_age(routed):
        weight = used.get(service.namespace, 0) + _weight(service)
        if weight > MOST_OF_NAMESPACE:
            text = "the model IDs of its namespace's Services, with their metadata, exceed the gateway's limit"
            _add_fault(faults, service, f"not served: {text} for one namespace. Remove unused routes")
            continue
        used[service.namespace] = weight
        kept.append(service)
    return kept


def find_lost_ids(table: RoutingTable) -> list[Fault]:
    """For each ID that two Services give, the one whose requests the older one gets."""
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
    # The qualified id is promised to its owner, so nobody else's public name can take it.
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
    """By id that nobody answers for: the reason of the oldest refusal. Ids of other namespaces are left out."""
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
    """Reads an EndpointSlice; None where it says nothing that can be used."""
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
        # All addresses of one endpoint are the same pod: the API asks consumers to use the first.
        hosts = tuple({endpoint["addresses"][0] for endpoint in used})
        return _Slice(owner, family, ports, hosts, len(used) < len(ready)) if family in ("IPv4", "IPv6") else None
    except Exception as error:  # noqa: BLE001 - one slice must not end what serves the others
        log.warning(
            "Ignoring EndpointSlice %s, which cannot be read: %s", obj["metadata"].get("name"), type(error).__name__
        )
        return None


def _takes_requests(endpoint: Object) -> bool:
    """Ready and not terminating. Absent means unknown, which the API tells consumers to read as ready."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready", True) is not False and not conditions.get("terminating")


def _is_pod(endpoint: Object, namespace: str) -> bool:
    """Whether the endpoint says to be a pod of this namespace, as Kubernetes writes it of a Service's own pods."""
    target = endpoint.get("targetRef") or {}
    return target.get("kind") == "Pod" and target.get("namespace", namespace) == namespace


def _addresses(pieces: Iterable[_Slice], port: str) -> tuple[str, ...]:
    """Addresses of a Service's endpoints, sorted. IPv4 where it has both families."""
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
