"""The Model kind of LLMKube: weights, where they come from and what hardware they want. The CustomResourceDefinition is
made from this module; :mod:`slipway.apis.llmkube.service_types` has the kind that serves them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.core import core
from slipway.kube.crd import Column, CustomResource, Rule, cel
from slipway.kube.objects import Kind, Object

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
    Rule("!self.startsWith('/')", "must be a path inside the source, and not begin with /."),
    Rule("!self.split('/').exists(part, part in ['', '.', '..'])", "must not have empty parts, nor . or .. as parts."),
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
    """Names a Secret of the Model's namespace."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the Secret."""


class Sharding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the model is spread over the GPUs of one pod, with llama.cpp."""

    strategy: Strategy = "layer"
    """layer gives each GPU whole layers; row, and tensor as another word for it, a part of every tensor; none uses one
    GPU only. pipeline is the same as layer."""
    layer_split: tuple[str, ...] = ()
    """The layers of each GPU, such as 0-24 and 25-39. Absent, or not one range for each GPU: the same share for all."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The GPUs of one pod."""

    enabled: bool = False
    """Whether the model is meant for GPUs. It asks for none by itself: count does."""
    count: Annotated[int, Meta(ge=0, le=8, extra_json_schema=INT32)] = 0
    """GPUs of each pod. 0: as many as the InferenceService asks for."""
    memory: str = ""
    """Memory that each GPU should have, such as 16Gi, for people to read."""
    vendor: Vendor = "nvidia"
    """Whose GPUs: which resource a pod asks for, and which taint it tolerates."""
    layers: Annotated[int, Meta(ge=-1, extra_json_schema=INT32)] = 0
    """Layers that are kept in GPU memory, with llama.cpp. 0 or -1: all of them."""
    sharding: Sharding = Sharding()
    """How the model is spread, where there are several."""
    resource_name: ResourceName = ""
    """The extended resource to ask for, in place of the vendor's own."""
    toleration_key: ResourceName = ""
    """Key of the taint that pods tolerate. Absent: the name of the resource."""
    runtime: Literal["vulkan", "rocm"] | None = None
    """How the program computes on AMD GPUs, where it shares them by way of their device files."""
    resource_claims: Annotated[
        tuple[Annotated[Object, core("PodResourceClaim")], ...], Meta(max_length=16, extra_json_schema=CLAIMS)
    ] = ()
    """Claims of devices that each pod has, in place of an extended resource: dynamic resource allocation."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.resourceName) && has(self.resourceClaims) && self.resourceClaims.size() > 0)",
            "Only one of resourceName and resourceClaims can be.",
        ),
    )


class Hardware(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the model is computed on."""

    accelerator: Accelerator = "cpu"
    """metal is a Mac outside the cluster: nothing is made inside of it for such a Model."""
    gpu: Gpu = Gpu()
    """The GPUs of one pod."""
    memory_budget: str = ""
    """Most memory that the program may take on a Mac, such as 24Gi."""
    memory_fraction: float | None = None
    """Part of a Mac's memory that the program may take, from 0 to 1, where there is no memoryBudget."""


