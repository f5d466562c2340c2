"""The gateway's settings: a YAML file, which is read once at startup. A change of the file takes effect in a new
pod."""

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
"""Size in bytes of a form with the largest audio file that OpenAI accepts, which has 25 MB."""
REDUCED_BODY_BYTES = 16777216
"""Default of the maximum body size in bytes if the memory limit does not allow ``AUDIO_BYTES``."""
LEAST_BODY_BYTES = 1024


_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:]{2,39}\])(?::[0-9]{1,5})?")


# These characters need no escaping in the quotes of haproxy.cfg. HAProxy compares them one by one.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,512}")
_CLAIM = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}")
_HTTPS = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&()*+,;=%\[\]-]{1,1024}")


class DeclaredKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Kubernetes kind with which users declare models."""

    group: str
    version: str
    kind: str
    plural: str


class Jwt(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The settings for the issuer whose JSON Web Tokens the gateway accepts."""

    issuer: str
    """Required value of the claim ``iss``."""
    audience: str
    """Required value of the claim ``aud``, or of one of its first entries."""
    jwks_url: str
    """URL of the issuer's public keys."""
    claim: str = "sub"
    """Claim with the name of the subject. ``object.field`` reads a field of an object."""
    algorithms: Annotated[tuple[Literal["RS256", "ES256"], ...], msgspec.Meta(min_length=1)] = ("RS256", "ES256")
    """Allowed signature algorithms."""
    ca: str = ""
    """CA certificates (PEM) for ``jwks_url``. Empty for the system's certificates."""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The user's settings. Times are in whole seconds, sizes in bytes."""

    max_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=268435456)] = AUDIO_BYTES
    """Maximum size of a request body. Larger requests get status 413. In the file, 0 or no value selects the default,
    which depends on the memory limit."""
    hold_seconds: Natural = 30
    """Seconds for which a request waits for a model that has no ready endpoint and is not scaled from zero. The request
    then gets status 503."""
    hold_requests: Natural = 100
    """Maximum number of requests that wait for one model that is not scaled from zero. If one more arrives, it or a
    waiting request of a client with more waiting requests gets status 429."""
    wake_seconds: Natural = 600
    """Seconds for which a request waits for a model that is scaled from zero, unless the model's route sets a shorter
    time. The model may have to load its weights."""
    wake_requests: Natural = 1000
    """Maximum number of requests that wait for one model that is scaled from zero. Further requests are handled as for
    ``hold_requests``."""
    hold_bytes: Positive = 268435456
    """Maximum total size of the bodies of all waiting requests. If a request would exceed it, the request or a waiting
    request of a client with more waiting bytes gets status 429."""
    api_keys_secret: str = ""
    """Name of a Secret in the gateway's namespace, in which each value is an API key. Empty if no key is required."""
    exchange_listen: str = ":8082"
    """Address at which other gateways request this gateway's use of the limits."""
    exchange_key_file: str = ""
    """File with the key that gateways use to authenticate each other. Empty if there is only one gateway."""
    jwt: Jwt | None = None
    """Issuer of accepted tokens; None to accept no tokens. The Secret with the API keys has the rights of the
    subjects."""
    connect_seconds: Positive = 2
    """Timeout for connecting to an engine."""
    stream_idle_seconds: Positive = 1800
    """Seconds for which an engine may send nothing, before or during its answer. The same timeout applies to
    clients."""
    drain_seconds: Positive = 600
    """Seconds for which requests may continue after the pod is stopped or a reload replaces the process."""
    threads: Positive = 2
    """Number of HAProxy's threads."""
    max_connections: Annotated[int, msgspec.Meta(ge=LEAST_CONNECTIONS)] = 10000
    """Maximum number of concurrent client connections. Each needs one open file for the client and one for the engine.
    HAProxy accepts fewer connections if its memory limit requires it."""
    body_bytes: Positive = 134217728
    """Maximum total size of all large bodies that are being received, as announced, but at least ``max_body_bytes``. A
    request that would exceed it waits a few seconds, and then gets status 429."""
    max_connections_per_address: Natural = 8750
    """Maximum number of concurrent connections and HTTP/2 requests of one source address, or one IPv6 /64. The gateway
    allows at most seven eighths of all connections, even if this number is higher. 0 for no limit."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose headers ``X-Forwarded-*``, ``X-Real-IP`` and ``Forwarded`` are trusted. The proxies may
    open any number of connections. In hops, the gateway counts requests by the client addresses that the proxies
    report."""
    cors_origins: tuple[str, ...] = ()
    """Origins, such as ``https://host``, whose web pages may read answers and open WebSockets in a browser."""
    memory_bytes: Natural = 0
    """HAProxy's memory limit, which its option ``-m`` sets; 0 if it is unknown."""
    count_tokens: bool = False
    """Whether to count the tokens of answers, by model and key. Counting costs CPU time for each event of a stream."""
    run_directory: str = "/run/gateway"
    """Directory that both containers share, with the configuration, maps and sockets."""
    listen: str = ":8080"
    """Public address of HAProxy, ``[host]:port``. Without a host, HAProxy listens on every IPv4 address, and on every
    IPv6 address if the kernel supports IPv6."""
    control_listen: str = ":8081"
    """Address at which the control process serves metrics, health and numbers of requests, ``[host]:port``."""
    routed_namespaces: str = ""
    """Label selector of the namespaces whose Services are served. Empty for all namespaces."""
    id_owners: dict[str, str] = {}
    """Model ID -> the only namespace whose Services may use the ID."""
    hub_organizations: tuple[str, ...] = ()
    """First parts of model IDs that name an organization of a hub, such as ``meta-llama``, instead of a namespace."""
    foreign_endpoints: bool = False
    """Whether to use endpoints that are not pods in the namespace of their Service."""
    ui: bool = False
    """Whether to serve the web page below ``/ui/``."""
    ui_kinds: tuple[DeclaredKind, ...] = ()
    """Kinds of resources that the web page shows."""

    @property
    def directory(self) -> Path:
        """``run_directory`` as a path."""
        return Path(self.run_directory)


class InvalidSettingsError(ValueError):
    """The settings file is not valid. The message names the field."""


def load_settings(path: Path) -> Settings:
    """Read the settings file. Raise InvalidSettingsError if it is invalid, and OSError if it cannot be read.

    A missing maximum body size gets its default. If ``listen`` has no host and the kernel does not support IPv6, it
    becomes an IPv4 address.
    """
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
    """Return the default of the maximum body size in bytes, which depends on the memory limit."""
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
    """Split ``[host]:port`` into host, without brackets, and port. An empty host means all addresses, of IPv4 and IPv6.
    Raise ValueError if the port is not a number."""
    host, _unused, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_ipv6() -> bool:
    """Whether the kernel supports sockets that listen on IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as opened:
            opened.bind(("::", 0))
    except OSError:
        return False
    return True
