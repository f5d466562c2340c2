"""The gateway's settings: one YAML file, read once at start. A changed file means a new pod."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from slipway.gateway import memory
from slipway.serving import claims

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
LEAST_CONNECTIONS = 100
AUDIO_BYTES = 27262976
"""A form with the largest file that OpenAI takes of audio, which has 25 MB."""
LITTLE_BYTES = 16777216
"""Largest body by default where the memory limit does not bear more."""
LEAST_BODY = 1024


_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:]{2,39}\])(?::[0-9]{1,5})?")


class DeclaredKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of resource by which users declare models."""

    group: str
    version: str
    kind: str
    plural: str


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a user may choose. Times are whole seconds, sizes bytes."""

    max_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=268435456)] = AUDIO_BYTES
    """Largest request body; above it the answer is 413. 0 in the file: the default, or less with little memory."""
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
    """Connections and HTTP/2 requests of one source address (IPv6: of one /64) at once; 0: as many as there are."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose ``X-Forwarded-*`` and ``Forwarded`` are believed. They may hold any number of
    connections. In hops, the client addresses that they report are counted."""
    cors_origins: tuple[str, ...] = ()
    """Origins (``https://host``) whose pages may read answers in a browser."""
    memory_bytes: Natural = 0
    """HAProxy's memory limit (its option ``-m``); 0: unknown."""
    count_tokens: bool = False
    """Whether the tokens of answers are counted, by model and key. Costs CPU time for each event of a stream."""
    run_directory: str = "/run/gateway"
    """Directory that both containers share: configuration, maps, sockets."""
    listen: str = ":8080"
    """Public address of HAProxy, ``[host]:port``. Without a host: every address of IPv4, and of IPv6 if the kernel has
    it."""
    control_listen: str = ":8081"
    """Address of the control process: metrics and health."""
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
    def directory(self) -> Path:
        """The shared directory as a path."""
        return Path(self.run_directory)


class InvalidSettingsError(ValueError):
    """The settings file cannot be used; the message names the field."""


def load(path: Path) -> Settings:
    """Reads the settings file. Raises InvalidSettingsError."""
    try:
        settings = msgspec.convert({"maxBodyBytes": 0} | (yaml.safe_load(path.read_text()) or {}), Settings)
    except (yaml.YAMLError, TypeError, msgspec.ValidationError) as error:
        raise InvalidSettingsError(f"{path}: {error}") from error
    settings = msgspec.structs.replace(settings, max_body_bytes=settings.max_body_bytes or _most_bytes(settings))
    if not address(settings.listen)[0] and not has_ipv6():
        settings = msgspec.structs.replace(settings, listen=f"0.0.0.0{settings.listen}")  # noqa: S104
    for problem in claims.faults(settings.id_owners, settings.hub_organizations, settings.routed_namespaces):
        raise InvalidSettingsError(f"{path}: {problem}")
    for problem in (*_proxy_problems(settings), *_origin_problems(settings), *_size_problems(settings)):
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


def _most_bytes(settings: Settings) -> int:
    """The largest body, if the file does not name one."""
    limit = settings.memory_bytes
    fits = not limit or memory.least(settings.threads, AUDIO_BYTES) <= limit
    return AUDIO_BYTES if fits else LITTLE_BYTES


def _size_problems(settings: Settings) -> Iterator[str]:
    if settings.max_body_bytes < LEAST_BODY:
        yield f"maxBodyBytes: {settings.max_body_bytes} is less than {LEAST_BODY}: raise it, or write 0 for the default"
    needed = memory.least(settings.threads, settings.max_body_bytes)
    if settings.memory_bytes and settings.memory_bytes < needed:
        yield (
            f"memoryBytes: {settings.memory_bytes} is too little for maxBodyBytes {settings.max_body_bytes} with"
            f" {settings.threads} threads, which need {needed}: raise the memory limit of HAProxy's container"
            " (gateway_resources), or lower maxBodyBytes or threads"
        )


def address(listen: str) -> tuple[str, int]:
    """Host and port of ``[host]:port``; an empty host means all interfaces, of IPv4 and IPv6."""
    host, _unused, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def has_ipv6() -> bool:
    """Whether a socket can listen on IPv6, which a kernel may lack."""
    try:
        with socket.socket(socket.AF_INET6) as opened:
            opened.bind(("::", 0))
    except OSError:
        return False
    return True
