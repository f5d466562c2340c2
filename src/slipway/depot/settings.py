"""The depot's settings: one YAML file, read once at startup. A changed file needs a new pod."""

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
    """A kind of models, and its path at the API server."""

    group: Word
    version: Word
    kind: Word
    plural: Word


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The operator's settings. Times are whole seconds."""

    namespace: Namespace
    """The depot's own, in which models of the cluster are published."""
    registry: HostPort
    """``host:port`` of the registry, over TLS."""
    model: ModelKind
    """Models with a namespace."""
    cluster_model: ModelKind
    """Models of the cluster."""
    listen: Listen = ":8443"
    """Address of the doors, over TLS."""
    operations_listen: Listen = ":8081"
    """Address of health and metrics."""
    keys: str = "/etc/slipway-depot"
    """Folder with ``tls.crt``, ``tls.key``, ``token.key``, ``hmac`` and ``ca.crt``."""
    registry_ca: str = ""
    """File with the authority of the registry's certificate; empty: ``ca.crt`` of the keys."""
    registry_plain: bool = False
    """Whether the registry speaks HTTP without TLS, for tests on one machine."""
    issuer: Word = "slipway-depot"
    """Issuer of registry tokens, and the audience of the service account tokens that are taken for one."""
    service: Word = "slipway-registry"
    """Audience of registry tokens: the registry's ``service``."""
    token_seconds: Annotated[int, msgspec.Meta(ge=60, le=3600)] = 300
    """For how long a registry token is good."""
    capacity_limit: str = ""
    """What all artifacts and uploads may have together, such as ``500Gi``; empty: without limit."""
    namespace_share: Annotated[int, msgspec.Meta(ge=1, le=100)] = 90
    """Percentage of ``capacity_limit`` that the models of one namespace can use."""
    copies: Annotated[int, msgspec.Meta(ge=1, le=2)] = 1
    """How often the registry has the files of each artifact: twice where it is published as an image, too."""
    upload_limit: Annotated[str, msgspec.Meta(min_length=1)] = "2Ti"
    """What one upload may have."""
    uploads_at_once: Positive = 8
    """Uploads that a replica takes at a time."""
    requests_at_once: Positive = 128
    """Requests that a replica answers at a time, uploads among them."""
    connections: Annotated[int, msgspec.Meta(ge=16)] = 256
    """Clients that are connected to a replica at a time."""
    idle_seconds: Positive = 60
    """How long an upload may be silent."""
    registry_seconds: Positive = 3600
    """How long an upload waits for a registry that is away, or read-only while it is tidied up."""
    collector: Word = "slipway-registry-collection"
    """CronJob in the depot's namespace that frees the registry's storage; there need be none."""
    catalog: Literal["", "public"] = ""
    """``public``: models of the cluster are shown to who has a credential, and may be pulled."""
    catalog_keys: str = "/etc/slipway-depot-catalog"
    """Folder with a file for each credential: its name, and the token in it."""
    catalog_registry: Annotated[str, msgspec.Meta(pattern=rf"\A({_HOST_PORT})?\Z")] = ""
    """``host:port`` by which other clusters reach the registry; empty: as pods here do."""
    catalog_source: ModelKind | None = None
    """The kind that says which catalogs of other clusters there are; none: nothing is imported from them."""
    blocked_networks: tuple[str, ...] = ()
    """Networks that are never contacted for a grant."""

    @property
    def models(self) -> Kind:
        """Models with a namespace."""
        return _kind(self.model, namespaced=True)

    @property
    def cluster_models(self) -> Kind:
        """Models of the cluster."""
        return _kind(self.cluster_model, namespaced=False)

    @property
    def catalog_sources(self) -> Kind | None:
        """The kind that says which catalogs of other clusters there are, if any."""
        return _kind(self.catalog_source, namespaced=False) if self.catalog_source else None

    @property
    def capacity_bytes(self) -> int:
        """0: without limit."""
        return math.floor(amount(self.capacity_limit)) if self.capacity_limit else 0

    @property
    def share_bytes(self) -> int:
        """What the models of one namespace can use; 0: without limit."""
        return self.capacity_bytes * self.namespace_share // 100

    @property
    def upload_bytes(self) -> int:
        """What one upload may have."""
        return math.floor(amount(self.upload_limit))

    def key(self, name: str) -> Path:
        """The file of a key, such as ``tls.crt``."""
        return Path(self.keys) / name


def load(path: Path) -> Settings:
    """Reads the settings file. Raises ValueError, which names the field; OSError."""
    try:
        return parse_settings(decode_yaml(path.read_text(), most=SETTINGS_BYTES) or {})
    except (DecodingError, msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def parse_settings(document: Any) -> Settings:
    """Returns the settings of decoded YAML. Raises ValueError."""
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
