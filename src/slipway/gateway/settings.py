"""The gateway's settings: one YAML file, read once at start. A changed file means a new pod."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from slipway.decoding import said
from slipway.gateway import jwks, memory
from slipway.serving import claims

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
LEAST_CONNECTIONS = 100
"""Clients that a gateway has to be able to serve."""


_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:]{2,39}\])(?::[0-9]{1,5})?")


# Within the quotes of haproxy.cfg, and exactly as tokens have them.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,512}")
_CLAIM = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}")


class DeclaredKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of resource by which users declare models."""

    group: str
    version: str
    kind: str
    plural: str


class Jwt(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Tokens of an issuer (JWT) that are let in beside API keys."""

    issuer: str
    """What their ``iss`` has to be."""
    audience: str
    """What their ``aud`` has to be, or to have among its first few."""
    jwks_url: str = ""
    """Where the issuer's public keys are."""
    jwks: dict[str, Any] | None = None
    """The keys themselves, in place of their address."""
    owner_claim: str = "sub"
    """The claim that says whose token it is; of an object's field, ``object.field``."""
    allow_http: bool = False
    """Whether keys may come over plain HTTP, where whoever is on the way can put in his own."""
    authorities: str = ""
    """Certificates (PEM) that are trusted for that address in place of the usual ones."""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a user may choose. Times are whole seconds, sizes bytes."""

    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=268435456)] = 16777216
    """Largest request body; above it the answer is 413. Images come as base64, hence the generous default."""
    hold_seconds: Natural = 30
    """How long a request waits for a model without a ready endpoint before it gets a 503."""
    hold_requests: Natural = 100
    """How many requests may wait for one model; the next one gets a 429."""
    wake_seconds: Natural = 600
    """The same for a model that is scaled from zero: its weights may have to be loaded first."""
    wake_requests: Natural = 1000
    """How many requests may wait for one such model."""
    hold_bytes: Positive = 268435456
    """How large the bodies of all waiting requests may be together; a request beyond it gets a 429."""
    api_keys_secret: str = ""
    """Name of a Secret in the gateway's namespace: each value one key. Empty: no key is required."""
    jwt: Jwt | None = None
    """Tokens of an issuer that are let in. None: none."""
    service_account_audience: str = ""
    """Tokens of the cluster's service accounts are let in that are for this audience. Empty: none."""
    connect_seconds: Positive = 2
    """How long a connection to an engine may take."""
    stream_idle_seconds: Positive = 1800
    """How long an engine may be silent, before its answer begins or within it."""
    drain_seconds: Positive = 600
    """How long running requests may continue after the pod is stopped, or a reload replaces the process."""
    threads: Positive = 2
    """HAProxy's threads."""
    max_connections: Annotated[int, msgspec.Meta(ge=LEAST_CONNECTIONS)] = 10000
    """Clients connected at once; an open file is needed on either side of each."""
    body_bytes: Positive = 134217728
    """How large all bodies that are being read may be together, by announced size; a request beyond it gets a 429."""
    max_connections_per_address: Natural = 8750
    """Connections of one source address (IPv6: of one /64) at once; 0: as many as there are."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose ``X-Forwarded-*`` and ``Forwarded`` are believed. Their connections count as clients,
    but not as those of one address; in hops the addresses count that they name."""
    cors_origins: tuple[str, ...] = ()
    """Origins (``https://host``) whose pages may read answers in a browser."""
    memory_bytes: Natural = 0
    """HAProxy's memory limit (its option ``-m``); 0: unknown."""
    count_tokens: bool = False
    """Whether the tokens of answers are counted, by model and key. Costs CPU time for each event of a stream."""
    active_requests_metric: Annotated[str, msgspec.Meta(pattern=r"\A([a-zA-Z_][a-zA-Z0-9_]*)?\Z", max_length=100)] = ""
    """Name of a further gauge: requests under way and waiting by the model's id, as dashboards of another system expect
    it. Empty: there is none."""
    strategy: Literal["LeastLoad", "Affinity"] = "LeastLoad"
    """How the endpoints of models are chosen whose routes do not ask for another strategy than LeastLoad."""
    run_directory: str = "/run/gateway"
    """Directory that both containers share: configuration, maps, sockets."""
    listen: str = ":8080"
    """Public address of HAProxy, ``[host]:port``."""
    control_listen: str = ":8081"
    """Address of the control process: metrics and health."""
    share_listen: str = ":8082"
    """Address at which other gateways are told their shares of the limits of keys."""
    share_key_file: str = ""
    """File with the key by which gateways know each other. Empty: each of them has an equal share."""
    routed_namespaces: str = ""
    """Label selector of the namespaces whose Services are served. Empty: all."""
    id_owners: dict[str, str] = {}
    """Model id -> the one namespace whose Services may have it."""
    hub_organizations: tuple[str, ...] = ()
    """First parts of ids that name an organization of a hub (``meta-llama``), and no namespace."""
    foreign_endpoints: bool = False
    """Whether endpoints are used that are no pods of their Service's namespace."""
    ui: bool = False
    """Whether there is a page below ``/ui/``."""
    ui_kinds: tuple[DeclaredKind, ...] = ()
    """Kinds whose resources the page shows."""

    @property
    def tokens(self) -> bool:
        """Whether tokens are let in beside API keys."""
        return self.jwt is not None or bool(self.service_account_audience)

    @property
    def directory(self) -> Path:
        """The shared directory as a path."""
        return Path(self.run_directory)


class InvalidSettingsError(ValueError):
    """The settings file cannot be used; the message names the field."""


def load(path: Path) -> Settings:
    """Reads the settings file. Raises InvalidSettingsError."""
    try:
        settings = msgspec.convert(yaml.safe_load(path.read_text()) or {}, Settings)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidSettingsError(f"{path}: {error}") from error
    for problem in claims.faults(settings.id_owners, settings.hub_organizations, settings.routed_namespaces):
        raise InvalidSettingsError(f"{path}: {problem}")
    for problem in (
        *_proxy_problems(settings),
        *_origin_problems(settings),
        *_size_problems(settings),
        *_jwt_problems(settings),
        *_account_problems(settings),
    ):
        raise InvalidSettingsError(f"{path}: {problem}")
    return settings


def _proxy_problems(settings: Settings) -> Iterator[str]:
    for network in settings.trusted_proxies:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            yield f"trustedProxies: {error}"


def _origin_problems(settings: Settings) -> Iterator[str]:
    for origin in settings.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            yield f"corsOrigins: {origin[:100]!r} is no origin: write https://host or https://host:port"


def _size_problems(settings: Settings) -> Iterator[str]:
    needed = memory.least(settings.threads, settings.max_body_bytes)
    if settings.memory_bytes and settings.memory_bytes < needed:
        yield (
            f"memoryBytes: {settings.memory_bytes} is too little for maxBodyBytes {settings.max_body_bytes} with"
            f" {settings.threads} threads, which need {needed}: raise the memory limit of HAProxy's container"
            " (gateway_resources), or lower maxBodyBytes or threads"
        )


def _jwt_problems(settings: Settings) -> Iterator[str]:
    jwt = settings.jwt
    if jwt is None:
        return
    if not settings.api_keys_secret:
        yield "jwt: name the Secret with the owners' rights in apiKeysSecret"
    for name, text in (("issuer", jwt.issuer), ("audience", jwt.audience)):
        if not _PLAIN.fullmatch(text):
            yield f"jwt.{name}: {text[:100]!r} is empty, too long, or has characters that are not of URLs"
    if not _CLAIM.fullmatch(jwt.owner_claim):
        yield f"jwt.ownerClaim: {jwt.owner_claim[:100]!r} is no name of a claim"
    if bool(jwt.jwks_url) == (jwt.jwks is not None):
        yield "jwt: give either jwksUrl or jwks"
    schemes = ("https://", "http://") if jwt.allow_http else ("https://",)
    if jwt.jwks_url and not jwt.jwks_url.startswith(schemes):
        yield "jwt.jwksUrl: the address has to begin with https://, or with http:// where allowHttp is true"
    try:
        if jwt.jwks is not None:
            jwks.read(msgspec.json.encode(jwt.jwks))
        if jwt.authorities:
            ssl.create_default_context(cadata=jwt.authorities)
    except (ValueError, ssl.SSLError) as error:
        yield f"jwt: {said(error)}"


def _account_problems(settings: Settings) -> Iterator[str]:
    audience = settings.service_account_audience
    if audience and not settings.api_keys_secret:
        yield "serviceAccountAudience: name the Secret with the rights of service accounts in apiKeysSecret"
    if audience and not _PLAIN.fullmatch(audience):
        yield f"serviceAccountAudience: {audience[:100]!r} is too long, or has characters that are not of URLs"


def address(listen: str) -> tuple[str, int]:
    """Host and port of ``[host]:port``; without a host all interfaces are meant."""
    host, _unused, port = listen.rpartition(":")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104


def endpoint(host: str, port: int) -> str:
    """``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
