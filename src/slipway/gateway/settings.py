"""The gateway's settings: a YAML file, which is read once at startup. A change of the file needs a new pod."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml

from slipway.decoding import describe_error
from slipway.gateway import memory
from slipway.serving.routing import claims

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
LEAST_CONNECTIONS = 100
AUDIO_BYTES = 27262976
"""Size of a form with the largest audio file that OpenAI accepts, 25 MB."""
REDUCED_BODY_BYTES = 16777216
"""Default of the largest body if the memory limit does not allow AUDIO_BYTES."""
LEAST_BODY_BYTES = 1024


_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:]{2,39}\])(?::[0-9]{1,5})?")


# These characters need no escaping in the quotes of haproxy.cfg. HAProxy compares them one by one.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,512}")
_CLAIM = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}")
_HTTPS = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&()*+,;=%\[\]-]{1,1024}")


class DeclaredKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of resource with which users declare models."""

    group: str
    version: str
    kind: str
    plural: str


class Jwt(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An issuer whose tokens are accepted."""

    issuer: str
    """Required value of ``iss``."""
    audience: str
    """Required value of ``aud``, or of one of its first entries."""
    jwks_url: str
    """Address of the issuer's public keys."""
    claim: str = "sub"
    """Claim that names the subject. ``object.field`` reads a field of an object."""
    algorithms: Annotated[tuple[Literal["RS256", "ES256"], ...], msgspec.Meta(min_length=1)] = ("RS256", "ES256")
    """Allowed signature algorithms."""
    ca: str = ""
    """CA certificates (PEM) for ``jwks_url``, instead of the system's."""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The user's settings. Times are in whole seconds, sizes in bytes."""

    max_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=268435456)] = AUDIO_BYTES
    """Largest request body. Larger ones get status 413. 0 in the file: the default, which depends on the memory."""
    hold_seconds: Natural = 30
    """How long a request waits for a model without a ready endpoint before it gets status 503."""
    hold_requests: Natural = 100
    """How many requests may wait for one model. Further ones get status 429."""
    wake_seconds: Natural = 600
    """How long a request waits for a model that is scaled from zero. It may need to load its weights first."""
    wake_requests: Natural = 1000
    """How many requests may wait for one model that is scaled from zero."""
    hold_bytes: Positive = 268435456
    """Total size of the bodies of all waiting requests. A request that exceeds it gets status 429."""
    api_keys_secret: str = ""
    """Name of a Secret in the gateway's namespace. Each of its values is a key. Empty: no key is required."""
    exchange_listen: str = ":8082"
    """Address at which other gateways request this gateway's use of the limits."""
    exchange_key_file: str = ""
    """File with the key by which gateways recognize each other. Empty: this gateway is the only one."""
    jwt: Jwt | None = None
    """Issuer of accepted tokens. Rights of their subjects are in the Secret of API keys."""
    connect_seconds: Positive = 2
    """Timeout of connections to engines."""
    stream_idle_seconds: Positive = 1800
    """How long an engine may send nothing, before its answer begins or within it."""
    drain_seconds: Positive = 600
    """How long requests may continue after the pod is stopped or a reload replaces the process."""
    threads: Positive = 2
    """HAProxy's threads."""
    max_connections: Annotated[int, msgspec.Meta(ge=LEAST_CONNECTIONS)] = 10000
    """Concurrent client connections. Each needs an open file on either side."""
    body_bytes: Positive = 134217728
    """Total announced size of all bodies that are being received. A request that exceeds it gets status 429."""
    max_connections_per_address: Natural = 8750
    """Concurrent connections and HTTP/2 requests of one source address (IPv6: of one /64). 0: no limit."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose headers ``X-Forwarded-*`` and ``Forwarded`` are trusted. They may hold any number of
    connections. In hops, the client addresses that they report are counted."""
    cors_origins: tuple[str, ...] = ()
    """Origins (``https://host``) whose pages may read answers in a browser."""
    memory_bytes: Natural = 0
    """HAProxy's memory limit (its option ``-m``); 0: unknown."""
    count_tokens: bool = False
    """Whether to count the tokens of answers, by model and key. Costs CPU time for each event of a stream."""
    run_directory: str = "/run/gateway"
    """Directory that both containers share: configuration, maps, sockets."""
    listen: str = ":8080"
    """Public address of HAProxy, ``[host]:port``. Without a host: every IPv4 address, and every IPv6 address if the
    kernel supports IPv6."""
    control_listen: str = ":8081"
    """Address of the control process: metrics and health."""
    routed_namespaces: str = ""
    """Label selector of the namespaces whose Services are served. Empty: all."""
    id_owners: dict[str, str] = {}
    """Model ID -> the only namespace whose Services may have it."""
    hub_organizations: tuple[str, ...] = ()
    """First parts of IDs that name an organization of a hub (``meta-llama``) instead of a namespace."""
    foreign_endpoints: bool = False
    """Whether to use endpoints that are not pods in their Service's namespace."""
    ui: bool = False
    """Whether to serve the web page below ``/ui/``."""
    ui_kinds: tuple[DeclaredKind, ...] = ()
    """Kinds of resources that the page shows."""

    @property
    def directory(self) -> Path:
        """Returns ``run_directory`` as a path."""
        return Path(self.run_directory)


