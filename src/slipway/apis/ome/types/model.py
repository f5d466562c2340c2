"""BaseModel, ClusterBaseModel and FineTunedWeight: weights, and the nodes that have their files. The CRDs are generated
from this module."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from slipway.apis.ome import names
from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.core import core
from slipway.kube.schemas.crd import Column, CustomResource

INT32: Object = {"format": "int32"}
INT64: Object = {"format": "int64"}
ATOMIC: Object = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP: Object = {"x-kubernetes-map-type": "atomic"}

Strings = Annotated[tuple[str, ...], Meta(extra_json_schema=ATOMIC)]
Number64 = Annotated[int, Meta(extra_json_schema=INT64)]
Operator = Annotated[str, Meta(extra_json_schema={"default": "Equal"})]
Weight = Annotated[int, Meta(extra_json_schema=INT64 | {"default": 1})]
State = Literal["Creating", "Importing", "In_Transit", "In_Training", "Ready", "Failed"]
QUANTIZATIONS = ("fp8", "fbgemm_fp8", "int4")
"""Quantizations that the original OME detects in a model's files. OME's runtimes use no other values."""
PARAMETER_SIZE = "parameterSize"
"""Key of ``additionalMetadata`` with the model's number of parameters, if ``modelParameterSize`` is the number of
values that a quantized model stores."""
Conditions = Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)]


def part(name: str) -> Meta:
    """Return the metadata of a field with a schema from ``parts.json``, for ``Annotated[Object, part("Address")]``. The
    field's value stays a plain object. Raise KeyError for an unknown part."""
    return Meta(extra={"schema": PARTS[name]})


PARTS: dict[str, Object] = json.loads(files("slipway.apis.ome.types").joinpath("parts.json").read_text())


class ModelFormat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Format or library of the weights, with its version."""

    name: str
    """Name of the format, such as safetensors or gguf, or of the library, such as transformers."""
    version: str | None = None
    """Version of the format or library, as major, major.minor or major.minor.patch."""
    operator: Operator = "Equal"
    """Required relation of the runtime's version to the model's: Equal, GreaterThan or GreaterThanOrEqual. Only for
    runtimes."""
    weight: Weight = 1
    """Weight of a match in the runtime's score. Only for runtimes."""


class ModelFrameworkSpec(ModelFormat, frozen=True, kw_only=True, rename="camel"):
    """Library that loads the weights, such as transformers."""


class ComponentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a diffusion pipeline."""

    library: str = ""
    """Library of the part, such as diffusers."""
    type: str = ""
    """Class name of the part."""


class DiffusionPipelineSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Parts of a diffusion pipeline. In a runtime, the parts that a model must have; unset parts match any model."""

    class_name: str = ""
    """Class name of the pipeline, such as QwenImagePipeline."""
    scheduler: ComponentInfo | None = None
    """Scheduler, which removes noise step by step."""
    text_encoder: ComponentInfo | None = None
    """Text encoder, which reads the prompt."""
    tokenizer: ComponentInfo | None = None
    """Tokenizer, which splits the prompt into tokens."""
    transformer: ComponentInfo | None = None
    """Transformer, which computes the steps."""
    vae: ComponentInfo | None = None
    """Variational autoencoder (VAE), which decodes the image."""
    additional_components: Annotated[dict[str, ComponentInfo], Meta(extra_json_schema=ATOMIC_MAP)] = {}
    """Additional parts by name."""


class StorageSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Source of the files, and their location on the nodes."""

    storage_uri: str
    """Source of the files: hf://<owner>/<repository>[@<revision>], s3://, gs://, http(s)://, local://<path>,
    pvc://<claim>/<path> or vendor://."""
    path: str | None = None
    """Node directory for the files, below a directory that the operator allows. Empty means a path that the controller
    chooses."""
    schema_path: str | None = None
    """Path of a schema or configuration in the storage. This field has no effect."""
    parameters: dict[str, str] = {}
    """Settings of the source. secretKey is the key of the token in the Secret, by default token. region is the region
    of the bucket."""
    key: str | None = None
    """Name of the Secret with credentials for the source. For a BaseModel, the operator creates it as <namespace>.<key>
    in the namespace of the loader."""
    node_selector: Annotated[dict[str, str], Meta(extra_json_schema=ATOMIC_MAP)] = {}
    """Labels of the nodes that get the files. Empty means all nodes."""
    node_affinity: Annotated[Object, core("NodeAffinity")] | None = None
    """Additional rules for the nodes that get the files."""
    download_policy: Literal["AlwaysDownload", "ReuseIfExists"] | None = None
    """ReuseIfExists reuses files of the same commit that are already on the node. Empty means AlwaysDownload."""


class ModelExtensionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata of the model."""

    display_name: str | None = None
    """Human-readable name of the model, such as Llama 3.1 8B."""
    version: str | None = None
    """Version of the model."""
    disabled: bool | None = None
    """If true, services cannot use the model."""
    vendor: str | None = None
    """Vendor of the model, such as meta."""
    compartment_id: str | None = field(default=None, name="compartmentID")
    """ID of the model's compartment in Oracle Cloud. This field has no effect."""


