"""The Model kind of KubeAI: its fields, their rules and their texts. The CustomResourceDefinition is made from this
module."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.kube.conditions import Condition
from slipway.kube.crd import Column, CustomResource, Rule, Scale, cel
from slipway.kube.objects import Kind, Object

KIND = Kind(group="kubeai.org", version="v1", kind="Model", plural="models")

NAME_LIMIT = 40
CACHED_SCHEMES = ("hf", "s3", "gs", "oss")
"""Urls that a cache, or an adapter, can be filled from."""
SCHEMES = ("hf", "pvc", "ollama", "s3", "gs", "oss", "oci")

INT32: Object = {"format": "int32"}
INT64: Object = {"format": "int64"}
ATOMIC: Object = {"x-kubernetes-map-type": "atomic"}

Engine = Literal["OLlama", "VLLM", "FasterWhisper", "Infinity", "SGLang", "LlamaCpp"]
Feature = Literal["TextGeneration", "TextEmbedding", "Reranking", "SpeechToText"]
Replicas = Annotated[int, Meta(extra_json_schema=INT32)]


def _starts(field: str, schemes: tuple[str, ...]) -> str:
    """The CEL condition that a field begins with one of these schemes."""
    return " || ".join(f'{field}.startsWith("{scheme}://")' for scheme in schemes)


def _choice(schemes: tuple[str, ...], rest: str = "") -> str:
    return ", ".join(f'"{scheme}://{rest}"' for scheme in schemes[:-1]) + f' or "{schemes[-1]}://{rest}"'


class ObjectName(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names a ConfigMap or Secret in the Model's namespace."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the object."""
    optional: bool | UnsetType = UNSET
    """Whether the pod may start without it."""


