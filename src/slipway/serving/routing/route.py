"""Routes: the model IDs that the gateway serves with a Service.

The controller writes routes, users may write them by hand, and the gateway reads them. A Service has a route if it has
the label ``slipway.inference/route: "true"``. Its annotation with the same name contains a :class:`Route` as JSON.
Every field has a default, so an engine that is deployed by hand needs only the label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Annotated, Literal, NamedTuple

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import Object, created_unix, resource_version

ROUTE = "slipway.inference/route"
"""Key of both the label (with the value ``"true"``) and the annotation (with the route as JSON)."""
MOST_BYTES = 16384
"""Maximum size of the annotation in bytes. A longer annotation is an error."""
OVERSIZED = " " * (MOST_BYTES + 1)
"""Value that replaces an annotation of more than ``MOST_BYTES`` characters in the cache. It causes the same error, and
all Services share one string."""
MOST_LABELS = 100
"""Maximum number of labels in a route. The limit exists because the gateway compares all labels with a selector."""
MOST_LABEL_CHARACTERS = 8192
"""Maximum total length, in characters, of the labels that the controller writes into a route. It keeps the annotation
below ``MOST_BYTES``."""
MOST_IDS = 64
MOST_ALIAS_CHARACTERS = 4096
"""Maximum total length, in characters, of the aliases that the controller writes into a route. It keeps the annotation
below ``MOST_BYTES``."""
MOST_FEATURES = 64
MOST_PATHS = 64
MOST_TARGETS = 16
MOST_TARGET_CHARACTERS = 16384
"""Maximum total length, in characters, of the IDs and conditions of all targets of a route, as the gateway stores
them."""
MOST_PORTS = 100
"""Maximum number of ports of a Service with a route."""
_ID = r"[A-Za-z0-9][A-Za-z0-9._:/@+~=,-]{0,252}"
MODEL_ID = re.compile(_ID)
"""Pattern of model IDs that need no quoting in HAProxy's maps and commands. It matches the IDs of every public hub."""
NOT_HELD = "\0"
"""Value that replaces an annotation that is not cached because the namespace has exhausted its budget."""
_MOST_SOURCE, _MOST_OWNER = 512, 253
_MAX_LISTED_IDS, _MAX_ID_CHARACTERS = 3, 64
"""Number of refused IDs that a message lists, and the maximum length of each."""


class PrefixHash(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Consistent hashing with bounded loads over the beginning of a prompt."""

    mean_load_factor: int = 125
    """Percentage of the mean load that an endpoint may not exceed while another endpoint can take the request."""
    prefix_char_length: int = 100
    """Number of characters of the prompt that are hashed."""


# Anyone who may annotate a Service can write a route, and its texts reach paths of the API server and HAProxy commands.
_DomainName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")]
_ServiceName = Annotated[str, msgspec.Meta(pattern=r"\A([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?\Z")]
_Version = Annotated[str, msgspec.Meta(pattern=r"\Av[0-9]{1,3}((alpha|beta)[0-9]{1,3})?\Z")]
_Plural = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9-]{0,62}\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A([A-Za-z0-9][A-Za-z0-9._-]{0,252})?\Z")]
_PortName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9-]{0,63}\Z")]
_Feature = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")]
_PLAIN = r"\A[^\x00-\x1f\x7f]*\Z"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_Path = Annotated[str, msgspec.Meta(pattern=r"\A/[a-z0-9/_.{}-]{0,99}\Z")]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_Wait = Annotated[int, msgspec.Meta(ge=0, le=86400)]
_HeaderName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
_HeaderValues = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=256, pattern=_PLAIN)], ...], msgspec.Meta(min_length=1, max_length=16)
]
_LabelKey = Annotated[str, msgspec.Meta(max_length=317)]
_LabelValue = Annotated[str, msgspec.Meta(max_length=63)]


TEXT_GENERATION = "TextGeneration"
"""Feature of models that generate text. By default, the model list contains these models and those without any
features."""


class ScaleTarget(msgspec.Struct, frozen=True, rename="camel"):
    """The object, in the Service's namespace, whose scale subresource the gateway updates to start the model when a
    request waits."""

    group: _DomainName
    version: _Version
    plural: _Plural
    name: _DomainName


class TargetConditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Conditions for the requests that a target accepts. All conditions must hold."""

    headers: Annotated[Mapping[_HeaderName, _HeaderValues], msgspec.Meta(max_length=8)] = {}
    """Map of a header name to accepted values. The request must have the header with one of them."""
    models: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=rf"\A{_ID}\Z")], ...], msgspec.Meta(max_length=MOST_IDS)
    ] = ()
    """Accepted model IDs, one of which the request must name. Empty means any ID of the route."""


