"""The InferenceService kind of LLMKube: how a Model of its namespace is served. The CRD is generated from this module,
``operation`` and ``runtime``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.types.model import INT32, INT64, REASON, Number64, Time
from slipway.apis.llmkube.types.operation import Disruption, Gateway, GpuSharing, RolloutPolicy, Slo
from slipway.apis.llmkube.types.runtime import (
    PersonaPlexConfig,
    RopeScaling,
    SglangConfig,
    SpeculativeDecoding,
    TgiConfig,
    VllmConfig,
)
from slipway.kube.objects import Kind, Object
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.core import core
from slipway.kube.schemas.crd import Column, CustomResource, Rule, Scale

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="InferenceService", plural="inferenceservices")

Runtime = Literal["llamacpp", "personaplex", "vllm", "tgi", "generic", "sglang", "llamacpp-router"]
Priority = Literal["critical", "high", "normal", "low", "batch"]
CacheType = Literal["f16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"]
Phase = Literal["Pending", "Creating", "Progressing", "Ready", "WaitingForGPU", "Stopped", "Suspended", "Failed"]

QUANTITY = (
    r"^((([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)?$"
)
"""Pattern of non-negative Kubernetes quantities. It also matches the empty string."""

Quantity = Annotated[str, Meta(pattern=QUANTITY)]
Port = Annotated[int, Meta(ge=1, le=65535, extra_json_schema=INT32)]
Natural = Annotated[int, Meta(ge=0, extra_json_schema=INT32)]
Count = Annotated[int, Meta(extra_json_schema=INT32)]
Probe = Annotated[Object, core("Probe")]


class Metric(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A metric with a target value."""

    type: Literal["Pods", "Resource"]
    """Pods means a metric of the engine from the custom metrics API. Resource means cpu or memory."""
    name: str
    """Name of the metric, such as llamacpp:requests_processing, or of the resource."""
    target_average_value: Quantity = ""
    """Target for the average per pod. Required for the type Pods."""
    target_average_utilization: Annotated[int, Meta(extra_json_schema=INT32)] | None = None
    """Target for the average usage, in percent of the pods' requests. Required for the type Resource."""


class Autoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Autoscaling of replicas."""

    max_replicas: Annotated[int, Meta(ge=1, le=100, extra_json_schema=INT32)]
    """Maximum number of replicas."""
    min_replicas: Annotated[int, Meta(ge=1, le=10, extra_json_schema=INT32)] = 1
    """Minimum number of replicas."""
    metrics: tuple[Metric, ...] = ()
    """Metrics that the autoscaler follows. Empty means a target of two in-flight requests per replica."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas", "minReplicas must not exceed maxReplicas."
        ),
    )


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Kubernetes Service of the pods."""

    port: Port = 8080
    """Port of the Service, and of the engine unless containerPort is set."""
    path: str = "/v1/chat/completions"
    """Path at the end of status.endpoint."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Kubernetes Service."""
    node_port: Annotated[int, Meta(ge=30000, le=32767, extra_json_schema=INT32)] | None = None
    """Node port for the types NodePort and LoadBalancer. Empty means that Kubernetes selects a free port."""
    gateway: Gateway | None = None
    """Additional model ID at the gateway."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Resource requests of each pod."""

    cpu: Quantity = ""
    """CPU request, such as 2 or 500m."""
    memory: Quantity = ""
    """Memory request, such as 8Gi."""
    host_memory: Quantity = ""
    """Memory request for weights or a KV cache outside the GPU. It takes precedence over memory."""
    gpu: Annotated[int, Meta(ge=0, le=8, extra_json_schema=INT32)] = 0
    """Number of GPUs per pod, if the Model does not set hardware.gpu.count."""
    gpu_memory: Quantity = ""
    """Memory that each GPU should have, such as 24Gi. The scheduler prefers nodes with matching NVIDIA labels."""
    ephemeral_storage: Quantity = ""
    """Request and limit for disk space on the node, for example for weights that are not cached."""
    gpu_sharing: GpuSharing = GpuSharing()
    """Sharing of GPUs between pods."""


class ProbeOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Probes that replace those of the runtime."""

    startup: Probe | None = None
    """Startup probe. The other probes start when it succeeds."""
    liveness: Probe | None = None
    """Liveness probe. If it fails, the container is restarted."""
    readiness: Probe | None = None
    """Readiness probe. While it fails, the pod gets no requests."""


class ModelCache(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Storage for the weights."""

    claim_name: Annotated[str, Meta(min_length=1, max_length=253)] = ""
    """Name of an existing PersistentVolumeClaim for the weights. Empty means the claim that all Models of the namespace
    share."""
    persistence: Literal["Cached", "Ephemeral"] | None = None
    """Cached downloads the weights once into a PersistentVolumeClaim. Ephemeral downloads them in every pod. Empty
    means the operator's setting, by default Cached."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.persistence) && self.persistence == 'Ephemeral' && has(self.claimName))",
            "claimName and persistence: Ephemeral are mutually exclusive.",
        ),
    )


class InferenceServiceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Model to serve, the engine that serves it, and the pods of the engine."""

    model_ref: str
    """Name of the Model, in the same namespace."""
    runtime: Runtime = "llamacpp"
    """Engine that serves the model. generic means any container image."""
    mode: Literal["chat", "embedding", "rerank"] | None = None
    """Task of the model, which determines arguments of llamacpp and sglang. Empty means the task that extraArgs or
    endpoint.path imply, otherwise chat."""
    image: str = ""
    """Container image of the runtime. Required for generic and personaplex, unless the operator sets a default."""
    replicas: Annotated[int, Meta(ge=0, le=10, extra_json_schema=INT32)] = 1
    """Number of replicas. With autoscaling, this is the initial number."""
    suspend: bool = False
    """If true, the service has no replicas, regardless of replicas and autoscaling."""
    autoscaling: Autoscaling | None = None
    """Autoscaling of replicas."""
    endpoint: Endpoint | None = None
    """Kubernetes Service of the pods. Empty means the defaults, and the engine's default port."""
    resources: Resources = Resources()
    """Resource requests of each pod."""
    priority: Priority = "normal"
    """Priority when GPUs are scarce. It determines the PriorityClass (llmkube-<priority>) and the position in the
    queue."""
    priority_class_name: str = ""
    """Name of an existing PriorityClass, which takes precedence over priority."""
    eviction_protection: bool = False
    """If true, a PodDisruptionBudget blocks evictions of the pods."""
    disruption: Disruption | None = None
    """Protection of the pods from node autoscalers. Empty means protection during startup."""
    rollout_policy: RolloutPolicy = RolloutPolicy()
    """Replacement of pods after a change."""
    max_pod_lifetime_seconds: Annotated[int, Meta(ge=1, extra_json_schema=INT64)] | None = None
    """Maximum age of a pod in seconds. Older pods are replaced one at a time. Empty means no limit."""
    max_pod_lifetime_idle_timeout_seconds: Annotated[int, Meta(ge=0, extra_json_schema=INT64)] | None = None
    """Maximum seconds to wait for an idle pod. This field has no effect: the operator sets how long a terminating pod
    may finish its requests."""
    slo: Slo | None = None
    """Service level objective, for Pyrra."""
    model_cache: ModelCache = ModelCache()
    """Storage for the weights."""
    skip_model_init: bool = False
    """If true, the controller adds no weights to the pods. The engine must load them itself."""

    # The container.
    command: tuple[str, ...] = ()
    """Command that replaces the image's entrypoint."""
    args: tuple[str, ...] = ()
    """All arguments of the runtime generic. For other runtimes, use extraArgs."""
    extra_args: tuple[str, ...] = ()
    """Additional arguments for all runtimes except generic. They replace arguments that other fields or the controller
    would set."""
    env: tuple[Annotated[Object, core("EnvVar")], ...] = ()
    """Additional environment variables of the container."""
    container_port: Port | None = None
    """Port of the engine. Empty means endpoint.port, or the runtime's default port if endpoint is not set."""
    bind_address: str = ""
    """Address on which the engine listens. Empty means all addresses of the pod."""
    probe_overrides: ProbeOverrides = ProbeOverrides()
    """Probes that replace those of the runtime."""
    security_context: Annotated[Object, core("SecurityContext")] | None = None
    """Security context of the container, which replaces the restricted default."""
    extra_volume_mounts: tuple[Annotated[Object, core("VolumeMount")], ...] = ()
    """Additional volume mounts of the container."""

    # The pods.
    pod_labels: dict[str, str] = {}
    """Additional labels of the pods."""
    pod_annotations: dict[str, str] = {}
    """Additional annotations of the pods."""
    pod_security_context: Annotated[Object, core("PodSecurityContext")] | None = None
    """Security context of the pods, which replaces the restricted default."""
    image_pull_secrets: tuple[Annotated[Object, core("LocalObjectReference")], ...] = ()
    """Secrets with credentials for the image registry."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes that may run the pods."""
    tolerations: tuple[Annotated[Object, core("Toleration")], ...] = ()
    """Additional tolerations of the pods."""
    affinity: Annotated[Object, core("Affinity")] | None = None
    """Affinity of the pods."""
    topology_spread_constraints: tuple[Annotated[Object, core("TopologySpreadConstraint")], ...] = ()
    """Distribution of replicas over nodes and zones."""
    runtime_class_name: str = ""
    """RuntimeClass of the pods."""
    extra_volumes: tuple[Annotated[Object, core("Volume")], ...] = ()
    """Additional volumes of the pods."""
    revision_history_limit: Natural | None = None
    """Number of old ReplicaSets to keep. Empty means 10."""

    # llama.cpp.
    context_size: Annotated[int, Meta(ge=128, le=2097152, extra_json_schema=INT32)] | None = None
    """Context size in tokens, which all parallel slots share: --ctx-size."""
    parallel_slots: Annotated[int, Meta(ge=1, le=64, extra_json_schema=INT32)] | None = None
    """Maximum number of concurrent requests: --parallel of llama.cpp, --max-num-seqs of vLLM."""
    batch_size: Annotated[int, Meta(ge=1, le=16384, extra_json_schema=INT32)] | None = None
    """Logical batch size in tokens: --batch-size."""
    u_batch_size: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Physical batch size in tokens: --ubatch-size."""
    flash_attention: bool = False
    """Enables flash attention on GPUs: --flash-attn."""
    jinja: bool = False
    """Uses the model's own chat template, which tool calls require: --jinja."""
    cache_type_k: CacheType | None = None
    """Data type of the KV cache for keys: --cache-type-k."""
    cache_type_v: CacheType | None = None
    """Data type of the KV cache for values: --cache-type-v."""
    cache_type_custom_k: str = ""
    """Custom data type of the KV cache for keys, for builds that support it. It takes precedence over cacheTypeK."""
    cache_type_custom_v: str = ""
    """Custom data type of the KV cache for values, for builds that support it. It takes precedence over cacheTypeV."""
    moe_cpu_offload: bool = msgspec.field(default=False, name="moeCPUOffload")
    """Keeps the weights of all experts in host memory: --cpu-moe."""
    moe_cpu_layers: Natural = msgspec.field(default=0, name="moeCPULayers")
    """Number of layers whose experts stay in host memory: --n-cpu-moe."""
    no_kv_offload: bool = False
    """Keeps the KV cache in host memory: --no-kv-offload."""
    no_warmup: bool = False
    """Skips the warmup run at startup: --no-warmup."""
    reasoning_budget: Natural | None = None
    """Maximum number of reasoning tokens before the answer: --reasoning-budget."""
    reasoning_budget_message: str = ""
    """Text that ends the reasoning when reasoningBudget is reached: --reasoning-budget-message."""
    metadata_overrides: tuple[str, ...] = ()
    """Values that override metadata of the model file, as <key>=<type>:<value>: --override-kv."""
    tensor_overrides: tuple[str, ...] = ()
    """Buffer types for tensors, as <pattern>=<buffer type>: --override-tensor."""
    rope_scaling: RopeScaling | None = None
    """RoPE scaling, which extends the context of llama.cpp beyond the length that the model was trained for."""
    speculative_decoding: SpeculativeDecoding | None = None
    """Speculative decoding of llama.cpp, with a draft model or earlier text."""

    # Other runtimes.
    vllm_config: VllmConfig = VllmConfig()
    """Settings of vLLM, for the runtime vllm."""
    tgi_config: TgiConfig = TgiConfig()
    """Settings of Text Generation Inference, for the runtime tgi."""
    sglang_config: SglangConfig = SglangConfig()
    """Settings of SGLang, for the runtime sglang."""
    persona_plex_config: PersonaPlexConfig = PersonaPlexConfig()
    """Settings of PersonaPlex, for the runtime personaplex."""

    # Programs on Macs.
    turbo_quant_bits: Annotated[Literal[3, 6, 8], Meta(extra_json_schema=INT32)] | None = None
    """Bits per value in the KV cache of oMLX on a Mac. This field has no effect in the cluster."""
    hot_cache_max_size: str = ""
    """Memory for the KV cache of oMLX on a Mac, such as 50GB. This field has no effect in the cluster."""
    paged_ssd_cache_dir: str = msgspec.field(default="", name="pagedSSDCacheDir")
    """Directory on disk for the KV cache of oMLX on a Mac. This field has no effect in the cluster."""
    paged_ssd_cache_max_size: str = msgspec.field(default="", name="pagedSSDCacheMaxSize")
    """Maximum size on disk of the KV cache of oMLX on a Mac, such as 200GB. This field has no effect in the cluster."""


class ObservedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A Model that the service uses."""

    name: str
    """Name of the Model."""
    uid: str
    """UID of the Model."""
    generation: Number64
    """Generation of the Model that this status describes."""
    ready: bool
    """True if the Model was ready when this status was written."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Additional model ID at the gateway."""

    model_name: str | UnsetType = UNSET
    """Additional model ID."""
    route_ready: bool | UnsetType = UNSET
    """True if the gateway routes the additional model ID to the service."""


class AdapterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRAAdapter that the engine loads."""

    name: str
    """Name of the adapter in the engine."""
    path: str
    """Directory of the adapter in the engine's container."""
    phase: Literal["Loading", "Loaded", "Failed", "Stopped"]
    """Loaded means that every replica has the adapter. Stopped means that the service has no replicas."""
    message: str | UnsetType = UNSET
    """Pod that could not load the adapter, and the reason."""


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of the service in the GPUQuotas of its namespace."""

    names: tuple[str, ...]
    """GPUQuotas that apply to the service, as <namespace>/<name>."""
    gpus: Count | UnsetType = UNSET
    """Number of GPUs that the quotas grant to the service."""
    reserved: Count | UnsetType = UNSET
    """Number of GPUs that are reserved for the service, but not granted yet."""
    wanted: Count | UnsetType = UNSET
    """Number of GPUs that the service needs for all replicas. Greater than gpus while the service waits for quota."""


class InferenceServiceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the service."""

    phase: Phase | UnsetType = UNSET
    """Ready means that all replicas answer, and Progressing that only some do. WaitingForGPU means that no node has
    free GPUs. Failed means that no replica answers, and a condition has the reason."""
    mode: str | UnsetType = UNSET
    """Task of the model: chat, embedding or rerank."""
    model_ready: bool | UnsetType = UNSET
    """True if the Model is ready."""
    observed_models: tuple[ObservedModel, ...] | UnsetType = UNSET
    """Models that the service uses, in the state that this status describes."""
    replicas: Count | UnsetType = UNSET
    """Number of existing replicas."""
    desired_replicas: Count | UnsetType = UNSET
    """Desired number of replicas."""
    ready_replicas: Count | UnsetType = UNSET
    """Number of ready replicas."""
    selector: str | UnsetType = UNSET
    """Label selector of the pods, for HorizontalPodAutoscalers."""
    endpoint: str | UnsetType = UNSET
    """URL of the service in the cluster."""
    gateway: GatewayStatus | UnsetType = UNSET
    """Additional model ID at the gateway, if any."""
    adapters: tuple[AdapterStatus, ...] | UnsetType = UNSET
    """LoRAAdapters that the service loads."""
    quota: QuotaStatus | UnsetType = UNSET
    """GPUs of the service in the GPUQuotas of its namespace, if there are any."""
    effective_priority: Count | UnsetType = UNSET
    """Value of the pods' PriorityClass."""
    scheduling_status: str | UnsetType = UNSET
    """Reason why the pods are not scheduled, such as InsufficientGPU."""
    scheduling_message: str | UnsetType = UNSET
    """Message from the scheduler."""
    waiting_for: str | UnsetType = UNSET
    """Resource that the pods are waiting for, with the number per pod, such as nvidia.com/gpu: 2."""
    queue_position: Count | UnsetType = UNSET
    """Position among the services that wait for the same kind of GPU, from 1. 0 if the service is not waiting."""
    last_updated: Time | UnsetType = UNSET
    """Time of the last change of this status."""
    model_id: str | UnsetType = UNSET
    """Model ID that clients send. Missing if the gateway does not serve the model."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Conditions Accepted, Available, Progressing, Routed, Degraded and FieldsUsed, others if they apply, such as
    GPUAvailable, and the summary conditions Ready, Reconciling and Stalled."""


INFERENCE_SERVICE = CustomResource(
    kind=KIND,
    spec=InferenceServiceSpec,
    status=InferenceServiceStatus,
    description="A Model that the gateway serves.",
    short_names=("isvc",),
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Model", "string", ".spec.modelRef"),
        Column("Replicas", "string", ".status.readyReplicas"),
        Column("Desired", "integer", ".status.desiredReplicas", priority=1),
        Column("Reason", "string", REASON),
        Column("Queue", "integer", ".status.queuePosition", priority=1),
        Column("Priority", "string", ".spec.priority", priority=1),
        Column("Endpoint", "string", ".status.endpoint"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
)
