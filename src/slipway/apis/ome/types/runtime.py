"""ServingRuntime and ClusterServingRuntime: engines and the models that they support. The CRDs are generated from this
module."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from slipway.apis.ome import names
from slipway.apis.ome.types.component import POD, DecoderSpec, EngineSpec, RouterSpec
from slipway.apis.ome.types.model import (
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
from slipway.kube.objects import Object
from slipway.kube.schemas.crd import Column, CustomResource

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
"""Pod fields that earlier versions of OME accept directly in a runtime's spec."""


class SupportedModelFormat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Models that a runtime supports. A model must match every field of the entry."""

    model_format: ModelFormat
    """Format of the weights."""
    model_framework: ModelFrameworkSpec
    """Library that loads the weights, such as transformers."""
    name: str | None = None
    """Name of the format in older versions of the API. This field has no effect."""
    model_type: str | None = None
    """Model family. This field has no effect."""
    version: str | None = None
    """Version of the format in older versions of the API. This field has no effect."""
    model_architecture: str | None = None
    """Required model architecture, such as LlamaForCausalLM. Empty matches only models without an architecture."""
    quantization: str | None = None
    """Required quantization of the weights. Empty matches all models except those with fp8, fbgemm_fp8 or int4."""
    diffusion_pipeline: DiffusionPipelineSpec | None = None
    """Required parts of a diffusion pipeline. If unset, models match with or without a pipeline."""
    auto_select: bool | None = None
    """If true, the controller can select this runtime for a matching model if the service does not name a runtime."""
    priority: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Factor for the runtime's score. The matching runtime with the highest score is selected. Empty means 1."""
    accelerator_config: dict[str, Annotated[Object, part("AcceleratorModelConfig")]] = {}
    """Settings for each AcceleratorClass. This field has no effect."""


class ModelSizeRangeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Supported model sizes, including both limits."""

    min: str | None = None
    """Minimum number of parameters, such as 500M. Empty means no minimum."""
    max: str | None = None
    """Maximum number of parameters, such as 2B. Empty means no maximum."""


class AcceleratorRequirements(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Accelerators that the runtime supports. They have no effect, because AcceleratorClasses are not supported."""

    accelerator_classes: Strings = ()
    """Names of AcceleratorClasses. They have no effect."""
    min_memory: Natural | None = None
    """Minimum memory in GB. This field has no effect."""
    min_compute_performance: Natural | None = field(default=None, name="minComputePerformanceTFLOPS")
    """Minimum performance in TFLOPS. This field has no effect."""
    min_architecture_version: str | None = None
    """Minimum architecture version. This field has no effect."""
    required_features: Strings = ()
    """Required features. They have no effect."""
    preferred_precisions: Strings = ()
    """Preferred data types. They have no effect."""


class ServingRuntimePodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Engine pod in older versions of the API. With engineConfig, only nodeSelector and the resources of the container
    with the runner's name have an effect."""

    node_selector: dict[str, str] = {}
    """Labels of the nodes that can run the pods."""
    labels: dict[str, str] = {}
    """Labels of the pods."""
    annotations: dict[str, str] = {}
    """Annotations of the pods."""

    inlined: ClassVar[Object] = {"properties": {name: POD["properties"][name] for name in POD_FIELDS}}


class WorkerPodSpec(ServingRuntimePodSpec, frozen=True, kw_only=True, rename="camel"):
    """Worker pods in older versions of the API."""

    size: int | None = None
    """Number of worker pods for each leader. Empty means 1."""


class ServingRuntimeSpec(ServingRuntimePodSpec, frozen=True, kw_only=True, rename="camel"):
    """Supported models, and the pods that serve them. A service's fields take precedence."""

    supported_model_formats: Annotated[tuple[SupportedModelFormat, ...], Meta(extra_json_schema=ATOMIC)] = ()
    """Models that the runtime supports. A model must match every field of one entry."""
    model_size_range: ModelSizeRangeSpec | None = None
    """Range of supported model sizes, as numbers of parameters."""
    disabled: bool | None = None
    """If true, services cannot use the runtime."""
    engine_config: EngineSpec | None = None
    """Defaults for the engine of a service."""
    decoder_config: DecoderSpec | None = None
    """Defaults for the decoder of a service that has one."""
    router_config: RouterSpec | None = None
    """Defaults for the router of a service that has one."""
    protocol_versions: Strings = ()
    """Protocols that the runtime supports, such as openAI. This field is only informational."""
    workers: WorkerPodSpec | None = None
    """Worker pods of an engine on several nodes, in older versions of the API. This field has no effect if engineConfig
    is set."""
    accelerator_requirements: AcceleratorRequirements | None = None
    """Accelerators that the runtime supports. They have no effect, because AcceleratorClasses are not supported."""


class ServingRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the runtime."""

    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Conditions | UnsetType = UNSET
    """Conditions Accepted, Ready, Reconciling and Stalled."""


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
    description="Pods and supported models of an engine, for InferenceServices in its namespace.",
    columns=_COLUMNS,
)
CLUSTER_SERVING_RUNTIME = CustomResource(
    kind=names.CLUSTER_SERVING_RUNTIME,
    spec=ServingRuntimeSpec,
    status=ServingRuntimeStatus,
    description="Pods and supported models of an engine, for InferenceServices in any namespace.",
    columns=_COLUMNS,
)
