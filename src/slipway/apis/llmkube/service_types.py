"""The InferenceService kind of LLMKube: how a Model of its namespace is served. The CustomResourceDefinition is made
from this module and its two neighbours."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.model_types import INT32, INT64, REASON, Number64, Time
from slipway.apis.llmkube.operation_types import Disruption, Gateway, GpuSharing, RolloutPolicy, Slo
from slipway.apis.llmkube.runtime_types import (
    PersonaPlexConfig,
    RopeScaling,
    SglangConfig,
    SpeculativeDecoding,
    TgiConfig,
    VllmConfig,
)
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.core import core
from slipway.kube.crd import Column, CustomResource, Rule, Scale
from slipway.kube.objects import Kind, Object

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="InferenceService", plural="inferenceservices")

Runtime = Literal["llamacpp", "personaplex", "vllm", "tgi", "generic", "sglang", "llamacpp-router"]
Priority = Literal["critical", "high", "normal", "low", "batch"]
CacheType = Literal["f16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"]
Phase = Literal["Pending", "Creating", "Progressing", "Ready", "WaitingForGPU", "Stopped", "Suspended", "Failed"]

QUANTITY = (
    r"^((([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)?$"
)
"""Kubernetes' quantities that are not negative, or nothing."""

Quantity = Annotated[str, Meta(pattern=QUANTITY)]
Port = Annotated[int, Meta(ge=1, le=65535, extra_json_schema=INT32)]
Natural = Annotated[int, Meta(ge=0, extra_json_schema=INT32)]
Count = Annotated[int, Meta(extra_json_schema=INT32)]
Probe = Annotated[Object, core("Probe")]


class Metric(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A number that replicas shall have on average."""

    type: Literal["Pods", "Resource"]
    """Pods: a metric of the program, by way of the custom metrics API. Resource: cpu or memory."""
    name: str
    """Name of the metric, such as llamacpp:requests_processing, or of the resource."""
    target_average_value: Quantity = ""
    """Average over the pods, for Pods."""
    target_average_utilization: Annotated[int, Meta(extra_json_schema=INT32)] | None = None
    """Average over the pods in percent of what they ask for, for Resource."""


class Autoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replicas that follow the load."""

    max_replicas: Annotated[int, Meta(ge=1, le=100, extra_json_schema=INT32)]
    """Replicas that are never exceeded."""
    min_replicas: Annotated[int, Meta(ge=1, le=10, extra_json_schema=INT32)] = 1
    """Replicas that always run."""
    metrics: tuple[Metric, ...] = ()
    """What is looked at. Absent: the requests that the runtime works on, 2 for each replica."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas", "minReplicas must not exceed maxReplicas."
        ),
    )


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The Service in front of the pods."""

    port: Port = 8080
    """Port of the Service, and of the program too where containerPort says nothing."""
    path: str = "/v1/chat/completions"
    """Path that status.endpoint ends with."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    node_port: Annotated[int, Meta(ge=30000, le=32767, extra_json_schema=INT32)] | None = None
    """Port of every node, with the types NodePort and LoadBalancer. Absent: one that is free."""
    gateway: Gateway | None = None
    """A further name of the model at the gateway."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What each pod asks for."""

    cpu: Quantity = ""
    """CPUs, such as 2 or 500m."""
    memory: Quantity = ""
    """Memory, such as 8Gi."""
    host_memory: Quantity = ""
    """Memory as well, for weights or a KV cache that stay out of the GPU. Goes before memory."""
    gpu: Annotated[int, Meta(ge=0, le=8, extra_json_schema=INT32)] = 0
    """GPUs, where the Model does not say how many."""
    gpu_memory: Quantity = ""
    """Memory that each GPU should have, such as 24Gi: nodes whose labels tell of such GPUs, NVIDIA's, are preferred."""
    ephemeral_storage: Quantity = ""
    """Disk space of the node, such as for weights that are not cached. Asked for, and not exceeded."""
    gpu_sharing: GpuSharing = GpuSharing()
    """Whether the pod has its GPU for itself."""


class ProbeOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Probes in place of the runtime's, each as a whole."""

    startup: Probe | None = None
    """Until it succeeds the others wait."""
    liveness: Probe | None = None
    """When it fails the container is started anew."""
    readiness: Probe | None = None
    """While it fails the pod gets no requests."""


class ModelCache(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the pods find the weights."""

    claim_name: Annotated[str, Meta(min_length=1, max_length=253)] = ""
    """A PersistentVolumeClaim of yours that the weights are loaded into. Absent: the one that all Models of the
    namespace share."""
    persistence: Literal["Cached", "Ephemeral"] | None = None
    """Cached: loaded once, into a claim. Ephemeral: every pod loads them for itself when it starts. Absent: what the
    operator chose, which is Cached unless changed."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.persistence) && self.persistence == 'Ephemeral' && has(self.claimName))",
            "claimName is a claim to keep weights in, persistence Ephemeral keeps none: only one of them can be.",
        ),
    )


class InferenceServiceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which Model is served, and how."""

    model_ref: str
    """Name of the Model, in the same namespace."""
    runtime: Runtime = "llamacpp"
    """The program that serves it. generic is any image of yours."""
    mode: Literal["chat", "embedding", "rerank"] | None = None
    """What the model does, with llamacpp and sglang: the arguments for it are set. Absent: chat, or what extraArgs and
    endpoint.path say."""
    image: str = ""
    """Container image of the runtime. generic and personaplex have none of their own, unless the operator gave them
    one."""
    replicas: Annotated[int, Meta(ge=0, le=10, extra_json_schema=INT32)] = 1
    """Replicas that are wanted; the first number of them with autoscaling."""
    suspend: bool = False
    """Whether the service has no replicas for now, whatever replicas and autoscaling say."""
    autoscaling: Autoscaling | None = None
    """Replicas that follow the load."""
    endpoint: Endpoint | None = None
    """The Service in front of the pods. Absent: the same as an empty one, and the program has its own port."""
    resources: Resources = Resources()
    """What each pod asks for."""
    priority: Priority = "normal"
    """Whose pods go first when there are not GPUs for all: the PriorityClass llmkube-<priority>, and the place in the
    queue."""
    priority_class_name: str = ""
    """A PriorityClass of yours. Goes before priority."""
    eviction_protection: bool = False
    """Whether the service is spared when others are put off a node: a PodDisruptionBudget keeps its pods."""
    disruption: Disruption | None = None
    """When nodes are not taken from under the pods. Absent: not while pods start."""
    rollout_policy: RolloutPolicy = RolloutPolicy()
    """When pods are replaced after a change."""
    max_pod_lifetime_seconds: Annotated[int, Meta(ge=1, extra_json_schema=INT64)] | None = None
    """Age at which a pod is replaced by a new one, one at a time. Absent: it may have any."""
    max_pod_lifetime_idle_timeout_seconds: Annotated[int, Meta(ge=0, extra_json_schema=INT64)] | None = None
    """How long that should wait for an idle pod."""
    slo: Slo | None = None
    """An objective for Pyrra."""
    model_cache: ModelCache = ModelCache()
    """Where the pods find the weights."""
    skip_model_init: bool = False
    """Whether no weights are put into the pods, as the program fetches them itself."""

    # The container.
    command: tuple[str, ...] = ()
    """Entrypoint in place of the image's."""
    args: tuple[str, ...] = ()
    """All arguments, with generic."""
    extra_args: tuple[str, ...] = ()
    """Further arguments, after those of the fields below. One that is given here is not set for you."""
    env: tuple[Annotated[Object, core("EnvVar")], ...] = ()
    """Further environment variables."""
    container_port: Port | None = None
    """Port of the program. Absent: endpoint.port where that is set, else the runtime's own."""
    bind_address: str = ""
    """Address that the program listens on. Absent: every address of the pod."""
    probe_overrides: ProbeOverrides = ProbeOverrides()
    """Probes in place of the runtime's."""
    security_context: Annotated[Object, core("SecurityContext")] | None = None
    """Security settings of the container, in place of the restricted ones."""
    extra_volume_mounts: tuple[Annotated[Object, core("VolumeMount")], ...] = ()
    """Further places where the container finds volumes."""

    # The pods.
    pod_labels: dict[str, str] = {}
    """Further labels of the pods."""
    pod_annotations: dict[str, str] = {}
    """Further annotations of the pods."""
    pod_security_context: Annotated[Object, core("PodSecurityContext")] | None = None
    """Security settings of the pods, in place of the restricted ones."""
    image_pull_secrets: tuple[Annotated[Object, core("LocalObjectReference")], ...] = ()
    """Secrets with the credentials of the image's registry."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes that pods may go to."""
    tolerations: tuple[Annotated[Object, core("Toleration")], ...] = ()
    """Taints that pods tolerate, beside that of the GPUs."""
    affinity: Annotated[Object, core("Affinity")] | None = None
    """Which nodes and which neighbours pods want."""
    topology_spread_constraints: tuple[Annotated[Object, core("TopologySpreadConstraint")], ...] = ()
    """How replicas are spread over nodes and zones."""
    runtime_class_name: str = ""
    """RuntimeClass of the pods."""
    extra_volumes: tuple[Annotated[Object, core("Volume")], ...] = ()
    """Further volumes."""
    revision_history_limit: Natural | None = None
    """Former ReplicaSets that are kept. Absent: 10."""

    # llama.cpp.
    context_size: Annotated[int, Meta(ge=128, le=2097152, extra_json_schema=INT32)] | None = None
    """Tokens of context, shared by the slots: --ctx-size."""
    parallel_slots: Annotated[int, Meta(ge=1, le=64, extra_json_schema=INT32)] | None = None
    """Requests at a time: --parallel, and --max-num-seqs of vLLM."""
    batch_size: Annotated[int, Meta(ge=1, le=16384, extra_json_schema=INT32)] | None = None
    """Tokens of a prompt in one logical batch: --batch-size."""
    u_batch_size: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Tokens of a prompt that are computed at once: --ubatch-size."""
    flash_attention: bool = False
    """Flash attention, where there are GPUs: --flash-attn."""
    jinja: bool = False
    """The model's own chat template, which tools need: --jinja."""
    cache_type_k: CacheType | None = None
    """Type of the numbers in the KV cache, for keys: --cache-type-k."""
    cache_type_v: CacheType | None = None
    """The same for values: --cache-type-v."""
    cache_type_custom_k: str = ""
    """Another type for keys, which a build of your own knows. Goes before cacheTypeK."""
    cache_type_custom_v: str = ""
    """Another type for values. Goes before cacheTypeV."""
    moe_cpu_offload: bool = msgspec.field(default=False, name="moeCPUOffload")
    """The experts of a mixture stay in the host's memory: --cpu-moe."""
    moe_cpu_layers: Natural = msgspec.field(default=0, name="moeCPULayers")
    """The experts of so many layers stay there: --n-cpu-moe."""
    no_kv_offload: bool = False
    """The KV cache stays in the host's memory: --no-kv-offload."""
    no_warmup: bool = False
    """No first run at the start, for nobody: --no-warmup."""
    reasoning_budget: Natural | None = None
    """Most tokens that it thinks before it answers: --reasoning-budget."""
    reasoning_budget_message: str = ""
    """Text that ends its thinking there: --reasoning-budget-message."""
    metadata_overrides: tuple[str, ...] = ()
    """Metadata in place of the file's, each <key>=<type>:<value>: --override-kv."""
    tensor_overrides: tuple[str, ...] = ()
    """Where tensors are kept, each <pattern>=<buffer>: --override-tensor."""
    rope_scaling: RopeScaling | None = None
    """Stretches the positions beyond the context that the model was trained for."""
    speculative_decoding: SpeculativeDecoding | None = None
    """A small model, or what was written before, proposes tokens, and the model checks them."""

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
    """Bits of a number in the KV cache of oMLX."""
    hot_cache_max_size: str = ""
    """Memory for the KV cache of oMLX, such as 50GB."""
    paged_ssd_cache_dir: str = msgspec.field(default="", name="pagedSSDCacheDir")
    """Folder for the KV cache of oMLX on disk."""
    paged_ssd_cache_max_size: str = msgspec.field(default="", name="pagedSSDCacheMaxSize")
    """Size of that, such as 200GB."""


class ObservedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A Model as the service has seen it."""

    name: str
    """Name of the Model."""
    uid: str
    """Identity of the Model, which another one of its name has not."""
    generation: Number64
    """Generation of its spec."""
    ready: bool
    """Whether it was ready."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The further name at the gateway."""

    model_name: str | UnsetType = UNSET
    """The name by which requests ask for the model."""
    route_ready: bool | UnsetType = UNSET
    """Whether the gateway leads requests for it to this service."""


class AdapterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRAAdapter that the engine loads."""

    name: str
    """Its name at the engine."""
    path: str
    """Its folder in the engine's container."""
    phase: Literal["Loading", "Loaded", "Failed", "Stopped"]
    """Loaded: every replica has it. Stopped: there are no replicas."""
    message: str | UnsetType = UNSET
    """Where it failed, and why."""


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The service's part of the GPUQuotas of its namespace."""

    names: tuple[str, ...]
    """The GPUQuotas, each <namespace>/<name>."""
    gpus: Count | UnsetType = UNSET
    """GPUs that it was granted."""
    reserved: Count | UnsetType = UNSET
    """GPUs that are set aside for it."""
    wanted: Count | UnsetType = UNSET
    """GPUs that it is to have, with all replicas: more than gpus while it waits for room."""


class InferenceServiceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    phase: Phase | UnsetType = UNSET
    """Ready: all replicas answer. Progressing: some do. WaitingForGPU: no node has GPUs free. Failed: none answers, and
    a condition says why."""
    mode: str | UnsetType = UNSET
    """What the model does: chat, embedding or rerank."""
    model_ready: bool | UnsetType = UNSET
    """Whether the Model is ready."""
    observed_models: tuple[ObservedModel, ...] | UnsetType = UNSET
    """The Models that this status speaks of. One that is not there is not among them."""
    replicas: Count | UnsetType = UNSET
    """Replicas that there are."""
    desired_replicas: Count | UnsetType = UNSET
    """Replicas that are wanted now."""
    ready_replicas: Count | UnsetType = UNSET
    """Replicas that answer."""
    selector: str | UnsetType = UNSET
    """Label selector of the pods, which a HorizontalPodAutoscaler needs to find their metrics."""
    endpoint: str | UnsetType = UNSET
    """URL of the service inside the cluster."""
    gateway: GatewayStatus | UnsetType = UNSET
    """The further name at the gateway, where there is one."""
    adapters: tuple[AdapterStatus, ...] | UnsetType = UNSET
    """The LoRAAdapters that name this service, as far as it loads them."""
    quota: QuotaStatus | UnsetType = UNSET
    """Its part of the GPUQuotas of its namespace, where there are any."""
    effective_priority: Count | UnsetType = UNSET
    """Number of the PriorityClass that counts."""
    scheduling_status: str | UnsetType = UNSET
    """Why no node takes the pods, such as InsufficientGPU."""
    scheduling_message: str | UnsetType = UNSET
    """The scheduler's words for it."""
    waiting_for: str | UnsetType = UNSET
    """What is missing, such as nvidia.com/gpu: 2."""
    queue_position: Count | UnsetType = UNSET
    """Place among the services that wait for the same kind of GPU, from 1; 0 for one that does not wait."""
    last_updated: Time | UnsetType = UNSET
    """When this status last changed."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if no ID leads to it."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Accepted, Available, Progressing, Routed, Degraded, FieldsUsed, and others where they apply, such as
    GPUAvailable; each with a reason and a message."""


INFERENCE_SERVICE = CustomResource(
    kind=KIND,
    spec=InferenceServiceSpec,
    status=InferenceServiceStatus,
    description="A Model that is served behind the gateway.",
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
