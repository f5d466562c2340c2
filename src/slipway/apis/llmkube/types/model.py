"""The Model kind of LLMKube: weights, their source and their hardware. The CRD is generated from this module;
``apis.llmkube.types.service`` has the kind that serves them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.kube.objects import Kind, Object
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.core import core
from slipway.kube.schemas.crd import Column, CustomResource, Rule, cel

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="Model", plural="models")

INT32: Object = {"format": "int32"}
INT64: Object = {"format": "int64"}
TIME: Object = {"format": "date-time"}
ATOMIC: Object = {"x-kubernetes-map-type": "atomic"}
REASON = '.status.conditions[?(@.type=="Available")].reason'
SOURCE = r"^(https?|file|pvc|hf|s3)://.*|^/[^\s]+$|^[a-zA-Z0-9][\w\-\.\/]+(@[\w\-\.\/]+)?$"
RESOURCE_NAME = r"^[a-z0-9.\-]+/[a-z0-9._\-]+$"

Accelerator = Literal["cpu", "metal", "cuda", "rocm", "intel", "vulkan"]
Vendor = Literal["nvidia", "amd", "intel"]
Strategy = Literal["layer", "tensor", "row", "pipeline", "none"]
ResourceName = Annotated[str, Meta(pattern=RESOURCE_NAME)]
Number64 = Annotated[int, Meta(extra_json_schema=INT64)]
Time = Annotated[str, Meta(extra_json_schema=TIME)]

INNER_PATH = cel(
    Rule("!self.startsWith('/')", "must be a relative path inside the source."),
    Rule("!self.split('/').exists(part, part in ['', '.', '..'])", "must not contain the parts '', '.' or '..'."),
)
CLAIMS = cel(
    Rule(
        "self.size() == 0 || self.all(c, (has(c.resourceClaimName) && !has(c.resourceClaimTemplateName))"
        " || (!has(c.resourceClaimName) && has(c.resourceClaimTemplateName)))",
        "each claim must have exactly one of resourceClaimName and resourceClaimTemplateName.",
    )
)
InnerPath = Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema=INNER_PATH)]


class SecretName(msgspec.Struct, frozen=True):
    """A Secret in the Model's namespace."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the Secret."""


class Sharding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Distribution of the model over the GPUs of one pod, with llama.cpp."""

    strategy: Strategy = "layer"
    """layer (or pipeline) gives each GPU whole layers. row (or tensor) gives each GPU a part of every tensor. none uses
    one GPU only."""
    layer_split: tuple[str, ...] = ()
    """Layers of each GPU, such as 0-24 and 25-39. Empty, or not one range per GPU, means equal parts."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """GPUs of one pod."""

    enabled: bool = False
    """Marks the model as a GPU model. This alone requests no GPU; set count."""
    count: Annotated[int, Meta(ge=0, le=8, extra_json_schema=INT32)] = 0
    """Number of GPUs per pod. 0 means the number in the InferenceService."""
    memory: str = ""
    """Memory that each GPU should have, such as 16Gi. Informational only."""
    vendor: Vendor = "nvidia"
    """Vendor of the GPUs, which determines the requested resource and the tolerated taint."""
    layers: Annotated[int, Meta(ge=-1, extra_json_schema=INT32)] = 0
    """Number of layers in GPU memory, with llama.cpp. 0 or -1 means all."""
    sharding: Sharding = Sharding()
    """Distribution of the model over several GPUs."""
    resource_name: ResourceName = ""
    """Extended resource to request instead of the vendor's own."""
    toleration_key: ResourceName = ""
    """Key of the taint that pods tolerate. Empty means the resource name."""
    runtime: Literal["vulkan", "rocm"] | None = None
    """Compute API for AMD GPUs that the engine shares through their device files."""
    resource_claims: Annotated[
        tuple[Annotated[Object, core("PodResourceClaim")], ...], Meta(max_length=16, extra_json_schema=CLAIMS)
    ] = ()
    """Device claims of each pod (Dynamic Resource Allocation), instead of an extended resource."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.resourceName) && has(self.resourceClaims) && self.resourceClaims.size() > 0)",
            "resourceName and resourceClaims are mutually exclusive.",
        ),
    )


class Hardware(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Hardware for the model."""

    accelerator: Accelerator = "cpu"
    """Type of accelerator. metal is a Mac outside the cluster; the controller creates no pods for such a Model."""
    gpu: Gpu = Gpu()
    """GPUs of one pod."""
    memory_budget: str = ""
    """Maximum memory for the engine on a Mac, such as 24Gi."""
    memory_fraction: float | None = None
    """Maximum part of a Mac's memory for the engine, from 0 to 1, without memoryBudget."""


