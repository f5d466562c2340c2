"""The depot's settings, read at startup from one YAML file. The depot does not notice changes of the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from slipway.artifacts.locations import address_policy
from slipway.decoding import DecodingError, decode_yaml
from slipway.kube.objects import Kind
from slipway.kube.values.quantity import amount

SETTINGS_BYTES = 1 << 20
MIB = 1 << 20

Positive = Annotated[int, msgspec.Meta(ge=1)]
Listen = Annotated[str, msgspec.Meta(pattern=r"\A(\S*):\d{1,5}\Z")]
_HOST_PORT = r"[A-Za-z0-9][-A-Za-z0-9.]*(:\d{1,5})?"
HostPort = Annotated[str, msgspec.Meta(pattern=rf"\A{_HOST_PORT}\Z")]
Namespace = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")]
Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][-A-Za-z0-9.]{0,252}\Z")]


class ModelKind(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The API group, version, kind and plural of a resource."""

    group: Word
    version: Word
    kind: Word
    plural: Word


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The operator's settings. Times are whole seconds."""

    namespace: Namespace
    """The depot's own namespace, in which cluster-scoped models are published."""
    registry: HostPort
    """``host`` or ``host:port`` of the registry, which uses TLS unless ``registry_plain`` is set."""
    model: ModelKind
    """Kind of namespaced models."""
    cluster_model: ModelKind
    """Kind of cluster-scoped models."""
    listen: Listen = ":8443"
    """Address for clients, with TLS."""
    operations_listen: Listen = ":8081"
    """Address for health checks and metrics."""
    keys: str = "/etc/slipway-depot"
    """Directory with ``tls.crt``, ``tls.key``, ``token.key``, ``hmac`` and ``ca.crt``."""
    registry_ca: str = ""
    """File with the CA certificate of the registry; empty: ``ca.crt`` in the key directory."""
    registry_plain: bool = False
    """Whether the registry uses HTTP without TLS, for tests on a single machine."""
    issuer: Word = "slipway-depot"
    """Issuer of registry tokens. Also the audience of the service account tokens that the depot exchanges for registry
    tokens."""
    service: Word = "slipway-registry"
    """Audience of registry tokens, which is the registry's ``service``."""
    token_seconds: Annotated[int, msgspec.Meta(ge=60, le=3600)] = 300
    """Lifetime of a registry token in seconds."""
    capacity_limit: str = ""
    """Maximum total size of all artifacts and uploads, such as ``500Gi``; empty: unlimited."""
    namespace_share: Annotated[int, msgspec.Meta(ge=1, le=100)] = 90
    """Percentage of ``capacity_limit`` that the models of one namespace can use."""
    copies: Annotated[int, msgspec.Meta(ge=1, le=2)] = 1
    """Number of times that the registry stores the files of each artifact: 2 if artifacts are also published as
    images."""
    upload_limit: Annotated[str, msgspec.Meta(min_length=1)] = "2Ti"
    """Maximum size of an upload, such as ``2Ti``."""
    uploads_at_once: Positive = 8
    """Maximum number of concurrent uploads per replica."""
    requests_at_once: Positive = 128
    """Maximum number of concurrent requests per replica, including uploads."""
    connections: Annotated[int, msgspec.Meta(ge=16)] = 256
    """Maximum number of client connections per replica."""
    idle_seconds: Positive = 60
    """Maximum seconds that an upload may be silent."""
    registry_seconds: Positive = 3600
    """Maximum seconds that an upload waits for a registry that is unavailable, or read-only during garbage
    collection."""
    collector: Word = "slipway-registry-collection"
    """Name of the CronJob in the depot's namespace that frees the registry's storage, and of its service account. The
    CronJob need not exist."""
    catalog: Literal["", "public"] = ""
    """``public`` to let holders of a credential list and pull cluster-scoped models; empty: no catalog."""
    catalog_keys: str = "/etc/slipway-depot-catalog"
    """Directory with a file for each catalog credential. The name of the file is the credential's name, and the content
    is the token."""
    catalog_registry: Annotated[str, msgspec.Meta(pattern=rf"\A({_HOST_PORT})?\Z")] = ""
    """``host`` or ``host:port`` by which other clusters reach the registry; empty: ``registry``."""
    catalog_source: ModelKind | None = None
    """Kind of the resources that describe catalogs of other clusters; None: models cannot be imported."""
    blocked_networks: tuple[str, ...] = ()
    """Networks that the depot never contacts when it requests a grant, in addition to those of ``policy`` in
    ``slipway.weights.sources.catalogs``."""

    @property
    def models(self) -> Kind:
        """Kind of namespaced models."""
        return _kind(self.model, namespaced=True)

    @property
    def cluster_models(self) -> Kind:
        """Kind of cluster-scoped models."""
        return _kind(self.cluster_model, namespaced=False)

    @property
    def catalog_sources(self) -> Kind | None:
        """Kind of the resources that describe catalogs of other clusters; None: models cannot be imported."""
        return _kind(self.catalog_source, namespaced=False) if self.catalog_source else None

    @property
    def capacity_bytes(self) -> int:
        """Maximum total size of all artifacts and uploads in bytes; 0: unlimited."""
        return math.floor(amount(self.capacity_limit)) if self.capacity_limit else 0

    @property
    def share_bytes(self) -> int:
        """Maximum total size in bytes of the models of one namespace; 0: unlimited."""
        return self.capacity_bytes * self.namespace_share // 100

    @property
    def upload_bytes(self) -> int:
        """Maximum size of an upload in bytes."""
        return math.floor(amount(self.upload_limit))

    def key(self, name: str) -> Path:
        """Return the path of a file in the key directory, such as ``tls.crt``."""
        return Path(self.keys) / name


def load(path: Path) -> Settings:
    """Read the settings file. Raise ValueError with the name of the invalid field, or OSError."""
    try:
        return parse_settings(decode_yaml(path.read_text(), most=SETTINGS_BYTES) or {})
    except (DecodingError, msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def parse_settings(document: Any) -> Settings:
    """Convert a decoded YAML document to settings. Raise ValueError if it is invalid."""
    settings = msgspec.convert(document, Settings)
    for field, quantity in (("capacityLimit", settings.capacity_limit), ("uploadLimit", settings.upload_limit)):
        if quantity and not _positive(quantity):
            raise ValueError(f"{field}: {quantity[:64]!r} is not a size such as 500Gi")
    for network in address_policy.network_faults(settings.blocked_networks):
        raise ValueError(f"blockedNetworks: {network[:64]!r} is neither a network such as 10.1.0.0/16 nor an address")
    return settings


def _positive(quantity: str) -> bool:
    try:
        return amount(quantity) >= 1
    except ValueError:
        return False


def _kind(kind: ModelKind, *, namespaced: bool) -> Kind:
    return Kind(kind.group, kind.version, kind.kind, kind.plural, namespaced)
