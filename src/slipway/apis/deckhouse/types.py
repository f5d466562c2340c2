"""Model, ClusterModel and ModelCatalogSource. Their definitions are made from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.deckhouse import names
from slipway.artifacts.publication import ENDPOINT_TYPES, FEATURES
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.crd import Column, CustomResource, Rule
from slipway.kube.objects import Object

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
    """An entry of another cluster's catalog."""

    name: Name
    """Name of the model in the catalog."""
    source_name: Name | None = None
    """ModelCatalogSource to look in. Absent: the only one that is Ready."""
    version: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Version, where the catalog has several active ones of this name."""


class UploadSource(msgspec.Struct, frozen=True):
    """A session in which one file or archive is uploaded; status.upload names the Secret with its address and token."""


class ClusterModelSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the model comes from: exactly one of url, upload and catalog."""

    url: Annotated[str, Meta(min_length=1, pattern=URL)] | None = None
    """Repository of Hugging Face, or model of Ollama's library."""
    upload: UploadSource | None = None
    """A file or archive that is uploaded."""
    catalog: CatalogEntry | None = None
    """A model that another cluster offers."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.url), has(self.upload), has(self.catalog)].filter(given, given).size() == 1",
            "exactly one of source.url, source.upload and source.catalog must be specified",
        ),
    )


class SecretReference(msgspec.Struct, frozen=True):
    """Names a Secret of the Model's namespace."""

    name: NotEmpty
    """Name of the Secret."""


class ModelSource(ClusterModelSource, frozen=True, kw_only=True, rename="camel"):
    """Where the model comes from: exactly one of url, upload and catalog."""

    auth_secret_ref: SecretReference | None = None
    """Secret with a token for Hugging Face under the key token, HF_TOKEN or HUGGING_FACE_HUB_TOKEN."""

    validations: ClassVar[tuple[Rule, ...]] = (
        *ClusterModelSource.validations,
        Rule("!has(self.authSecretRef) || has(self.url)", "source.authSecretRef is only allowed for source.url"),
    )


IMMUTABLE = Rule("self.source == oldSelf.source", "spec.source is immutable")


class ClusterModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is published. It cannot be changed: another source is another model."""

    source: ClusterModelSource
    """Where the model comes from."""

    validations: ClassVar[tuple[Rule, ...]] = (IMMUTABLE,)


class ModelSpec(ClusterModelSpec, frozen=True, kw_only=True):
    """What is published. It cannot be changed: another source is another model."""

    source: ModelSource
    """Where the model comes from."""


class CatalogProvenance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which entry was imported. It stays as it was then."""

    name: NotEmpty
    """Name in the catalog."""
    source_name: NotEmpty
    """ModelCatalogSource that had it."""
    version: str | UnsetType = UNSET
    """Version that was chosen."""
    catalog_revision: str | UnsetType = UNSET
    """Revision of the catalog."""
    remote_digest: str | UnsetType = UNSET
    """Digest of the other cluster's artifact."""


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the model comes from."""

    resolved_type: Provider | UnsetType = UNSET
    """Whose model it is."""
    resolved_revision: str | UnsetType = UNSET
    """Commit, tag or digest that was published."""
    catalog: CatalogProvenance | UnsetType = UNSET
    """Which entry of a catalog it was."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the registry has."""

    kind: Literal["OCI"] = "OCI"
    """Kind of the artifact."""
    digest: str | UnsetType = UNSET
    """Digest of its manifest."""
    media_type: str | UnsetType = UNSET
    """Its media type."""
    size_bytes: Positive64 | UnsetType = UNSET
    """Bytes of all that the manifest describes."""


class SourceCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the source says that the model can do."""

    provider: Provider | UnsetType = UNSET
    """Who says it."""
    tasks: Words | UnsetType = UNSET
    """Tasks, in the source's words."""
    features: Words | UnsetType = UNSET
    """Features, in the source's words."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of the model from its files. What is only estimated is left out."""

    format: Literal["Safetensors", "GGUF", "Diffusers"] | UnsetType = UNSET
    """Format of the weights."""
    family: str | UnsetType = UNSET
    """Family, such as llama."""
    architecture: str | UnsetType = UNSET
    """Architecture, such as LlamaForCausalLM."""
    parameter_count: Positive64 | UnsetType = UNSET
    """Parameters."""
    quantization: str | UnsetType = UNSET
    """How the weights are quantized."""
    context_window_tokens: Positive64 | UnsetType = UNSET
    """Tokens of context."""
    supported_endpoint_types: EndpointTypes | UnsetType = UNSET
    """Kinds of requests that it is for."""
    supported_features: Features | UnsetType = UNSET
    """What it takes and gives beside text."""
    source_capabilities: SourceCapabilities | UnsetType = UNSET
    """What the source says that it can do."""


class UploadStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The session, while it is awaited."""

    expires_at: Time | UnsetType = UNSET
    """Until when the upload may take."""
    secret_name: NotEmpty | UnsetType = UNSET
    """Secret with the keys url, token and command."""
    secret_namespace: NotEmpty | UnsetType = UNSET
    """Its namespace."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    phase: Phase | UnsetType = UNSET
    """Ready: workloads can read it. Failed: they will not, and the condition Ready says why. The others: on the way."""
    progress: str | UnsetType = UNSET
    """How much of it is uploaded or published, such as 17%."""
    source: SourceStatus | UnsetType = UNSET
    """Where the model comes from."""
    artifact: Artifact | UnsetType = UNSET
    """What the registry has."""
    resolved: Resolved | UnsetType = UNSET
    """What is known of the model."""
    upload: UploadStatus | UnsetType = UNSET
    """The session, while it is awaited."""
    conditions: Conditions | UnsetType = UNSET
    """ArtifactResolved, MetadataResolved and Ready, each with a reason and a message."""


class CatalogSourceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which catalog is read, and how."""

    url: Annotated[str, Meta(min_length=9, pattern=CATALOG_URL)]
    """Address of the other cluster's catalog."""
    credentials_secret_name: Name
    """Secret of the controller's namespace with the credential, under the key token."""
    ca_secret_name: Name | None = None
    """Secret of the controller's namespace with the authority to trust, under the key ca.crt."""
    refresh_interval: str | None = None
    """How often the catalog is read, such as 10m, which is the default."""


class CatalogSourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was read last."""

    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    catalog_revision: str | UnsetType = UNSET
    """Revision that was read last."""
    entry_count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Active entries of that revision."""
    last_successful_refresh_time: Time | UnsetType = UNSET
    """When that was."""
    conditions: Conditions | UnsetType = UNSET
    """Ready, with a reason and a message."""


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
    description="A model for workloads of its namespace that have the annotation ai.deckhouse.io/model.",
    categories=(CATEGORY,),
    columns=_COLUMNS,
)
CLUSTER_MODEL = CustomResource(
    kind=names.CLUSTER_MODEL,
    spec=ClusterModelSpec,
    status=ModelStatus,
    description="A model for workloads of any namespace that have the annotation ai.deckhouse.io/clustermodel.",
    categories=(CATEGORY,),
    columns=_COLUMNS,
)
CATALOG_SOURCE = CustomResource(
    kind=names.CATALOG_SOURCE,
    spec=CatalogSourceSpec,
    status=CatalogSourceStatus,
    description="A catalog of another cluster, from which models can be imported.",
    categories=(CATEGORY,),
    columns=(
        Column("URL", "string", ".spec.url", priority=1),
        Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Entries", "integer", ".status.entryCount"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
