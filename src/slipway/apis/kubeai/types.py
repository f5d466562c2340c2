"""The KubeAI kind Model: its fields with their rules and descriptions. The CRD is generated from this module."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.kube.objects import Kind, Object
from slipway.kube.schemas.conditions import Condition
from slipway.kube.schemas.crd import Column, CustomResource, Rule, Scale, cel

KIND = Kind(group="kubeai.org", version="v1", kind="Model", plural="models")

NAME_LIMIT = 40
CACHED_SCHEMES = ("hf", "s3", "gs", "oss")
"""Schemes from which a cache or an adapter can be loaded."""
SCHEMES = ("hf", "pvc", "ollama", "s3", "gs", "oss", "oci")

INT32: Object = {"format": "int32"}
INT64: Object = {"format": "int64"}
ATOMIC: Object = {"x-kubernetes-map-type": "atomic"}

Engine = Literal["OLlama", "VLLM", "FasterWhisper", "Infinity", "SGLang", "LlamaCpp"]
Feature = Literal["TextGeneration", "TextEmbedding", "Reranking", "SpeechToText"]
Replicas = Annotated[int, Meta(extra_json_schema=INT32)]


def _starts(field: str, schemes: tuple[str, ...]) -> str:
    """Return the CEL expression that is true if a field begins with one of ``schemes``."""
    return " || ".join(f'{field}.startsWith("{scheme}://")' for scheme in schemes)


def _choice(schemes: tuple[str, ...], rest: str = "") -> str:
    return ", ".join(f'"{scheme}://{rest}"' for scheme in schemes[:-1]) + f' or "{schemes[-1]}://{rest}"'


class ObjectName(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ConfigMap or Secret in the Model's namespace."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the ConfigMap or Secret."""
    optional: bool | UnsetType = UNSET
    """If true, the pod starts even if the ConfigMap or Secret is missing."""


