"""ServingRuntime and ClusterServingRuntime: how models of some kind are served. Their definitions are made from this
module."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from slipway.apis.ome import names
from slipway.apis.ome.component_types import POD, DecoderSpec, EngineSpec, RouterSpec
from slipway.apis.ome.model_types import (
    ATOMIC,
    INT32,
    INT64,
    Conditions,
    DiffusionPipelineSpec,
    ModelFormat,
    ModelFrameworkSpec,
    Number64,
    Strings,
    part,
)
from slipway.kube.crd import Column, CustomResource
from slipway.kube.objects import Object

Natural = Annotated[int, Meta(ge=0, extra_json_schema=INT64)]
POD_FIELDS = (
    "containers",
    "volumes",
    "affinity",
    "tolerations",
    "imagePullSecrets",
    "schedulerName",
    "hostIPC",
    "dnsPolicy",
    "hostNetwork",
)
"""What of a pod runtimes of earlier versions have."""


class SupportedModelFormat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of model that a runtime serves. A model has to match all that is said, and to have no architecture and no
    quantization where none is said."""

    model_format: ModelFormat
    """How its weights are stored."""
    model_framework: ModelFrameworkSpec
    """Library that its weights are for."""
    name: str | None = None
    """Name of the format in earlier versions. It has no effect."""
    model_type: str | None = None
    """Family of the model. It has no effect."""
    version: str | None = None
    """Version of the format in earlier versions. It has no effect."""
    model_architecture: str | None = None
    """Class of the model, such as LlamaForCausalLM."""
    quantization: str | None = None
    """How its weights are quantized."""
    diffusion_pipeline: DiffusionPipelineSpec | None = None
    """What it is made of."""
    auto_select: bool | None = None
    """Whether the runtime serves such models for services that name none."""
    priority: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Of several runtimes that fit, the one with the highest. Absent: 1."""
    accelerator_config: dict[str, Annotated[Object, part("AcceleratorModelConfig")]] = {}
    """Name of an AcceleratorClass -> what is otherwise there. It has no effect."""


class ModelSizeRangeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of models, both ends included."""

    min: str | None = None
    """Least parameters, such as 500M. Absent: any."""
    max: str | None = None
    """Most parameters, such as 2B. Absent: any."""


class AcceleratorRequirements(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Accelerators that a runtime is for. Only the names of classes count."""

    accelerator_classes: Strings = ()
    """Names of AcceleratorClasses, of which a service may require one."""
    min_memory: Natural | None = None
    """Least memory, in GB. It has no effect."""
    min_compute_performance: Natural | None = field(default=None, name="minComputePerformanceTFLOPS")
    """Least performance, in TFLOPS. It has no effect."""
    min_architecture_version: str | None = None
    """Least version of the architecture. It has no effect."""
    required_features: Strings = ()
    """Features that it needs. It has no effect."""
    preferred_precisions: Strings = ()
    """Types of numbers that it should compute with. It has no effect."""


class ServingRuntimePodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The engine's pod, as runtimes of earlier versions have it. With engineConfig, only nodeSelector and the resources
    of the container with the runner's name count."""

    node_selector: dict[str, str] = {}
    """Labels that nodes need."""
    labels: dict[str, str] = {}
    """Labels of the pod."""
    annotations: dict[str, str] = {}
    """Annotations of the pod."""

    inlined: ClassVar[Object] = {"properties": {name: POD["properties"][name] for name in POD_FIELDS}}


class WorkerPodSpec(ServingRuntimePodSpec, frozen=True, kw_only=True, rename="camel"):
    """Workers, as runtimes of earlier versions have them."""

    size: int | None = None
    """Workers of a group."""


class ServingRuntimeSpec(ServingRuntimePodSpec, frozen=True, kw_only=True, rename="camel"):
    """Which models, and how. What a service says of a component goes before what is said here."""

    supported_model_formats: Annotated[tuple[SupportedModelFormat, ...], Meta(extra_json_schema=ATOMIC)] = ()
    """Models that it serves."""
    model_size_range: ModelSizeRangeSpec | None = None
    """Sizes of the models that it serves."""
    disabled: bool | None = None
    """Whether services must not use it."""
    engine_config: EngineSpec | None = None
    """The part that computes."""
    decoder_config: DecoderSpec | None = None
    """The part that writes answers, for services that have it."""
    router_config: RouterSpec | None = None
    """The part that spreads requests, for services that have it."""
    protocol_versions: Strings = ()
    """Protocols that it speaks, such as openAI."""
    workers: WorkerPodSpec | None = None
    """Workers of an engine on several nodes, as runtimes of earlier versions have them. Only without engineConfig."""
    accelerator_requirements: AcceleratorRequirements | None = None
    """Accelerators that it is for."""


class ServingRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether services can use it."""

    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Conditions | UnsetType = UNSET
    """Accepted, and what else there is to tell; each with a reason and a message."""


_COLUMNS = (
    Column("Disabled", "boolean", ".spec.disabled"),
    Column("ModelFormat", "string", ".spec.supportedModelFormats[*].modelFormat.name"),
    Column("ModelFramework", "string", ".spec.supportedModelFormats[*].modelFramework.name"),
    Column("ModelFrameworkVersion", "string", ".spec.supportedModelFormats[*].modelFramework.version"),
    Column("ModelArchitecture", "string", ".spec.supportedModelFormats[*].modelArchitecture"),
    Column("ModelSizeMin", "string", ".spec.modelSizeRange.min"),
    Column("ModelSizeMax", "string", ".spec.modelSizeRange.max"),
    Column("Images", "string", ".spec.containers[*].image"),
    Column("Age", "date", ".metadata.creationTimestamp"),
)

SERVING_RUNTIME = CustomResource(
    kind=names.SERVING_RUNTIME,
    spec=ServingRuntimeSpec,
    status=ServingRuntimeStatus,
    description="How models are served, for InferenceServices of its namespace.",
    columns=_COLUMNS,
)
CLUSTER_SERVING_RUNTIME = CustomResource(
    kind=names.CLUSTER_SERVING_RUNTIME,
    spec=ServingRuntimeSpec,
    status=ServingRuntimeStatus,
    description="How models are served, for InferenceServices of any namespace.",
    columns=_COLUMNS,
)
