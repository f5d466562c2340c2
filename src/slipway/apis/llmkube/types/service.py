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
    """Pods is an engine metric from the custom metrics API. Resource is cpu or memory."""
    name: str
    """Name of the metric, such as llamacpp:requests_processing, or of the resource."""
    target_average_value: Quantity = ""
    """Target average over the pods, for Pods."""
    target_average_utilization: Annotated[int, Meta(extra_json_schema=INT32)] | None = None
    """Target average in percent of the pods' requests, for Resource."""


class Autoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Autoscaling of replicas."""

    max_replicas: Annotated[int, Meta(ge=1, le=100, extra_json_schema=INT32)]
    """Maximum number of replicas."""
    min_replicas: Annotated[int, Meta(ge=1, le=10, extra_json_schema=INT32)] = 1
    """Minimum number of replicas."""
    metrics: tuple[Metric, ...] = ()
    """Metrics for autoscaling. Empty means in-flight requests of the runtime, 2 per replica."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas", "minReplicas must not exceed maxReplicas."
        ),
    )


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Service of the pods."""

    port: Port = 8080
    """Port of the Service, and of the engine unless containerPort is set."""
    path: str = "/v1/chat/completions"
    """Path at the end of status.endpoint."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    node_port: Annotated[int, Meta(ge=30000, le=32767, extra_json_schema=INT32)] | None = None
    """Node port, for the types NodePort and LoadBalancer. Empty means a free one."""
    gateway: Gateway | None = None
    """Additional model ID at the gateway."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Resources of each pod."""

    cpu: Quantity = ""
    """CPUs, such as 2 or 500m."""
    memory: Quantity = ""
    """Memory, such as 8Gi."""
    host_memory: Quantity = ""
    """Memory, for weights or a KV cache outside of the GPU. Takes precedence over memory."""
    gpu: Annotated[int, Meta(ge=0, le=8, extra_json_schema=INT32)] = 0
    """Number of GPUs, if the Model does not set it."""
    gpu_memory: Quantity = ""
    """Memory that each GPU should have, such as 24Gi. Nodes with matching NVIDIA labels are preferred."""
    ephemeral_storage: Quantity = ""
    """Disk space on the node, for example for weights that are not cached. Both request and limit."""
    gpu_sharing: GpuSharing = GpuSharing()
    """GPU sharing."""


class ProbeOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Probes that replace the runtime's."""

    startup: Probe | None = None
    """Startup probe. The other probes start when it succeeds."""
    liveness: Probe | None = None
    """Liveness probe. If it fails, the container is restarted."""
    readiness: Probe | None = None
    """Readiness probe. While it fails, the pod gets no requests."""