class EnvFromSource(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A ConfigMap or Secret whose keys become environment variables, as in a pod."""

    config_map_ref: Annotated[ObjectName, Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """ConfigMap whose keys become environment variables."""
    prefix: str = ""
    """Prefix for the names of the environment variables."""
    secret_ref: Annotated[ObjectName, Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """Secret whose keys become environment variables."""


class Adapter(msgspec.Struct, frozen=True):
    """A LoRA adapter, served with the model ID <model>_<adapter>."""

    name: Annotated[str, Meta(max_length=63, pattern="^[a-z0-9-]+$")]
    """Name of the adapter: lowercase letters, digits and hyphens."""
    url: Annotated[
        str,
        Meta(
            extra_json_schema=cel(
                Rule(_starts("self", CACHED_SCHEMES), f"adapter url must start with {_choice(CACHED_SCHEMES)}.")
            )
        ),
    ]
    """URL of the adapter. It begins with hf://, s3://, gs:// or oss://."""


class File(msgspec.Struct, frozen=True):
    """A file in the engine's container."""

    path: Annotated[
        str,
        Meta(
            max_length=1024,
            extra_json_schema=cel(
                Rule(
                    "self.startsWith('/') && !self.contains(':')",
                    "Path must be an absolute path, beginning with /, and must not contain a ':' character.",
                )
            ),
        ),
    ]
    """Absolute path of the file, without a colon."""
    content: Annotated[str, Meta(max_length=100000)]
    """Text of the file. A ConfigMap stores the text, so do not put secrets here."""


class PrefixHash(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of the strategy PrefixHash, which sends prompts with the same beginning to the same replica."""

    mean_load_factor: Annotated[int, Meta(ge=100)] = 125
    """Load of a replica, in percent of the mean load, above which its requests go to another replica."""
    replication: Annotated[int, Meta(extra_json_schema=cel(Rule("self == oldSelf", "replication is immutable.")))] = 20
    """Accepted for compatibility. It has no effect, because the gateway distributes prompts without a hash ring."""
    prefix_char_length: int = 100
    """Number of characters at the beginning of a prompt that the gateway hashes."""


class LoadBalancing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Strategy by which the gateway selects a replica for each request."""

    strategy: Literal["LeastLoad", "PrefixHash"] = "LeastLoad"
    """LeastLoad selects the replica with the fewest in-flight requests. PrefixHash sends prompts with the same
    beginning to the same replica, which has already cached that beginning."""
    prefix_hash: Annotated[PrefixHash, Meta(extra_json_schema={"default": {}})] = PrefixHash()
    """Settings of the strategy PrefixHash."""


class JsonPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from"}):
    """A JSON Patch operation (RFC 6902) on the pods."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    """Type of the operation."""
    path: Annotated[str, Meta(max_length=1024, pattern="^/")]
    """JSON Pointer to the field to change or test, such as /spec/hostname."""
    source: Annotated[str, Meta(max_length=1024, pattern="^/")] | UnsetType = UNSET
    """JSON Pointer to the field that is moved or copied."""
    value: Any = UNSET
    """Value to add, to replace with, or to test for."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!(self.op in ['move', 'copy']) || has(self.from)", "move and copy need from."),
    )


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Desired state of the Model."""

    url: Annotated[
        str,
        Meta(
            extra_json_schema=cel(
                Rule(_starts("self", SCHEMES), f"url must start with {_choice(SCHEMES)} and not be empty.")
            )
        ),
    ]
    """URL of the weights: hf://<owner>/<repository>, ollama://<model>, pvc://<claim>/<path>, s3://<bucket>/<path>,
    gs://<bucket>/<path>, oss://<bucket>/<path> or oci://<image>. gs and oss need a cacheProfile."""
    engine: Engine
    """Engine that serves the model."""
    features: tuple[Feature, ...]
    """Tasks that the model supports. Clients can filter the list of models by feature."""
    adapters: tuple[Adapter, ...] = ()
    """LoRA adapters. Only the engine VLLM supports adapters."""
    resource_profile: str = ""
    """Resource profile from the system configuration, and a factor for its resources, as <profile>:<count>. For
    example, nvidia-gpu-l4:2 requests two L4 GPUs."""
    cache_profile: Annotated[
        str, Meta(extra_json_schema=cel(Rule("self == oldSelf", "cacheProfile is immutable.")))
    ] = ""
    """Cache profile from the system configuration. The weights are downloaded once, to a volume that all replicas
    read."""
    image: str = ""
    """Container image of the engine. Empty means the image that the system configuration sets for this engine and
    resource profile."""
    args: tuple[str, ...] = ()
    """Additional arguments for the engine."""
    env: dict[str, str] = {}
    """Additional environment variables for the engine."""
    env_from: tuple[EnvFromSource, ...] = ()
    """ConfigMaps and Secrets whose keys become environment variables of the engine."""
    files: Annotated[tuple[File, ...], Meta(max_length=10)] = ()
    """Files to create in the engine's container."""
    priority_class_name: str = ""
    """PriorityClass of the pods."""
    replicas: Replicas | None = None
    """Number of replicas. Unless autoscalingDisabled is true, the autoscaler sets this number between minReplicas and
    maxReplicas."""
    min_replicas: Annotated[int, Meta(ge=0, extra_json_schema={**INT32, "default": 0})] = 0
    """Minimum number of replicas. 0 means that a model without requests scales to zero, and that the next request
    starts a replica."""
    max_replicas: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Maximum number of replicas. Empty means no limit."""
    autoscaling_disabled: bool = False
    """If true, the autoscaler does not change replicas, and requests do not start a replica."""
    target_requests: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] = 100
    """Target for the average number of in-flight requests per replica."""
    scale_down_delay_seconds: Annotated[int, Meta(extra_json_schema=INT64)] = 30
    """Seconds for which demand must stay low before the autoscaler removes replicas."""
    owner: str = ""
    """Value of owned_by in the list of models."""
    load_balancing: Annotated[LoadBalancing, Meta(extra_json_schema={"default": {}})] = LoadBalancing()
    """Strategy by which the gateway selects a replica for each request."""
    json_patches: Annotated[tuple[JsonPatch, ...], Meta(max_length=32)] = ()
    """JSON Patch operations (RFC 6902) on the pods. The patches of the system configuration are applied afterwards."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.cacheProfile) || {_starts('self.url', CACHED_SCHEMES)}",
            f"cacheProfile is only supported with urls of format {_choice(CACHED_SCHEMES, '...')}.",
        ),
        *(
            Rule(
                f'!self.url.startsWith("{scheme}://") || has(self.cacheProfile)',
                f'urls of format "{scheme}://..." are only supported when using a cacheProfile.',
            )
            for scheme in ("gs", "oss")
        ),
        Rule(
            "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas should be less than or equal to maxReplicas.",
        ),
        Rule(
            '!has(self.adapters) || self.engine == "VLLM"',
            "adapters are only supported with the VLLM engine. Use VLLM, or weights with the adapter merged in."
            " LlamaCpp can load one at startup with --lora FILE in args.",
        ),
        Rule("!has(oldSelf.cacheProfile) || self.url == oldSelf.url", "url is immutable when using cacheProfile."),
        Rule(
            "!has(self.files) || self.files.size() <= 1"
            " || !self.files.exists(f, self.files.filter(other, other.path == f.path).size() > 1)",
            "All file paths must be unique.",
        ),
    )


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Numbers of existing and ready pods."""

    all: Replicas
    """Number of existing pods."""
    ready: Replicas
    """Number of ready pods."""


class CacheStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of the download to the cache."""

    loaded: bool
    """True if the cache contains all weights."""
    done_bytes: Annotated[int, Meta(extra_json_schema=INT64)] | UnsetType = UNSET
    """Number of downloaded bytes."""
    total_bytes: Annotated[int, Meta(extra_json_schema=INT64)] | UnsetType = UNSET
    """Total number of bytes to download, when known."""
    message: str | UnsetType = UNSET
    """Current step of the download, or the reason why it failed."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the Model."""

    replicas: ReplicaCounts | UnsetType = UNSET
    """Numbers of existing and ready pods."""
    cache: CacheStatus | UnsetType = UNSET
    """State of the download to the cache. Only set for a Model with a cacheProfile."""
    selector: str | UnsetType = UNSET
    """Label selector of the pods, for HorizontalPodAutoscalers."""
    model_id: str | UnsetType = UNSET
    """Model ID that clients send. Missing if the gateway does not serve the model."""
    observed_generation: int | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: tuple[Condition, ...] | UnsetType = UNSET
    """Conditions Accepted, Available, Progressing and Routed, CacheLoaded with a cache, AdaptersLoaded with adapters,
    FieldsIgnored if a setting has no effect, and the summary conditions Ready, Reconciling and Stalled."""


MODEL = CustomResource(
    kind=KIND,
    spec=ModelSpec,
    status=ModelStatus,
    description="A model that the gateway serves.",
    columns=(
        Column("Engine", "string", ".spec.engine"),
        Column("URL", "string", ".spec.url"),
        Column("Replicas", "integer", ".status.replicas.all"),
        Column("Ready", "integer", ".status.replicas.ready"),
        Column("Reason", "string", '.status.conditions[?(@.type=="Available")].reason'),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    scale=Scale(".spec.replicas", ".status.replicas.all", ".status.selector"),
    validations=(Rule(f"size(self.metadata.name) <= {NAME_LIMIT}", f"name must not exceed {NAME_LIMIT} characters."),),
)
