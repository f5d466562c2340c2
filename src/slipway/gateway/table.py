"""The routing table: which model ids exist and which endpoints answer for each.

Pure: Services and EndpointSlices in, table and faults out. One backend is one Service; several ids may lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from slipway.kube.objects import Object
from slipway.serving.route import InvalidRoute, Route, RoutedService, by_age, owners, routed_service, winners

SERVICE_NAME = "kubernetes.io/service-name"
"""Label by which an EndpointSlice names its Service."""

# What a map file of HAProxy and its command line carry unquoted. Wide enough for the ids of every public hub.
MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+~=,-]{0,252}")


class Backend(NamedTuple):
    """One Service and the addresses (``host:port``, IPv6 in brackets) of its ready endpoints, sorted."""

    namespace: str
    service: str
    endpoints: tuple[str, ...]
    route: Route = Route()
    """What the Service says of itself."""

    @property
    def name(self) -> str:
        """Its name in HAProxy. Neither part can hold a colon."""
        return f"{self.namespace}:{self.service}"


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

    def public(self) -> dict[str, Any]:
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


EMPTY = RoutingTable({}, {}, {}, ())


class Fault(NamedTuple):
    """A Service, or a part of its route, that cannot be served, and why."""

    namespace: str
    service: str
    message: str


def build(services: Iterable[Object], slices: Iterable[Object]) -> tuple[RoutingTable, tuple[Fault, ...]]:
    """Makes the table of labelled Services and of EndpointSlices (others than theirs are ignored)."""
    routed, faults = _routed(services)
    by_service: dict[tuple[str, str], list[Object]] = {}
    for piece in slices:
        metadata = piece["metadata"]
        owner = (metadata["namespace"], metadata.get("labels", {}).get(SERVICE_NAME, ""))
        by_service.setdefault(owner, []).append(piece)

    backends = {}
    for service in routed:
        pieces = by_service.get((service.namespace, service.name), ())
        addresses = ready_addresses(pieces, service.route.port)
        backend = Backend(service.namespace, service.name, addresses, service.route)
        backends[backend.name] = backend

    aged = by_age(routed)
    qualified = owners(aged)
    for service in aged:
        winner = qualified[service.qualified]
        if winner is not service:
            message = f"the id {service.qualified!r} belongs to Service {winner.name!r}, which is older"
            faults.append(Fault(service.namespace, service.name, message))
    # The qualified id is promised to its owner, so nobody else's public name can take it.
    public = {model: winner for model, winner in winners(aged).items() if model not in qualified}
    answering = public | qualified
    winning = {winner.key for winner in public.values()}
    listed = [*public, *(name for name, service in qualified.items() if service.key not in winning)]
    table = RoutingTable(
        backends=dict(sorted(backends.items())),
        models={model: f"{owner.namespace}:{owner.name}" for model, owner in sorted(answering.items())},
        cards={model: _card(model, owner) for model, owner in sorted(answering.items())},
        listed=tuple(sorted(listed)),
    )
    return table, tuple(faults)


def ready_addresses(slices: Iterable[Object], port: str) -> tuple[str, ...]:
    """Addresses that may take new requests: ready and not terminating. IPv4 where a Service has both families."""
    found: dict[str, set[str]] = {"IPv4": set(), "IPv6": set()}
    for piece in slices:
        family = found.get(piece.get("addressType", "IPv4"))
        number = next((p.get("port") for p in piece.get("ports") or () if (p.get("name") or "") == port), None)
        if family is None or number is None:
            continue
        for endpoint in piece.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            # Absent means unknown, which the API tells consumers to read as ready.
            if conditions.get("ready", True) is False or conditions.get("terminating"):
                continue
            # All addresses of one endpoint are the same pod: the API asks consumers to use the first.
            host = endpoint["addresses"][0]
            family.add(f"[{host}]:{number}" if ":" in host else f"{host}:{number}")
    return tuple(sorted(found["IPv4"] or found["IPv6"]))


def _routed(services: Iterable[Object]) -> tuple[list[RoutedService], list[Fault]]:
    routed, faults = [], []
    for service in services:
        metadata = service["metadata"]
        try:
            found = routed_service(service)
        except InvalidRoute as error:
            faults.append(Fault(metadata["namespace"], metadata["name"], str(error)))
            continue
        usable = tuple(model for model in found.route.models if MODEL_ID.fullmatch(model))
        faults.extend(
            Fault(
                found.namespace, found.name, f"model id {model!r} cannot be served: letters, digits and ._:/@+~=,- only"
            )
            for model in found.route.models
            if model not in usable
        )
        routed.append(found._replace(route=msgspec.structs.replace(found.route, models=usable)))
    return sorted(routed, key=lambda service: service.key), faults


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