class ModelResources(msgspec.Struct, frozen=True, kw_only=True):
    """What the model was said to need; the InferenceService's resources are those that count."""

    cpu: str = ""
    """CPUs, such as 2 or 500m."""
    memory: str = ""
    """Memory, such as 4Gi."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the weights are, and what they are to be computed on."""

    source: Annotated[str, Meta(pattern=SOURCE)]
    """Where the weights are: https://..., hf://<owner>/<repository>, <owner>/<repository>[@<revision>],
    s3://<bucket>/<key>, pvc://<claim>/<path>, or a path of the host, as file:///<path> or /<path>, below the folders
    that the operator allows."""
    sha256: Annotated[str, Meta(pattern="^[a-fA-F0-9]{64}$")] = ""
    """SHA-256 of the file, in hexadecimal. Checked for every kind of source; other weights are not served."""
    refresh_policy: Literal["IfNotPresent", "OnChange"] = "IfNotPresent"
    """What happens when the source changes: IfNotPresent says so in the condition SourceDrifted, OnChange loads the
    weights again and replaces the pods that read them."""
    format: Literal["gguf", "mlx", "safetensors", "pytorch", "custom"] = "gguf"
    """Format of the weights. llamacpp serves gguf, vllm, sglang and tgi serve safetensors and pytorch."""
    quantization: str = ""
    """How the weights are quantized, such as Q4_K_M, for people to read."""
    hardware: Hardware = Hardware()
    """What the model is computed on."""
    resources: ModelResources = ModelResources()
    """What the model was said to need; the InferenceService's resources are those that count."""
    source_secret_ref: Annotated[SecretName, Meta(extra_json_schema=ATOMIC)] | None = None
    """Secret whose keys become environment variables of the loader: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_REGION and AWS_ENDPOINT_URL for s3://, HF_TOKEN for gated repositories."""
    files: Annotated[tuple[InnerPath, ...], Meta(max_length=256)] = ()
    """Files of the source to load, where it is a repository or a folder of a bucket. The first one is what the program
    is given; further ones are its other parts."""
    mmproj: InnerPath = ""
    """File of the source with the projector of a multimodal model, for llama.cpp."""
    prefetch: bool = False
    """Whether the weights are loaded into the cache also where all services have them otherwise. Without it they are
    loaded as soon as there is the Model, unless that is so."""
    prefetch_tolerations: tuple[Annotated[Object, core("Toleration")], ...] = ()
    """Taints that the pods tolerate which load the weights, beside that of the GPUs."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.mmproj) || has(self.files)", "mmproj is a file of the same source as files, which is missing."),
    )


class Gguf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the header of a GGUF file says."""

    architecture: str | UnsetType = UNSET
    """Architecture, such as llama."""
    model_name: str | UnsetType = UNSET
    """Name that its makers gave it."""
    quantization: str | UnsetType = UNSET
    """File type, such as Q4_K_M."""
    context_length: Number64 | UnsetType = UNSET
    """Tokens of context that it was trained for."""
    embedding_size: Number64 | UnsetType = UNSET
    """Numbers of an embedding."""
    layer_count: Number64 | UnsetType = UNSET
    """Blocks of the network."""
    head_count: Number64 | UnsetType = UNSET
    """Attention heads of a block."""
    tensor_count: Number64 | UnsetType = UNSET
    """Tensors in the file."""
    file_version: Annotated[int, Meta(extra_json_schema=INT32)] | UnsetType = UNSET
    """Version of the GGUF format."""
    license: str | UnsetType = UNSET
    """Licence of the weights."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    phase: Literal["Pending", "Downloading", "Copying", "Ready", "Failed"] | UnsetType = UNSET
    """Ready: services can be started. Failed: they cannot, and a condition says why. The others: on the way."""
    size: str | UnsetType = UNSET
    """Size of the weights, such as 3.2 GiB."""
    done_bytes: Number64 | UnsetType = UNSET
    """Bytes that are loaded."""
    total_bytes: Number64 | UnsetType = UNSET
    """Bytes that there will be, once that is known."""
    path: str | UnsetType = UNSET
    """Where the program finds the weights in its container. Absent where it fetches them itself."""
    cache_key: str | UnsetType = UNSET
    """Folder of the cache that the weights are in; Models of the same source share it."""
    sha256: str | UnsetType = UNSET
    """SHA-256 of the file that is loaded."""
    source_e_tag: str | UnsetType = msgspec.field(default=UNSET, name="sourceETag")
    """ETag of the source when it was loaded, or first looked at."""
    source_content_length: Number64 | UnsetType = UNSET
    """Bytes of the source at that time."""
    last_revalidated: Time | UnsetType = UNSET
    """When the source was last asked whether it has changed."""
    accelerator_ready: bool | UnsetType = UNSET
    """Whether some node of the cluster has the accelerator. That one is free shows only when a pod asks for it."""
    gguf: Gguf | UnsetType = UNSET
    """What the header of the weights says, where they are GGUF."""
    staged_files: tuple[str, ...] | UnsetType = UNSET
    """The files of the source that are loaded, where the Model names some."""
    last_updated: Time | UnsetType = UNSET
    """When this status last changed."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Available, Progressing, Degraded, and SourceDrifted where it applies; each with a reason and a message."""


MODEL = CustomResource(
    kind=KIND,
    spec=ModelSpec,
    status=ModelStatus,
    description="Weights that InferenceServices of the same namespace serve.",
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