class EnvFromSource(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A ConfigMap or Secret whose keys become environment variables, as in a pod."""

    config_map_ref: Annotated[ObjectName, Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """The ConfigMap."""
    prefix: str = ""
    """Put before every key."""
    secret_ref: Annotated[ObjectName, Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """The Secret."""


class Adapter(msgspec.Struct, frozen=True):
    """A LoRA adapter that is served beside the model, under the id <model>_<adapter>."""

    name: Annotated[str, Meta(max_length=63, pattern="^[a-z0-9-]+$")]
    """Lower-case letters, digits and hyphens."""
    url: Annotated[
        str,
        Meta(
            extra_json_schema=cel(
                Rule(_starts("self", CACHED_SCHEMES), f"adapter url must start with {_choice(CACHED_SCHEMES)}.")
            )
        ),
    ]
    """Where the adapter is: hf://, s3://, gs:// or oss://."""


class File(msgspec.Struct, frozen=True):
    """A file that the engine finds in its container."""

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
    """Absolute path of the file."""
    content: Annotated[str, Meta(max_length=100000)]
    """The text itself. It is kept in a ConfigMap, so it is no place for secrets."""


class PrefixHash(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Consistent hashing with bounded loads over the beginning of a prompt."""

    mean_load_factor: Annotated[int, Meta(ge=100)] = 125
    """Percent of the mean load that no replica may exceed while another one can take the request."""
    replication: Annotated[int, Meta(extra_json_schema=cel(Rule("self == oldSelf", "replication is immutable.")))] = 20
    """Taken for the sake of manifests, and without effect: no hash ring is needed to spread prompts evenly."""
    prefix_char_length: int = 100
    """Characters of the prompt that are hashed."""


class LoadBalancing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a replica is chosen for a request."""

    strategy: Literal["LeastLoad", "PrefixHash"] = "LeastLoad"
    """LeastLoad: the one with the fewest requests in flight. PrefixHash: prompts that begin alike meet the same
    replica, which still has their beginning in its cache."""
    prefix_hash: Annotated[PrefixHash, Meta(extra_json_schema={"default": {}})] = PrefixHash()
    """Read with the strategy PrefixHash only."""


class JsonPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from"}):
    """One operation of RFC 6902 on the pod."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    """What is done."""
    path: Annotated[str, Meta(max_length=1024, pattern="^/")]
    """Where, such as /spec/hostname."""
    source: Annotated[str, Meta(max_length=1024, pattern="^/")] | UnsetType = UNSET
    """The place that move and copy read."""
    value: Any = UNSET
    """What add and replace put there, and test expects."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!(self.op in ['move', 'copy']) || has(self.from)", "move and copy need from."),
    )


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What to serve and how."""

    url: Annotated[
        str,
        Meta(
            extra_json_schema=cel(
                Rule(_starts("self", SCHEMES), f"url must start with {_choice(SCHEMES)} and not be empty.")
            )
        ),
    ]
    """Where the weights are: hf://<owner>/<repository>, ollama://<model>, pvc://<claim>/<path>, s3://<bucket>/<path>,
    gs://<bucket>/<path>, oss://<bucket>/<path> or oci://<image>. gs and oss need a cacheProfile."""
    engine: Engine
    """The program that serves the model."""
    features: tuple[Feature, ...]
    """What the model can do, for the model list's filter."""
    adapters: tuple[Adapter, ...] = ()
    """LoRA adapters, with the engine VLLM."""
    resource_profile: str = ""
    """<profile>:<count>: a resource profile of the system configuration, and how many times its resources are asked
    for. nvidia-gpu-l4:2 is two L4."""
    cache_profile: Annotated[
        str, Meta(extra_json_schema=cel(Rule("self == oldSelf", "cacheProfile is immutable.")))
    ] = ""
    """A cache profile of the system configuration: the weights are loaded once and every replica reads them there."""
    image: str = ""
    """Container image of the engine. Empty: the system configuration's for this engine and resource profile."""
    args: tuple[str, ...] = ()
    """Further arguments of the engine."""
    env: dict[str, str] = {}
    """Further environment variables of the engine."""
    env_from: tuple[EnvFromSource, ...] = ()
    """ConfigMaps and Secrets whose keys become environment variables of the engine."""
    files: Annotated[tuple[File, ...], Meta(max_length=10)] = ()
    """Files that the engine finds in its container."""
    priority_class_name: str = ""
    """PriorityClass of the pods."""
    replicas: Replicas | None = None
    """Replicas that are wanted now. Follows the requests, between minReplicas and maxReplicas, unless
    autoscalingDisabled is true."""
    min_replicas: Annotated[int, Meta(ge=0, extra_json_schema={**INT32, "default": 0})] = 0
    """Replicas that always run. With 0 a model that nobody asks has none; the next request starts one."""
    max_replicas: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Replicas that are never exceeded. Absent: no limit."""
    autoscaling_disabled: bool = False
    """Whether replicas stays as you set it."""
    target_requests: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] = 100
    """Requests in flight that one replica shall have on average."""
    scale_down_delay_seconds: Annotated[int, Meta(extra_json_schema=INT64)] = 30
    """How long fewer replicas must have been enough before any goes."""
    owner: str = ""
    """owned_by of the model in the list of models."""
    load_balancing: Annotated[LoadBalancing, Meta(extra_json_schema={"default": {}})] = LoadBalancing()
    """How a replica is chosen for a request."""
    json_patches: Annotated[tuple[JsonPatch, ...], Meta(max_length=32)] = ()
    """Changes of the pods (RFC 6902), before those of the system configuration."""

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
            "adapters are only supported with the VLLM engine. Take that, or weights that have the adapter merged in;"
            " LlamaCpp can load one when it starts, by args: --lora and its file.",
        ),
        Rule("!has(oldSelf.cacheProfile) || self.url == oldSelf.url", "url is immutable when using cacheProfile."),
        Rule(
            "!has(self.files) || self.files.size() <= 1"
            " || !self.files.exists(f, self.files.filter(other, other.path == f.path).size() > 1)",
            "All file paths must be unique.",
        ),
    )


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Pods of the model."""

    all: Replicas
    """Pods that exist."""
    ready: Replicas
    """Pods that answer."""


class CacheStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far the cache is filled."""

    loaded: bool
    """Whether the weights are complete in the cache."""
    done_bytes: Annotated[int, Meta(extra_json_schema=INT64)] | UnsetType = UNSET
    """Bytes that are there."""
    total_bytes: Annotated[int, Meta(extra_json_schema=INT64)] | UnsetType = UNSET
    """Bytes that there will be, once that is known."""
    message: str | UnsetType = UNSET
    """What is being done, or what went wrong."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    replicas: ReplicaCounts | UnsetType = UNSET
    """How many pods there are."""
    cache: CacheStatus | UnsetType = UNSET
    """How far the cache is filled, with a cacheProfile."""
    selector: str | UnsetType = UNSET
    """Label selector of the pods, which a HorizontalPodAutoscaler needs to find their metrics."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if no ID leads to it."""
    observed_generation: int | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: tuple[Condition, ...] | UnsetType = UNSET
    """Accepted, Available, Progressing, Routed, CacheLoaded and AdaptersLoaded where there is a cache or an adapter,
    SourceFound if it may sleep, and FieldsIgnored where something has no effect; each with a reason and a message."""


MODEL = CustomResource(
    kind=KIND,
    spec=ModelSpec,
    status=ModelStatus,
    description="A model that is served behind the gateway.",
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