class Target(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Service that serves requests for the IDs of a route. It is in the namespace of the Service that has the route,
    and may be that Service itself.

    For each order, the gateway chooses one of the targets that have an endpoint, by weight. If the chosen target fails
    before its response begins, the gateway continues with the next order. Targets of a target are ignored.
    """

    service: _ServiceName = ""
    """Name of the target's Service. Empty means the Service that has the route."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    """Weight of the target among the targets of the same order. With 0, the target is used only if no other target of
    this order has an endpoint."""
    order: Annotated[int, msgspec.Meta(ge=0, le=99)] = 0
    """Position of the target in the sequence. The gateway uses targets with a smaller order first."""
    when: TargetConditions = TargetConditions()
    only: bool = False
    """Whether requests that this target accepts never go to a target of a later order."""
    wait_seconds: _Wait = 0
    """Seconds that a request waits for endpoints of the target before the gateway uses the next order."""
    answer_seconds: _Wait = 0
    """Seconds that the target may take to begin its response. 0 means the limit of all models."""


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """A reason that clients get instead of a response if they request an ID in ``models`` that no Service has."""

    reason: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z][A-Za-z0-9_]{0,99}\Z")]
    models: Annotated[tuple[str, ...], msgspec.Meta(max_length=2)]


class Route(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The gateway's configuration of a Service, in addition to the Service's endpoints.

    Unknown fields are ignored, so an older gateway can read a route that a newer controller wrote.
    """

    models: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_IDS)] = ()
    """Public model IDs, the primary one first. Empty means the Service's name."""
    port: _PortName = ""
    """Name of the Service port that speaks the OpenAI protocol. Empty means the first port."""
    created: _Seconds = 0
    """Unix time at which the model was declared, for its model card. 0 means the Service's creation."""
    owned_by: Annotated[str, msgspec.Meta(max_length=_MOST_OWNER, pattern=_PLAIN)] = "slipway"
    """Value of ``owned_by`` in the model card."""
    source: Annotated[str, msgspec.Meta(max_length=_MOST_SOURCE, pattern=_PLAIN)] = ""
    """Origin of the weights for people, such as ``hf:<repo>/<file>``. The model card shows it unless it is empty."""
    name: _Name = ""
    """The model's name within its namespace, for the ID ``namespace/name``. Empty means the Service's name."""
    strategy: Literal["LeastLoad", "PrefixHash"] = "LeastLoad"
    """How the gateway chooses an endpoint."""
    prefix_hash: PrefixHash = PrefixHash()
    """Parameters of the strategy PrefixHash. Other strategies ignore them."""
    features: Annotated[tuple[_Feature, ...], msgspec.Meta(max_length=MOST_FEATURES)] = ()
    """Capabilities of the model, such as ``TextGeneration``, for the filter of the model list. Empty means unknown."""
    labels: Annotated[Mapping[_LabelKey, _LabelValue], msgspec.Meta(max_length=MOST_LABELS)] = {}
    """The model's labels, for requests that select models with ``X-Label-Selector``."""
    scale: ScaleTarget | None = None
    """The object that the gateway scales from zero. With None, requests wait for endpoints, and the gateway scales
    nothing."""
    wake_seconds: _Wait = 0
    """Seconds that requests wait for endpoints if the controller starts the model on demand. The gateway's own limit
    for starts from zero still applies. 0 means the limit for ``scale``."""
    drop_model_field: bool = False
    """Whether the gateway removes a form's field ``model`` from the request. Some engines would misinterpret it as the
    name of one of their own models."""
    aliases: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_IDS)] = ()
    """Additional IDs of the Service, which it gets unless they are the name of any Service or an alias of an older one.
    Forbidden and invalid aliases are silently ignored."""
    internal: bool = False
    """Whether the Service has no IDs and only serves as another Service's target. ``models`` and ``aliases`` are then
    ignored."""
    targets: Annotated[tuple[Target, ...], msgspec.Meta(max_length=MOST_TARGETS)] = ()
    """Services that serve requests for the Service's IDs. Empty means the Service itself."""
    paths: Annotated[tuple[_Path, ...], msgspec.Meta(max_length=MOST_PATHS)] = ()
    """Paths that the engine serves. The gateway rejects requests for other model paths. Empty means unknown, and the
    gateway rejects none."""
    refusal: Refusal | None = None
    """The reason for clients if the Service, which is internal, represents a model that cannot be served. The value is
    None otherwise."""


