"""Routes: how a Service says which public model names it answers for.

The controller writes them, a user may write one by hand, the gateway reads them. A Service takes part when it carries
the label ``slipway.inference/route: "true"``. Its annotation of the same name holds a :class:`Route` as JSON; every
field has a default, so that an engine deployed by hand needs the label alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from slipway.kube.objects import Object, created_unix

ROUTE = "slipway.inference/route"
"""Name of both the label (value ``"true"``) and the annotation (value: the route as JSON)."""
MOST_LABELS = 100
"""A route with more labels of its model cannot be read: the gateway looks at all of them for a selector."""


class PrefixHash(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Hashing with bounded loads over the first characters of a prompt."""

    mean_load_factor: int = 125
    """Percent of the mean load that no endpoint may exceed while another one can take the request."""
    prefix_char_length: int = 100
    """Characters of the prompt that are hashed."""


# Whoever may annotate a Service writes a route, and its texts reach paths of the API server and commands of HAProxy.
_DomainName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")]
_Version = Annotated[str, msgspec.Meta(pattern=r"\Av[0-9]{1,3}((alpha|beta)[0-9]{1,3})?\Z")]
_Plural = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9-]{0,62}\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A([A-Za-z0-9][A-Za-z0-9._-]{0,252})?\Z")]


class ScaleTarget(msgspec.Struct, frozen=True, rename="camel"):
    """The object in the Service's namespace whose scale subresource starts the model when a request waits for it."""

    group: _DomainName
    version: _Version
    plural: _Plural
    name: _DomainName


class Route(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the gateway needs to know of one Service beyond its endpoints.

    Unknown fields are ignored, so that an older gateway reads what a newer controller writes.
    """

    models: tuple[str, ...] = ()
    """Public model ids, the first one the primary. Empty: the Service's name."""
    port: str = ""
    """Name of the Service's port that speaks the OpenAI protocol. Empty: the first port."""
    created: int = 0
    """Unix seconds at which the model was declared, for its card. 0: the Service's creation."""
    owned_by: str = "slipway"
    """``owned_by`` of the model card."""
    source: str = ""
    """Where the weights come from, for people: ``hf:<repo>/<file>``. Shown in the model card when set."""
    name: _Name = ""
    """The model's name within its namespace, for the id ``namespace/name`` that always works. Empty: the Service's."""
    strategy: Literal["LeastLoad", "PrefixHash"] = "LeastLoad"
    """How an endpoint is chosen."""
    prefix_hash: PrefixHash = PrefixHash()
    """Read with the strategy PrefixHash only."""
    features: tuple[str, ...] = ()
    """What the model can do (``TextGeneration`` ...), for the filter of the model list. Empty: not told."""
    labels: Annotated[Mapping[str, str], msgspec.Meta(max_length=MOST_LABELS)] = {}
    """The model's labels, for requests that choose by ``X-Label-Selector``."""
    scale: ScaleTarget | None = None
    """Whom to scale from zero. None: requests wait for endpoints, but nobody is told."""
    drop_model_field: bool = False
    """Whether the engine must not see a form's field ``model``, as it would take it for the name of its own."""


class InvalidRoute(ValueError):
    """The annotation is not a route; the message says where it is wrong."""


class RoutedService(NamedTuple):
    """A Service that takes part in routing, with every default of its route filled in."""

    namespace: str
    name: str
    route: Route
    since: int
    """Unix seconds of the Service's creation, which only the API server can set: it decides name conflicts."""

    @property
    def key(self) -> str:
        """``namespace/name`` of the Service, the order in which equals are decided."""
        return f"{self.namespace}/{self.name}"

    @property
    def qualified(self) -> str:
        """The model id that always reaches this Service."""
        return f"{self.namespace}/{self.route.name}"


def routed_service(service: Object) -> RoutedService:
    """Reads the route of a labelled Service.

    Raises InvalidRoute where the annotation is not a route or names a port that the Service lacks.
    """
    metadata = service["metadata"]
    text = metadata.get("annotations", {}).get(ROUTE, "{}")
    try:
        route = msgspec.json.decode(text, type=Route)
    except msgspec.MsgspecError as error:
        raise InvalidRoute(f"annotation {ROUTE}: {error}") from error
    ports = [port.get("name", "") for port in service["spec"].get("ports", [])]
    if not ports or (route.port and route.port not in ports):
        raise InvalidRoute(f"annotation {ROUTE}: the Service has no port {route.port!r}")
    route = msgspec.structs.replace(
        route,
        models=route.models or (metadata["name"],),
        port=route.port or ports[0],
        created=route.created or created_unix(service),
        name=route.name or metadata["name"],
    )
    return RoutedService(metadata["namespace"], metadata["name"], route, created_unix(service))


def route_metadata(route: Route) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Labels and annotations that make a Service take part."""
    return {ROUTE: "true"}, {ROUTE: msgspec.json.encode(route, order="deterministic").decode()}


def by_age(services: Iterable[RoutedService]) -> list[RoutedService]:
    """In the order in which they get ids: the oldest first; of equals the first by ``namespace/name``."""
    return sorted(services, key=lambda service: (service.since, service.key))


def winners(services: Iterable[RoutedService]) -> dict[str, RoutedService]:
    """Decides which Service answers for each public model name.

    Controller and gateway both call this and ``owners``, so that the status of a model says what the gateway does.
    """
    decided: dict[str, RoutedService] = {}
    for service in by_age(services):
        for model in service.route.models:
            decided.setdefault(model, service)
    return decided


def owners(services: Iterable[RoutedService]) -> dict[str, RoutedService]:
    """Decides which Service answers for each qualified id; two may share one when they are of two APIs."""
    decided: dict[str, RoutedService] = {}
    for service in by_age(services):
        decided.setdefault(service.qualified, service)
    return decided