class ModelCache(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Storage for the weights."""

    claim_name: Annotated[str, Meta(min_length=1, max_length=253)] = ""
    """An existing PersistentVolumeClaim for the weights. Empty means the one that all Models of the namespace share."""
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
    """Model to serve, and how."""

    model_ref: str
    """Name of the Model, in the same namespace."""
    runtime: Runtime = "llamacpp"
    """Engine that serves the model. generic is any image."""
    mode: Literal["chat", "embedding", "rerank"] | None = None
    """Task of the model, with llamacpp and sglang, which sets the arguments for it. Empty means the task in extraArgs
    or endpoint.path, or chat."""
    image: str = ""
    """Container image of the runtime. Required for generic and personaplex, unless the operator has set a default."""
    replicas: Annotated[int, Meta(ge=0, le=10, extra_json_schema=INT32)] = 1
    """Number of replicas. With autoscaling, the initial number."""
    suspend: bool = False
    """If true, the service has no replicas, regardless of replicas and autoscaling."""
    autoscaling: Autoscaling | None = None
    """Autoscaling of replicas."""
    endpoint: Endpoint | None = None
    """Service of the pods. Empty means the defaults, and the engine's default port."""
    resources: Resources = Resources()
    """Resources of each pod."""
    priority: Priority = "normal"
    """Priority when GPUs are scarce. It selects the PriorityClass llmkube-<priority>, and the position in the queue."""
    priority_class_name: str = ""
    """An existing PriorityClass. Takes precedence over priority."""
    eviction_protection: bool = False
    """Protects the pods from eviction with a PodDisruptionBudget."""
    disruption: Disruption | None = None
    """Protection from node autoscalers. Empty means protection during startup."""
    rollout_policy: RolloutPolicy = RolloutPolicy()
    """Replacement of pods after a change."""
    max_pod_lifetime_seconds: Annotated[int, Meta(ge=1, extra_json_schema=INT64)] | None = None
    """Maximum age of a pod. Older pods are replaced one at a time. Empty means no limit."""
    max_pod_lifetime_idle_timeout_seconds: Annotated[int, Meta(ge=0, extra_json_schema=INT64)] | None = None
    """Maximum seconds to wait for an idle pod before replacing it."""
    slo: Slo | None = None
    """Service level objective for Pyrra."""
    model_cache: ModelCache = ModelCache()
    """Storage for the weights."""
    skip_model_init: bool = False
    """If true, the pods get no weights, because the engine downloads them itself."""

    # The container.
    command: tuple[str, ...] = ()
    """Entrypoint to replace the image's."""
    args: tuple[str, ...] = ()
    """All arguments, with generic."""
    extra_args: tuple[str, ...] = ()
    """Additional arguments, after those of other fields. They override arguments that the controller would set."""
    env: tuple[Annotated[Object, core("EnvVar")], ...] = ()
    """Additional environment variables."""
    container_port: Port | None = None
    """Port of the engine. Empty means endpoint.port if set, otherwise the runtime's default."""
    bind_address: str = ""
    """Address on which the engine listens. Empty means all addresses of the pod."""
    probe_overrides: ProbeOverrides = ProbeOverrides()
    """Probes that replace the runtime's."""
    security_context: Annotated[Object, core("SecurityContext")] | None = None
    """Security context of the container, instead of the restricted one."""
    extra_volume_mounts: tuple[Annotated[Object, core("VolumeMount")], ...] = ()
    """Additional volume mounts of the container."""

    # The pods.
    pod_labels: dict[str, str] = {}
    """Additional labels of the pods."""
    pod_annotations: dict[str, str] = {}
    """Additional annotations of the pods."""
    pod_security_context: Annotated[Object, core("PodSecurityContext")] | None = None
    """Security context of the pods, instead of the restricted one."""
    image_pull_secrets: tuple[Annotated[Object, core("LocalObjectReference")], ...] = ()
    """Secrets with registry credentials."""
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
    """Additional volumes."""
    revision_history_limit: Natural | None = None
    """Number of old ReplicaSets to keep. Empty means 10."""

    # llama.cpp.
    context_size: Annotated[int, Meta(ge=128, le=2097152, extra_json_schema=INT32)] | None = None
    """Context size in tokens, shared by the slots: --ctx-size."""
    parallel_slots: Annotated[int, Meta(ge=1, le=64, extra_json_schema=INT32)] | None = None
    """Maximum number of concurrent requests: --parallel, and --max-num-seqs of vLLM."""
    batch_size: Annotated[int, Meta(ge=1, le=16384, extra_json_schema=INT32)] | None = None
    """Logical batch size in tokens: --batch-size."""
    u_batch_size: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Physical batch size in tokens: --ubatch-size."""
    flash_attention: bool = False
    """Enables flash attention on GPUs: --flash-attn."""
    jinja: bool = False
    """Uses the model's own chat template, which tools need: --jinja."""
    cache_type_k: CacheType | None = None
    """Data type of the KV cache for keys: --cache-type-k."""
    cache_type_v: CacheType | None = None
    """Data type of the KV cache for values: --cache-type-v."""
    cache_type_custom_k: str = ""
    """Data type for keys that only your own build supports. Takes precedence over cacheTypeK."""
    cache_type_custom_v: str = ""
    """Data type for values that only your own build supports. Takes precedence over cacheTypeV."""
    moe_cpu_offload: bool = msgspec.field(default=False, name="moeCPUOffload")
    """Keeps all experts in host memory: --cpu-moe."""
    moe_cpu_layers: Natural = msgspec.field(default=0, name="moeCPULayers")
    """Number of layers whose experts stay in host memory: --n-cpu-moe."""
    no_kv_offload: bool = False
    """Keeps the KV cache in host memory: --no-kv-offload."""
    no_warmup: bool = False
    """Skips the warmup run at startup: --no-warmup."""
    reasoning_budget: Natural | None = None
    """Maximum reasoning tokens before the answer: --reasoning-budget."""
    reasoning_budget_message: str = ""
    """Text that ends the reasoning when reasoningBudget is reached: --reasoning-budget-message."""
    metadata_overrides: tuple[str, ...] = ()
    """Metadata that overrides the file's, as <key>=<type>:<value>: --override-kv."""
    tensor_overrides: tuple[str, ...] = ()
    """Buffers for tensors, as <pattern>=<buffer>: --override-tensor."""
    rope_scaling: RopeScaling | None = None
    """Extends the context beyond the length that the model was trained for."""
    speculative_decoding: SpeculativeDecoding | None = None
    """Speculative decoding with a draft model or earlier text."""

    # Other runtimes.
    vllm_config: VllmConfig = VllmConfig()
    """Settings of vllm."""
    tgi_config: TgiConfig = TgiConfig()
    """Settings of tgi."""
    sglang_config: SglangConfig = SglangConfig()
    """Settings of sglang."""
    persona_plex_config: PersonaPlexConfig = PersonaPlexConfig()
    """Settings of personaplex."""

    # Programs on Macs.
    turbo_quant_bits: Annotated[Literal[3, 6, 8], Meta(extra_json_schema=INT32)] | None = None
    """Bits per value in the KV cache of oMLX."""
    hot_cache_max_size: str = ""
    """Memory for the KV cache of oMLX, such as 50GB."""
    paged_ssd_cache_dir: str = msgspec.field(default="", name="pagedSSDCacheDir")
    """Directory for the KV cache of oMLX on disk."""
    paged_ssd_cache_max_size: str = msgspec.field(default="", name="pagedSSDCacheMaxSize")
    """Maximum size of the KV cache of oMLX on disk, such as 200GB."""


class ObservedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A Model that the service uses."""

    name: str
    """Name of the Model."""
    uid: str
    """UID of the Model."""
    generation: Number64
    """Generation of the Model's spec."""
    ready: bool
    """True if the Model was ready."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Additional model ID at the gateway."""

    model_name: str | UnsetType = UNSET
    """The additional model ID."""
    route_ready: bool | UnsetType = UNSET
    """True if the gateway routes this ID to the service."""


class AdapterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRAAdapter that the engine loads."""

    name: str
    """Name of the adapter in the engine."""
    path: str
    """Directory of the adapter in the engine's container."""
    phase: Literal["Loading", "Loaded", "Failed", "Stopped"]
    """Loaded means that every replica has the adapter. Stopped means that the service has no replicas."""
    message: str | UnsetType = UNSET
    """Replica and reason of a failure."""


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the namespace's GPUQuotas by the service."""

    names: tuple[str, ...]
    """GPUQuotas, as <namespace>/<name>."""
    gpus: Count | UnsetType = UNSET
    """Number of granted GPUs."""
    reserved: Count | UnsetType = UNSET
    """Number of reserved GPUs."""
    wanted: Count | UnsetType = UNSET
    """Number of GPUs for all replicas. Greater than gpus while the service waits for quota."""


class InferenceServiceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the service."""

    phase: Phase | UnsetType = UNSET
    """Ready means that all replicas answer, Progressing that some do. WaitingForGPU means that no node has free GPUs.
    Failed means that none answers; a condition has the reason."""
    mode: str | UnsetType = UNSET
    """Task of the model: chat, embedding or rerank."""
    model_ready: bool | UnsetType = UNSET
    """True if the Model is ready."""
    observed_models: tuple[ObservedModel, ...] | UnsetType = UNSET
    """Existing Models that this status describes."""
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
    """LoRAAdapters for this service that it loads."""
    quota: QuotaStatus | UnsetType = UNSET
    """Use of the namespace's GPUQuotas, if any."""
    effective_priority: Count | UnsetType = UNSET
    """Value of the PriorityClass in use."""
    scheduling_status: str | UnsetType = UNSET
    """Reason why the pods are not scheduled, such as InsufficientGPU."""
    scheduling_message: str | UnsetType = UNSET
    """Message of the scheduler."""
    waiting_for: str | UnsetType = UNSET
    """Missing resource, such as nvidia.com/gpu: 2."""
    queue_position: Count | UnsetType = UNSET
    """Position among the services that wait for the same kind of GPU, from 1. 0 if the service is not waiting."""
    last_updated: Time | UnsetType = UNSET
    """Time of the last change of this status."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if there is none."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Accepted, Available, Progressing, Routed, Degraded and FieldsUsed, and others if applicable, such as
    GPUAvailable."""


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
