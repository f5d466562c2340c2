"""BaseModel, ClusterBaseModel and FineTunedWeight: weights, and which nodes have them. Their definitions are made from
this module."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from slipway.apis.ome import names
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.core import core
from slipway.kube.crd import Column, CustomResource
from slipway.kube.objects import Object

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
"""What OME's own type for a quantization has, and what it fills in itself. Its runtimes name no other one."""
PARAMETER_SIZE = "parameterSize"
"""Key of ``additionalMetadata``: the parameters that a model has, where ``modelParameterSize`` counts other numbers."""
Conditions = Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)]


def part(name: str) -> Meta:
    """``Annotated[Object, part("Address")]``: an object that stays a plain one, as nothing here reads or writes all of
    it. Its schema is data, in ``parts.json``. Raises KeyError for an unknown part."""
    return Meta(extra={"schema": PARTS[name]})


PARTS: dict[str, Object] = json.loads(files("slipway.apis.ome").joinpath("parts.json").read_text())


class ModelFormat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How weights are stored, or the library that they are for."""

    name: str
    """Name, such as safetensors or gguf; of a library such as transformers."""
    version: str | None = None
    """Version, as major, major.minor or major.minor.patch."""
    operator: Operator = "Equal"
    """Of a runtime: how its version compares with the model's. Equal, GreaterThan or GreaterThanOrEqual."""
    weight: Weight = 1
    """Of a runtime: what a match adds to its score."""


class ModelFrameworkSpec(ModelFormat, frozen=True, kw_only=True, rename="camel"):
    """The library that weights are for."""


class ComponentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a diffusion pipeline."""

    library: str = ""
    """Library that the part comes from, such as diffusers."""
    type: str = ""
    """Class of the part."""


class DiffusionPipelineSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a diffusion pipeline is made of. Of a runtime: what it has to be made of; what is absent may be anything."""

    class_name: str = ""
    """Class of the pipeline, such as QwenImagePipeline."""
    scheduler: ComponentInfo | None = None
    """Part that removes noise step by step."""
    text_encoder: ComponentInfo | None = None
    """Part that reads the prompt."""
    tokenizer: ComponentInfo | None = None
    """Part that splits the prompt into tokens."""
    transformer: ComponentInfo | None = None
    """Part that computes the steps."""
    vae: ComponentInfo | None = None
    """Part that makes the picture."""
    additional_components: Annotated[dict[str, ComponentInfo], Meta(extra_json_schema=ATOMIC_MAP)] = {}
    """Further parts by their names."""


class StorageSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where files are, and where they shall be."""

    storage_uri: str
    """Source: hf://<owner>/<repository>[@<revision>], s3://, gs://, http(s)://, local://<path>, pvc://<claim>/<path> or
    vendor://."""
    path: str | None = None
    """Folder of the node that gets the files."""
    schema_path: str | None = None
    """Path of a schema or a configuration inside the storage. It has no effect."""
    parameters: dict[str, str] = {}
    """Settings of the source, such as region; secretKey names the key of the Secret that has the token."""
    key: str | None = None
    """Secret with the credentials of the source."""
    node_selector: Annotated[dict[str, str], Meta(extra_json_schema=ATOMIC_MAP)] = {}
    """Labels that nodes need to get the files."""
    node_affinity: Annotated[Object, core("NodeAffinity")] | None = None
    """Further rules for the nodes that get the files."""
    download_policy: Literal["AlwaysDownload", "ReuseIfExists"] | None = None
    """ReuseIfExists: files of the same commit that a node has already are linked. Absent: AlwaysDownload."""


class ModelExtensionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a model is called, and by whom."""

    display_name: str | None = None
    """Name for people."""
    version: str | None = None
    """Version of the model."""
    disabled: bool | None = None
    """Whether services must not use it."""
    vendor: str | None = None
    """Who made it, such as meta."""
    compartment_id: str | None = field(default=None, name="compartmentID")
    """Compartment that it belongs to."""


class BaseModelSpec(ModelExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """A model. What is absent is filled in from its files, once they are there."""

    storage: StorageSpec
    """Where the weights are, and where they shall be."""
    model_format: ModelFormat | None = None
    """How the weights are stored."""
    model_type: str | None = None
    """Family, as model_type in config.json."""
    model_framework: ModelFrameworkSpec | None = None
    """Library that the weights are for."""
    model_architecture: str | None = None
    """Class of the model, such as LlamaForCausalLM."""
    quantization: str | None = None
    """How the weights are quantized, such as fp8 or int4."""
    model_parameter_size: str | None = None
    """Number of parameters, such as 1.24B."""
    model_capabilities: Strings = ()
    """What it can do, such as TEXT_TO_TEXT or EMBEDDING."""
    api_capabilities: Strings = ()
    """Endpoints that it is for, such as OPENAI_V1_CHAT_COMPLETIONS."""
    model_configuration: dict[str, Any] | None = None
    """Configuration of the model, for programs that read it here."""
    serving_mode: Strings = ()
    """On-demand or Dedicated, for programs that read it here."""
    max_tokens: Annotated[int, Meta(extra_json_schema=INT32)] | None = None
    """Most tokens of a prompt and its answer."""
    diffusion_pipeline: DiffusionPipelineSpec | None = None
    """What it is made of, where it is a diffusion pipeline."""
    additional_metadata: dict[str, str] = {}
    """Further facts: type, and tokenizer for benchmarks."""


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True):
    """Another object."""

    name: str
    """Name of the object."""
    namespace: str = ""
    """Its namespace. Absent: an object of the cluster."""


class FineTunedWeightSpec(ModelExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Weights that change what a base model does, or that are merged with its own."""

    base_model_ref: ObjectReference
    """The model that they are for."""
    model_type: str
    """Kind of the weights: LoRA, Adapter, Distillation or Tfew."""
    hyper_parameters: dict[str, Any]
    """How they were trained; strategy is told by a label of the pods."""
    storage: StorageSpec
    """Where the weights are, and where they shall be."""
    configuration: dict[str, Any] | None = None
    """Where merged_weights is true, the weights are whole, and take the place of the base model's."""
    training_job_ref: ObjectReference | None = None
    """The job that trained them, for people to read."""


class ModelStatusSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    state: State
    """Ready: a node has it. Failed: none has it, and some could not get it. In_Transit: on its way."""
    lifecycle: str | UnsetType = UNSET
    """Deprecated, Experiment, Public or Internal. Other programs write it."""
    nodes_ready: Strings | UnsetType = UNSET
    """Nodes that have the files."""
    nodes_failed: Strings | UnsetType = UNSET
    """Nodes that could not get the files."""
    size: str | UnsetType = UNSET
    """Size of the files, such as 2.3 GiB."""
    done_bytes: Number64 | UnsetType = UNSET
    """Bytes that are loaded, of all nodes that load."""
    total_bytes: Number64 | UnsetType = UNSET
    """Bytes that there will be, once that is known."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Conditions | UnsetType = UNSET
    """Accepted, Available and Progressing, and FieldsIgnored where it applies; each with a reason and a message."""


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
    description="A model for InferenceServices of its namespace.",
    columns=_OF_BASE_MODELS,
)
CLUSTER_BASE_MODEL = CustomResource(
    kind=names.CLUSTER_BASE_MODEL,
    spec=BaseModelSpec,
    status=ModelStatusSpec,
    description="A model for InferenceServices of any namespace.",
    columns=_OF_BASE_MODELS,
)
FINE_TUNED_WEIGHT = CustomResource(
    kind=names.FINE_TUNED_WEIGHT,
    spec=FineTunedWeightSpec,
    status=ModelStatusSpec,
    description="Weights that a service adds to its model, or serves in their place.",
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