class InvalidRouteError(ValueError):
    """The annotation is not a valid route. The message names the invalid field."""


class Refused(NamedTuple):
    """An ID that a Service requests but may not have."""

    model: str
    why: str
    """The reason, as the end of a sentence that begins with the ID."""


class RoutedService(NamedTuple):
    """A Service with a route, in which all defaults are filled in."""

    namespace: str
    name: str
    route: Route
    since: int
    """Unix time of the Service's creation, which only the API server can set. It decides which of several Services gets
    an ID."""
    refused: tuple[Refused, ...] = ()
    """Refused public IDs, and the qualified ID if it is refused. Invalid IDs are no longer in the route's models."""
    denied: tuple[Refused, ...] = ()
    """Refused aliases, which are no longer in the route. They are not an error, but explain why the gateway rejects
    requests for them."""

    @property
    def key(self) -> str:
        """The Service as ``namespace/name``, which breaks ties between Services of the same age."""
        return f"{self.namespace}/{self.name}"

    @property
    def qualified(self) -> str:
        """The model ID ``namespace/name`` of this Service. The value is empty if the Service is internal."""
        return "" if self.route.internal else f"{self.namespace}/{self.route.name}"

    @property
    def ids(self) -> tuple[str, ...]:
        """The public model IDs that the Service requests and may have."""
        if not self.refused:
            return self.route.models
        refused = {model for model, _unused in self.refused}
        return tuple(model for model in self.route.models if model not in refused)

    @property
    def complaint(self) -> str:
        """The refused IDs with reasons, as text for a message. The first few are listed and the others counted. The
        value is empty if there are none."""
        complaints = [f"model id {_short(model)} {why}" for model, why in self.refused[:_MAX_LISTED_IDS]]
        rest = len(self.refused) - len(complaints)
        return "; ".join([*complaints, *([f"and {rest} more IDs cannot be served"] if rest else [])])

    def why_not(self, model: str) -> str:
        """Return why the Service may not have a public or qualified ID, or an empty string if it may or does not
        request the ID. Aliases are not considered."""
        if not self.refused:
            return ""
        return next((why for refused, why in self.refused if refused == model), "")


def routed_service(service: Object) -> RoutedService:
    """Return a Service's route with all defaults. Invalid IDs are refused without affecting the others.

    A Service without the annotation has a route with only defaults. Raise InvalidRouteError if the annotation is not a
    route, or names a port that the Service lacks, or if the Service has no ports or too many.
    """
    metadata = service["metadata"]
    route = _parse_route((metadata.get("annotations") or {}).get(ROUTE, "{}"))
    ports = [port.get("name", "") for port in service["spec"].get("ports") or []]
    if len(ports) > MOST_PORTS:
        raise InvalidRouteError(f"the Service has more than {MOST_PORTS} ports")
    if not ports or (route.port and route.port not in ports):
        raise InvalidRouteError(f"annotation {ROUTE}: the Service has no port {route.port!r}")
    ids = () if route.internal else tuple(dict.fromkeys(route.models or (metadata["name"],)))
    route = msgspec.structs.replace(
        route,
        models=tuple(model for model in ids if MODEL_ID.fullmatch(model)),
        aliases=() if route.internal else _aliases(route.aliases, ids),
        port=route.port or ports[0],
        created=route.created or created_unix(service),
        name=route.name or metadata["name"],
    )
    wrong = "is not valid: use at most 253 letters, digits and ._:/@+~=,-, starting with a letter or digit"
    refused = tuple(Refused(model, wrong) for model in ids if not MODEL_ID.fullmatch(model))
    return RoutedService(metadata["namespace"], metadata["name"], route, created_unix(service), refused)


def _parse_route(text: str) -> Route:
    """Parse the annotation with a Service's route. The annotation is untrusted: raise InvalidRouteError for any
    problem."""
    if text == NOT_HELD:
        raise InvalidRouteError(
            f"the annotations {ROUTE} of this namespace's Services are too large in total: remove some"
        )
    try:
        route = decode_json(text, Route, most=MOST_BYTES)
    except DecodingError as error:
        raise InvalidRouteError(f"annotation {ROUTE}: {error}") from error
    if _target_characters(route) > MOST_TARGET_CHARACTERS:
        raise InvalidRouteError(f"annotation {ROUTE}: the IDs and conditions of its targets are too long in total")
    return route