class ModelResources(msgspec.Struct, frozen=True, kw_only=True):
    """Informational resource requirements. Pods use the InferenceService's resources."""

    cpu: str = ""
    """CPUs, such as 2 or 500m."""
    memory: str = ""
    """Memory, such as 4Gi."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Source of the weights, and hardware for the model."""

    source: Annotated[str, Meta(pattern=SOURCE)]
    """Source of the weights: https://..., hf://<owner>/<repository>, <owner>/<repository>[@<revision>],
    s3://<bucket>/<key>, pvc://<claim>/<path>, or a node path as file:///<path> or /<path> in a directory that the
    operator allows."""
    sha256: Annotated[str, Meta(pattern="^[a-fA-F0-9]{64}$")] = ""
    """SHA-256 of the file, in hexadecimal. Checked for every kind of source. If it does not match, the weights are not
    served."""
    refresh_policy: Literal["IfNotPresent", "OnChange"] = "IfNotPresent"
    """Action when the source changes. IfNotPresent reports it in the condition SourceDrifted. OnChange downloads the
    weights again and replaces the pods that use them."""
    format: Literal["gguf", "mlx", "safetensors", "pytorch", "custom"] = "gguf"
    """Format of the weights. llamacpp serves gguf. vllm, sglang and tgi serve safetensors and pytorch."""
    quantization: str = ""
    """Quantization of the weights, such as Q4_K_M. If llama.cpp downloads a repository itself, it uses the file with
    this quantization. Otherwise informational."""
    hardware: Hardware = Hardware()
    """Hardware for the model."""
    resources: ModelResources = ModelResources()
    """Informational resource requirements. Pods use the InferenceService's resources."""
    source_secret_ref: Annotated[SecretName, Meta(extra_json_schema=ATOMIC)] | None = None
    """Secret with credentials for the loader. It gets only these keys: for s3://, AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL; for gated repositories, HF_TOKEN."""
    files: Annotated[tuple[InnerPath, ...], Meta(max_length=256)] = ()
    """Files to download from a repository or a bucket directory. The engine loads the first; the others are its further
    parts."""
    mmproj: InnerPath = ""
    """File with the projector of a multimodal model, in the same source, for llama.cpp."""
    prefetch: bool = False
    """Downloads the weights into the cache even if no service reads them from there. If false, they are downloaded when
    the Model is created, unless all of its services get them in another way."""
    prefetch_tolerations: tuple[Annotated[Object, core("Toleration")], ...] = ()
    """Additional tolerations of the pods that download the weights."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.mmproj) || has(self.files)", "mmproj requires files, because it comes from the same source."),
    )


class Gguf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata from the header of a GGUF file."""

    architecture: str | UnsetType = UNSET
    """Architecture, such as llama."""
    model_name: str | UnsetType = UNSET
    """Model name in the file."""
    quantization: str | UnsetType = UNSET
    """File type, such as Q4_K_M."""
    context_length: Number64 | UnsetType = UNSET
    """Context length in tokens that the model was trained for."""
    embedding_size: Number64 | UnsetType = UNSET
    """Embedding dimension."""
    layer_count: Number64 | UnsetType = UNSET
    """Number of layers."""
    head_count: Number64 | UnsetType = UNSET
    """Number of attention heads per layer."""
    tensor_count: Number64 | UnsetType = UNSET
    """Number of tensors in the file."""
    file_version: Annotated[int, Meta(extra_json_schema=INT32)] | UnsetType = UNSET
    """Version of the GGUF format."""
    license: str | UnsetType = UNSET
    """License of the weights."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the Model."""

    phase: Literal["Pending", "Downloading", "Copying", "Ready", "Failed"] | UnsetType = UNSET
    """Ready means that services can start. Failed means that they cannot; a condition has the reason. The others are in
    progress."""
    size: str | UnsetType = UNSET
    """Size of the weights, such as 3.2 GiB."""
    done_bytes: Number64 | UnsetType = UNSET
    """Number of downloaded bytes."""
    total_bytes: Number64 | UnsetType = UNSET
    """Total number of bytes, when known."""
    path: str | UnsetType = UNSET
    """Path of the weights in the engine's container. Empty if the engine downloads them itself."""
    cache_key: str | UnsetType = UNSET
    """Cache directory of the weights. Models with the same source share it."""
    sha256: str | UnsetType = UNSET
    """SHA-256 of the downloaded file."""
    source_e_tag: str | UnsetType = msgspec.field(default=UNSET, name="sourceETag")
    """ETag of the source when it was downloaded or first checked."""
    source_content_length: Number64 | UnsetType = UNSET
    """Size of the source in bytes when it was downloaded or first checked."""
    last_revalidated: Time | UnsetType = UNSET
    """Time of the last check for changes of the source."""
    accelerator_ready: bool | UnsetType = UNSET
    """True if a node of the cluster has the accelerator. It may be in use."""
    gguf: Gguf | UnsetType = UNSET
    """Metadata from the header of GGUF weights."""
    staged_files: tuple[str, ...] | UnsetType = UNSET
    """Downloaded files of the source, if the Model lists files."""
    last_updated: Time | UnsetType = UNSET
    """Time of the last change of this status."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Available, Progressing and Degraded, and SourceDrifted if applicable."""


MODEL = CustomResource(
    kind=KIND,
    spec=ModelSpec,
    status=ModelStatus,
    description="Weights for InferenceServices in the same namespace.",
    short_names=("mdl",),
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Size", "string", ".status.size"),
        Column("Accelerator", "string", ".spec.hardware.accelerator"),
        Column("Arch", "string", ".status.gguf.architecture", priority=1),
        Column("Source", "string", ".spec.source", priority=1),
        Column("Reason", "string", REASON),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