class InvalidSettingsError(ValueError):
    """The settings file is not valid. The message names the field."""


def load_settings(path: Path) -> Settings:
    """Reads the settings file. Raises InvalidSettingsError."""
    try:
        settings = msgspec.convert({"maxBodyBytes": 0} | (yaml.safe_load(path.read_text()) or {}), Settings)
    except (yaml.YAMLError, TypeError, msgspec.ValidationError) as error:
        raise InvalidSettingsError(f"{path}: {error}") from error
    settings = msgspec.structs.replace(
        settings, max_body_bytes=settings.max_body_bytes or _default_body_limit(settings)
    )
    if not split_address(settings.listen)[0] and not has_ipv6():
        settings = msgspec.structs.replace(settings, listen=f"0.0.0.0{settings.listen}")  # noqa: S104
    for problem in claims.faults(settings.id_owners, settings.hub_organizations, settings.routed_namespaces):
        raise InvalidSettingsError(f"{path}: {problem}")
    problems = (_proxy_problems, _origin_problems, _size_problems, _jwt_problems)
    for problem in chain.from_iterable(check(settings) for check in problems):
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
            yield f"corsOrigins: {origin[:100]!r} is not an origin: write https://host or https://host:port"


def _jwt_problems(settings: Settings) -> Iterator[str]:
    jwt = settings.jwt
    if jwt is None:
        return
    if not settings.api_keys_secret:
        yield "jwt: the rights of subjects are missing. Set apiKeysSecret."
    for name, text in (("issuer", jwt.issuer), ("audience", jwt.audience)):
        if not _PLAIN.fullmatch(text):
            yield f"jwt.{name}: {text[:100]!r} is empty, too long or has characters that a URL cannot contain."
    if not _CLAIM.fullmatch(jwt.claim):
        yield f"jwt.claim: {jwt.claim[:100]!r} is not the name of a claim, such as sub or realm.user."
    if not _HTTPS.fullmatch(jwt.jwks_url):
        yield f"jwt.jwksUrl: {jwt.jwks_url[:100]!r} is not an address that begins with https://."
    elif "@" in jwt.jwks_url.split("/")[2]:
        yield "jwt.jwksUrl: it contains a user name or a password. Remove everything before the @."
    try:
        ssl.create_default_context(cadata=jwt.ca or None)
    except (ValueError, ssl.SSLError) as error:
        yield f"jwt.ca: not certificates in PEM: {describe_error(error)}"


def _default_body_limit(settings: Settings) -> int:
    """Returns the default of the largest body, in bytes."""
    limit = settings.memory_bytes
    fits = not limit or memory.minimum_limit(settings.threads, AUDIO_BYTES) <= limit
    return AUDIO_BYTES if fits else REDUCED_BODY_BYTES


def _size_problems(settings: Settings) -> Iterator[str]:
    if settings.max_body_bytes < LEAST_BODY_BYTES:
        limit = f"maxBodyBytes: {settings.max_body_bytes} is less than {LEAST_BODY_BYTES}"
        yield f"{limit}: raise it, or write 0 for the default"
    needed = memory.minimum_limit(settings.threads, settings.max_body_bytes)
    if settings.memory_bytes and settings.memory_bytes < needed:
        yield (
            f"memoryBytes: {settings.memory_bytes} is too little for maxBodyBytes {settings.max_body_bytes} with"
            f" {settings.threads} threads, which need {needed}: raise the memory limit of HAProxy's container"
            " (gateway_resources), or lower maxBodyBytes or threads"
        )


def split_address(listen: str) -> tuple[str, int]:
    """Splits ``[host]:port``. An empty host means all interfaces, of IPv4 and IPv6."""
    host, _unused, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Returns ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_ipv6() -> bool:
    """Whether a socket can listen on IPv6. Some kernels do not support it."""
    try:
        with socket.socket(socket.AF_INET6) as opened:
            opened.bind(("::", 0))
    except OSError:
        return False
    return True
