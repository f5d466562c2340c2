"""Model, ClusterModel and ModelCatalogSource. Their CRDs are generated from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.deckhouse import names
from slipway.artifacts.documents.publication import ENDPOINT_TYPES, FEATURES
from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.crd import Column, CustomResource, Rule

INT64: Object = {"format": "int64"}
TIME: Object = {"format": "date-time"}
SET: Object = {"x-kubernetes-list-type": "set"}
URL = (
    r"^https:\/\/(((www\.)?huggingface\.co|hf\.co)\/.+"
    r"|(www\.)?ollama\.com\/library\/[^:\/?#]+(:[^\/?#]+)?([\/?#].*)?)$"
)
CATALOG_URL = r"^https:\/\/[^:\/?#@]+(:[0-9]+)?(\/[^?#]*)?$"
DNS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=DNS)]
NotEmpty = Annotated[str, Meta(min_length=1)]
Number64 = Annotated[int, Meta(extra_json_schema=INT64)]
Positive64 = Annotated[int, Meta(ge=1, extra_json_schema=INT64)]
Time = Annotated[str, Meta(extra_json_schema=TIME)]
Words = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...], Meta(max_length=32, extra_json_schema=SET)
]
Conditions = Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)]
Phase = Literal["Pending", "WaitForUpload", "Publishing", "Ready", "Failed", "Deleting"]
Provider = Literal["HuggingFace", "Ollama", "Upload", "Catalog"]
MOST_WORDS = 16
EndpointTypes = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"enum": [*ENDPOINT_TYPES]})], ...],
    Meta(max_length=MOST_WORDS, extra_json_schema=SET),
]
Features = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"enum": [*FEATURES]})], ...],
    Meta(max_length=MOST_WORDS, extra_json_schema=SET),
]


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model in another cluster's catalog."""

    name: Name
    """Name of the model in the catalog."""
    source_name: Name | None = None
    """ModelCatalogSource that lists the model. Empty means the only ModelCatalogSource that is Ready."""
    version: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Version to import. Required if the catalog has several active versions with this name."""


class UploadSource(msgspec.Struct, frozen=True):
    """Upload of one file or archive. status.upload names the Secret with the upload's URL and token."""


class ClusterModelSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Source of the model: exactly one of url, upload and catalog."""

    url: Annotated[str, Meta(min_length=1, pattern=URL)] | None = None
    """URL of a Hugging Face repository, or of a model in Ollama's library."""
    upload: UploadSource | None = None
    """Upload of one file or archive. status.upload names the Secret with the upload's URL and token."""
    catalog: CatalogEntry | None = None
    """A model in another cluster's catalog."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.url), has(self.upload), has(self.catalog)].filter(given, given).size() == 1",
            "exactly one of source.url, source.upload and source.catalog must be specified",
        ),
    )


class SecretReference(msgspec.Struct, frozen=True):
    """A Secret in the Model's namespace."""

    name: NotEmpty
    """Name of the Secret."""


class ModelSource(ClusterModelSource, frozen=True, kw_only=True, rename="camel"):
    """Source of the model: exactly one of url, upload and catalog."""

    auth_secret_ref: SecretReference | None = None
    """Secret with a Hugging Face token. The first of the keys token, HF_TOKEN and HUGGING_FACE_HUB_TOKEN is used."""

    validations: ClassVar[tuple[Rule, ...]] = (
        *ClusterModelSource.validations,
        Rule("!has(self.authSecretRef) || has(self.url)", "source.authSecretRef is only allowed for source.url"),
    )


IMMUTABLE = Rule("self.source == oldSelf.source", "spec.source is immutable")


class ClusterModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Desired state of the model. It is immutable. To publish another source, create another model."""

    source: ClusterModelSource
    """Source of the model."""

    validations: ClassVar[tuple[Rule, ...]] = (IMMUTABLE,)


class ModelSpec(ClusterModelSpec, frozen=True, kw_only=True):
    """Desired state of the model. It is immutable. To publish another source, create another model."""

    source: ModelSource
    """Source of the model."""


class CatalogProvenance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Catalog entry from which the model was imported, as of the import."""

    name: NotEmpty
    """Name of the model in the catalog."""
    source_name: NotEmpty
    """ModelCatalogSource that listed the model."""
    version: str | UnsetType = UNSET
    """Version of the model that was imported."""
    catalog_revision: str | UnsetType = UNSET
    """Revision of the catalog at the time of the import."""
    remote_digest: str | UnsetType = UNSET
    """Digest of the model's artifact in the other cluster."""


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Source of the model, and its published revision."""

    resolved_type: Provider | UnsetType = UNSET
    """Type of the source."""
    resolved_revision: str | UnsetType = UNSET
    """Commit, tag or digest of the source that was published."""
    catalog: CatalogProvenance | UnsetType = UNSET
    """Catalog entry from which the model was imported, as of the import."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Artifact of the model in the registry."""

    kind: Literal["OCI"] = "OCI"
    """Kind of the artifact."""
    digest: str | UnsetType = UNSET
    """Digest of the artifact's manifest."""
    media_type: str | UnsetType = UNSET
    """Media type of the artifact."""
    size_bytes: Positive64 | UnsetType = UNSET
    """Total size of the artifact's config and layers in bytes."""


class SourceCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of the model according to its source."""

    provider: Provider | UnsetType = UNSET
    """Type of the source that reports the capabilities."""
    tasks: Words | UnsetType = UNSET
    """Tasks that the model supports, as named by the source."""
    features: Words | UnsetType = UNSET
    """Features that the model supports, as named by the source."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata from the model's files. Estimated values are omitted."""

    format: Literal["Safetensors", "GGUF", "Diffusers"] | UnsetType = UNSET
    """Format of the weights."""
    family: str | UnsetType = UNSET
    """Model family, such as llama."""
    architecture: str | UnsetType = UNSET
    """Model architecture, such as LlamaForCausalLM."""
    parameter_count: Positive64 | UnsetType = UNSET
    """Number of parameters."""
    quantization: str | UnsetType = UNSET
    """Quantization of the weights."""
    context_window_tokens: Positive64 | UnsetType = UNSET
    """Context length in tokens."""
    supported_endpoint_types: EndpointTypes | UnsetType = UNSET
    """Types of requests that the model supports."""
    supported_features: Features | UnsetType = UNSET
    """Features that the model supports, such as image input or tool calls."""
    source_capabilities: SourceCapabilities | UnsetType = UNSET
    """Capabilities of the model according to its source."""


class UploadStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Upload that the model is waiting for."""

    expires_at: Time | UnsetType = UNSET
    """Time at which the upload expires."""
    secret_name: NotEmpty | UnsetType = UNSET
    """Name of the Secret with the keys url, token and command for the upload."""
    secret_namespace: NotEmpty | UnsetType = UNSET
    """Namespace of the Secret."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the model."""

    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    phase: Phase | UnsetType = UNSET
    """Ready means that workloads can use the model. Failed means that they cannot, and the condition Ready has the
    reason. All other phases mean that work is in progress."""
    progress: str | UnsetType = UNSET
    """Progress of the upload or publication, such as 17%."""
    source: SourceStatus | UnsetType = UNSET
    """Source of the model, and its published revision."""
    artifact: Artifact | UnsetType = UNSET
    """Artifact of the model in the registry."""
    resolved: Resolved | UnsetType = UNSET
    """Metadata from the model's files."""
    upload: UploadStatus | UnsetType = UNSET
    """Upload that the model is waiting for."""
    conditions: Conditions | UnsetType = UNSET
    """Conditions ArtifactResolved, MetadataResolved, Turn while the model waits or is being published, and the summary
    conditions Ready, Reconciling and Stalled."""


class CatalogSourceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """URL of the catalog, and credentials for it."""

    url: Annotated[str, Meta(min_length=9, pattern=CATALOG_URL)]
    """HTTPS URL of the other cluster's depot, which serves the catalog."""
    credentials_secret_name: Name
    """Secret in the controller's namespace with credentials for the catalog under the key token, or under username and
    password."""
    ca_secret_name: Name | None = None
    """Secret in the controller's namespace with the CA certificate under the key ca.crt. Empty means the public CAs."""
    refresh_interval: str | None = None
    """Time between two reads of the catalog, as a Go duration such as 30m. Empty means 10m."""


class CatalogSourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the catalog."""

    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    catalog_revision: str | UnsetType = UNSET
    """Revision of the catalog at the last successful read."""
    entry_count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Number of active entries in the catalog at the last successful read."""
    last_successful_refresh_time: Time | UnsetType = UNSET
    """Time of the last successful read."""
    conditions: Conditions | UnsetType = UNSET
    """Conditions Ready, Reconciling and Stalled."""


CATEGORY = "ai-models"
_COLUMNS = (
    Column("Phase", "string", ".status.phase"),
    Column("Progress", "string", ".status.progress", priority=1),
    Column("Source", "string", ".status.source.resolvedType"),
    Column("Age", "date", ".metadata.creationTimestamp"),
)

MODEL = CustomResource(
    kind=names.MODEL,
    spec=ModelSpec,
    status=ModelStatus,
    description="A model for workloads in its namespace with the annotation ai.deckhouse.io/model.",
    categories=(CATEGORY,),
    columns=_COLUMNS,
)
CLUSTER_MODEL = CustomResource(
    kind=names.CLUSTER_MODEL,
    spec=ClusterModelSpec,
    status=ModelStatus,
    description="A model for workloads in any namespace with the annotation ai.deckhouse.io/clustermodel.",
    categories=(CATEGORY,),
    columns=_COLUMNS,
)
CATALOG_SOURCE = CustomResource(
    kind=names.CATALOG_SOURCE,
    spec=CatalogSourceSpec,
    status=CatalogSourceStatus,
    description="A catalog of models in another cluster, which can be imported.",
    categories=(CATEGORY,),
    columns=(
        Column("URL", "string", ".spec.url", priority=1),
        Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Entries", "integer", ".status.entryCount"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
