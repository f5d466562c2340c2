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
    """A Secret in the namespace of the resource."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the Secret."""


class Sharding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Distribution of the model over the GPUs of one pod, for llama.cpp."""

    strategy: Strategy = "layer"
    """layer (or pipeline) gives each GPU whole layers. row (or tensor) gives each GPU a part of every tensor. none uses
    only one GPU."""
    layer_split: tuple[str, ...] = ()
    """Range of layers for each GPU, such as 0-24 and 25-39. Without exactly one range per GPU, all GPUs get equal
    parts."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """GPUs of each pod."""

    enabled: bool = False
    """Selects the engine's image for the accelerator. This field alone requests no GPUs; set count."""
    count: Annotated[int, Meta(ge=0, le=8, extra_json_schema=INT32)] = 0
    """Number of GPUs per pod. 0 means the number in resources.gpu of the InferenceService."""
    memory: str = ""
    """Memory that each GPU should have, such as 16Gi. This field has no effect."""
    vendor: Vendor = "nvidia"
    """Vendor of the GPUs, which determines the resource that pods request and the taint that they tolerate."""
    layers: Annotated[int, Meta(ge=-1, extra_json_schema=INT32)] = 0
    """Number of layers that llama.cpp keeps in GPU memory. 0 and -1 mean all layers."""
    sharding: Sharding = Sharding()
    """Distribution of the model over the GPUs of one pod, for llama.cpp."""
    resource_name: ResourceName = ""
    """Extended resource that pods request. Empty means the vendor's resource, such as nvidia.com/gpu."""
    toleration_key: ResourceName = ""
    """Key of the taint that pods tolerate. Empty means the name of the requested resource."""
    runtime: Literal["vulkan", "rocm"] | None = None
    """Compute API of AMD GPUs. If set, pods request devic.es/dri-render instead of amd.com/gpu."""
    resource_claims: Annotated[
        tuple[Annotated[Object, core("PodResourceClaim")], ...], Meta(max_length=16, extra_json_schema=CLAIMS)
    ] = ()
    """Device claims of each pod (Dynamic Resource Allocation), which replace the extended resource."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.resourceName) && has(self.resourceClaims) && self.resourceClaims.size() > 0)",
            "resourceName and resourceClaims are mutually exclusive.",
        ),
    )


class Hardware(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Hardware for the model."""

    accelerator: Accelerator = "cpu"
    """Type of accelerator. metal means a Mac outside the cluster, for which the controller creates no pods."""
    gpu: Gpu = Gpu()
    """GPUs of each pod."""
    memory_budget: str = ""
    """Maximum memory for the engine on a Mac, such as 24Gi."""
    memory_fraction: float | None = None
    """Maximum fraction of a Mac's memory for the engine, from 0 to 1. memoryBudget takes precedence."""


class ModelResources(msgspec.Struct, frozen=True, kw_only=True):
    """Resource requirements of the model. They have no effect, because pods use the resources of the
    InferenceService."""

    cpu: str = ""
    """Amount of CPU, such as 2 or 500m."""
    memory: str = ""
    """Amount of memory, such as 4Gi."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Source of the weights, and hardware for the model."""

    source: Annotated[str, Meta(pattern=SOURCE)]
    """Source of the weights: https://..., hf://<owner>/<repository>, <owner>/<repository>[@<revision>],
    s3://<bucket>/<key>, pvc://<claim>/<path>, or a node path as file:///<path> or /<path> in a directory that the
    operator allows."""
    sha256: Annotated[str, Meta(pattern="^[a-fA-F0-9]{64}$")] = ""
    """SHA-256 of the file in hexadecimal, which is verified for every kind of source. Weights with another hash are not
    served."""
    refresh_policy: Literal["IfNotPresent", "OnChange"] = "IfNotPresent"
    """Action when the source changes. IfNotPresent reports the change in the condition SourceDrifted. OnChange
    downloads the weights again and replaces the pods that use them."""
    format: Literal["gguf", "mlx", "safetensors", "pytorch", "custom"] = "gguf"
    """Format of the weights. llamacpp serves gguf. vllm, sglang and tgi serve safetensors and pytorch."""
    quantization: str = ""
    """Quantization of the weights, such as Q4_K_M. If llama.cpp downloads a repository itself, it uses the file with
    this quantization. Otherwise, this field has no effect."""
    hardware: Hardware = Hardware()
    """Hardware for the model."""
    resources: ModelResources = ModelResources()
    """Resource requirements of the model. They have no effect, because pods use the resources of the
    InferenceService."""
    source_secret_ref: Annotated[SecretName, Meta(extra_json_schema=ATOMIC)] | None = None
    """Secret with credentials for the loader, which reads only these keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL for s3://, and HF_TOKEN for gated repositories."""
    files: Annotated[tuple[InnerPath, ...], Meta(max_length=256)] = ()
    """Files to download from a repository or a bucket directory, also as patterns such as *Q4_K_M*.gguf. The engine
    loads the first file."""
    mmproj: InnerPath = ""
    """File in the source with the projector of a multimodal model, for llama.cpp."""
    prefetch: bool = False
    """If true, the weights are downloaded to the cache even if no service reads them there. If false, the download is
    skipped if all services of the Model get the weights in another way."""
    prefetch_tolerations: tuple[Annotated[Object, core("Toleration")], ...] = ()
    """Additional tolerations of the pods that download the weights."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.mmproj) || has(self.files)", "mmproj requires files, because it comes from the same source."),
    )


class Gguf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata from the header of a GGUF file."""

    architecture: str | UnsetType = UNSET
    """Model architecture, such as llama."""
    model_name: str | UnsetType = UNSET
    """Name of the model in the file."""
    quantization: str | UnsetType = UNSET
    """Quantization of the file, such as Q4_K_M."""
    context_length: Number64 | UnsetType = UNSET
    """Context length that the model was trained for, in tokens."""
    embedding_size: Number64 | UnsetType = UNSET
    """Dimension of the embeddings."""
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
    """Ready means that services can start. Failed means that they cannot, and a condition has the reason. All other
    phases mean that work is in progress."""
    size: str | UnsetType = UNSET
    """Size of the weights, such as 3.2 GiB."""
    done_bytes: Number64 | UnsetType = UNSET
    """Number of downloaded bytes."""
    total_bytes: Number64 | UnsetType = UNSET
    """Total number of bytes to download, when known."""
    path: str | UnsetType = UNSET
    """Path of the weights in the engine's container. Empty if the engine downloads them itself."""
    cache_key: str | UnsetType = UNSET
    """Directory of the weights in the cache. Models with the same source share this directory."""
    sha256: str | UnsetType = UNSET
    """SHA-256 of the downloaded file."""
    source_e_tag: str | UnsetType = msgspec.field(default=UNSET, name="sourceETag")
    """ETag of the source when it was downloaded or first checked."""
    source_content_length: Number64 | UnsetType = UNSET
    """Size of the source in bytes when it was downloaded or first checked."""
    last_revalidated: Time | UnsetType = UNSET
    """Time of the last check for changes of the source."""
    accelerator_ready: bool | UnsetType = UNSET
    """True if a node of the cluster has the accelerator, even if the accelerator is in use."""
    gguf: Gguf | UnsetType = UNSET
    """Metadata from the header of GGUF weights."""
    staged_files: tuple[str, ...] | UnsetType = UNSET
    """Files that were downloaded from the source. Only set if the Model lists files."""
    last_updated: Time | UnsetType = UNSET
    """Time of the last change of this status."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Conditions Available, Progressing and Degraded, SourceDrifted after the first check of the source, and the
    summary conditions Ready, Reconciling and Stalled."""


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