def _target_characters(route: Route) -> int:
    """Return the maximum total length, in characters, of the IDs and conditions of all targets as the gateway stores
    them. Each target with its own Service may repeat all IDs of the route."""
    ids = sum(map(len, (*route.models, *route.aliases)))
    values = (
        3 * len(value.encode())
        for target in route.targets
        for value in chain(target.when.models, *target.when.headers.values())
    )
    return sum(ids for target in route.targets if target.service) + sum(values)


def _aliases(aliases: Iterable[str], models: Sequence[str]) -> tuple[str, ...]:
    """Return each valid alias once, except the Service's own model IDs."""
    return tuple(model for model in dict.fromkeys(aliases) if model not in models and MODEL_ID.fullmatch(model))


def _short(text: str) -> str:
    """Quote untrusted text for a message, cut to ``_MAX_ID_CHARACTERS`` and without terminal control characters."""
    return ascii(text if len(text) <= _MAX_ID_CHARACTERS else f"{text[:_MAX_ID_CHARACTERS]}...")


class Routes:
    """A cache of routes that parses each version of a Service once."""

    def __init__(self, finish: Callable[[RoutedService], RoutedService] = lambda service: service) -> None:
        """Create an empty cache. ``finish`` is applied to each parsed Service and may depend only on the Service."""
        self._finish = finish
        self._parsed: dict[str, tuple[str, RoutedService | InvalidRouteError]] = {}

    def read(self, service: Object) -> RoutedService:
        """Return the Service with its route, as :func:`routed_service` and then ``finish`` return it. Raise
        InvalidRouteError if the Service cannot be read for any reason."""
        ident, version = service["metadata"].get("uid", ""), resource_version(service)
        before, outcome = self._parsed.get(ident, ("", None))
        if outcome is None or before != version:
            outcome = self._attempt(service)
            if ident and version:
                self._parsed[ident] = version, outcome
        if isinstance(outcome, InvalidRouteError):
            raise outcome
        return outcome

    def _attempt(self, service: Object) -> RoutedService | InvalidRouteError:
        try:
            return self._finish(routed_service(service))
        except InvalidRouteError as error:
            return InvalidRouteError(str(error))  # without the traceback, which would keep the Service in memory
        except Exception as error:  # noqa: BLE001 - one Service must not affect others
            return InvalidRouteError(f"it cannot be read ({type(error).__name__})")

    def forget_others(self, services: Iterable[Object]) -> None:
        """Forget Services that are not in ``services`` if the cache contains more Services than that."""
        uids = {service["metadata"].get("uid", "") for service in services}
        if len(self._parsed) > len(uids):
            self._parsed = {ident: cached for ident, cached in self._parsed.items() if ident in uids}

    def forget(self, service: Object) -> None:
        """Forget a deleted Service."""
        self._parsed.pop(service["metadata"].get("uid", ""), None)


def bounded(annotation: str) -> str:
    """Return the annotation for the cache: unchanged, or ``OVERSIZED`` if it is too long."""
    return annotation if len(annotation) <= MOST_BYTES else OVERSIZED


def route_metadata(route: Route) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the labels and annotations of a Service with this route.

    Texts for people may be longer in a spec than a route allows, so they are cut. Only as many aliases as a route may
    have are kept.
    """
    route_text = msgspec.structs.replace(
        route,
        source=_cut(route.source, _MOST_SOURCE),
        owned_by=_cut(route.owned_by, _MOST_OWNER),
        aliases=_first(_aliases(route.aliases, route.models)),
    )
    return {ROUTE: "true"}, {ROUTE: msgspec.json.encode(route_text, order="deterministic").decode()}


def _cut(text: str, most: int) -> str:
    """Remove control characters, and cut the text to ``most`` characters."""
    plain = _CONTROL.sub("", text)
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."


def _first(aliases: Sequence[str]) -> tuple[str, ...]:
    """Return as many of the first aliases as a route may have."""
    characters = accumulate(map(len, aliases))
    return tuple(alias for alias, upto in zip(aliases, characters, strict=True) if upto <= MOST_ALIAS_CHARACTERS)[
        :MOST_IDS
    ]