class BaseModelSpec(ModelExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Storage and metadata of the model. Missing values are read from its files after the download."""

    storage: StorageSpec
    """Source of the files, and their location on the nodes."""
    model_format: ModelFormat | None = None
    """Format of the weights."""
    model_type: str | None = None
    """Model family, such as llama, from model_type in config.json."""
    model_framework: ModelFrameworkSpec | None = None
    """Library that loads the weights, such as transformers."""
    model_architecture: str | None = None
    """Model architecture, such as LlamaForCausalLM."""
    quantization: str | None = None
    """Quantization of the weights, such as fp8 or int4."""
    model_parameter_size: str | None = None
    """Number of stored parameters, such as 1.24B."""
    model_capabilities: Strings = ()
    """Capabilities of the model, such as TEXT_TO_TEXT or EMBEDDING."""
    api_capabilities: Strings = ()
    """Endpoints that the model supports, such as OPENAI_V1_CHAT_COMPLETIONS. This field has no effect."""
    model_configuration: dict[str, Any] | None = None
    """Configuration of the model. This field has no effect."""
    serving_mode: Strings = ()
    """Serving modes of the model: On-demand or Dedicated. This field has no effect."""
    max_tokens: Annotated[int, Meta(extra_json_schema=INT32)] | None = None
    """Maximum number of tokens in prompt and answer together."""
    diffusion_pipeline: DiffusionPipelineSpec | None = None
    """Parts of a diffusion pipeline."""
    additional_metadata: dict[str, str] = {}
    """Additional metadata. Benchmarks use the key tokenizer. The selection of a runtime uses the key parameterSize, the
    real number of parameters of a quantized model."""


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True):
    """Reference to an object."""

    name: str
    """Name of the object."""
    namespace: str = ""
    """Namespace of the object. Empty for cluster-scoped objects."""


class FineTunedWeightSpec(ModelExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Weights that are added to a base model, or that are already merged with it."""

    base_model_ref: ObjectReference
    """Base model to which the weights belong."""
    model_type: str
    """Type of the weights: LoRA, Adapter, Distillation or Tfew."""
    hyper_parameters: dict[str, Any]
    """Training parameters. The value of strategy becomes a pod label."""
    storage: StorageSpec
    """Source of the files, and their location on the nodes."""
    configuration: dict[str, Any] | None = None
    """Settings of the weights. If merged_weights is true, the weights are complete and replace those of the base
    model."""
    training_job_ref: ObjectReference | None = None
    """Job that trained the weights. This field has no effect."""


class ModelStatusSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the model."""

    state: State
    """Ready means that at least one node has the files. Failed means that no node has the files, and that the spec is
    invalid or a node could not get the files. In_Transit means that work is in progress."""
    lifecycle: str | UnsetType = UNSET
    """Lifecycle stage that another program has set: Deprecated, Experiment, Public or Internal."""
    nodes_ready: Strings | UnsetType = UNSET
    """Nodes that have the files."""
    nodes_failed: Strings | UnsetType = UNSET
    """Nodes on which the download failed."""
    size: str | UnsetType = UNSET
    """Size of the files, such as 2.3 GiB."""
    done_bytes: Number64 | UnsetType = UNSET
    """Total number of downloaded bytes on all nodes that are downloading."""
    total_bytes: Number64 | UnsetType = UNSET
    """Total number of bytes to download on these nodes, when known."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Conditions | UnsetType = UNSET
    """Conditions Accepted, Available and Progressing, FieldsIgnored if a field has no effect, and the summary
    conditions Ready, Reconciling and Stalled."""


_OF_BASE_MODELS = (
    Column("Disabled", "boolean", ".spec.disabled"),
    Column("Version", "string", ".spec.version"),
    Column("Vendor", "string", ".spec.vendor"),
    Column("Framework", "string", ".spec.modelFramework.name"),
    Column("FrameworkVersion", "string", ".spec.modelFramework.version"),
    Column("ModelFormat", "string", ".spec.modelFormat.name"),
    Column("Architecture", "string", ".spec.modelArchitecture"),
    Column("Capabilities", "string", ".spec.modelCapabilities[*]"),
    Column("Size", "string", ".spec.modelParameterSize"),
    Column("CompartmentID", "string", ".spec.compartmentID"),
    Column("Ready", "string", ".status.state"),
    Column("Age", "date", ".metadata.creationTimestamp"),
)

BASE_MODEL = CustomResource(
    kind=names.BASE_MODEL,
    spec=BaseModelSpec,
    status=ModelStatusSpec,
    description="A model for InferenceServices in its namespace.",
    columns=_OF_BASE_MODELS,
)
CLUSTER_BASE_MODEL = CustomResource(
    kind=names.CLUSTER_BASE_MODEL,
    spec=BaseModelSpec,
    status=ModelStatusSpec,
    description="A model for InferenceServices in any namespace.",
    columns=_OF_BASE_MODELS,
)
FINE_TUNED_WEIGHT = CustomResource(
    kind=names.FINE_TUNED_WEIGHT,
    spec=FineTunedWeightSpec,
    status=ModelStatusSpec,
    description="Weights that a service adds to its model, or serves instead.",
    columns=(
        Column("Disabled", "boolean", ".spec.disabled"),
        Column("Version", "string", ".spec.version"),
        Column("Vendor", "string", ".spec.vendor"),
        Column("CompartmentID", "string", ".spec.compartmentID"),
        Column("ModelType", "string", ".spec.modelType"),
        Column("Ready", "string", ".status.state"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
