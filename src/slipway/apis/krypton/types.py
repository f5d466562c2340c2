"""The Model kind: its fields with their rules and descriptions. The CRD is generated from this module."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipway.kube.objects import Kind, Object
from slipway.kube.schemas.conditions import Condition
from slipway.kube.schemas.core import core
from slipway.kube.schemas.crd import Column, CustomResource

KIND = Kind(group="krypton.ai", version="v1alpha1", kind="Model", plural="models")

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Resources = Annotated[Object, core("ResourceRequirements")]
EnvVar = Annotated[Object, core("EnvVar")]
EnvSource = Annotated[Object, core("EnvFromSource")]


class Source(msgspec.Struct, frozen=True):
    """Repository on the Hugging Face Hub with the weights. For a gated repository, env or envFrom must provide a token
    as HUGGINGFACE_HUB_TOKEN or HF_TOKEN."""

    huggingface: Text
    """Repository on the Hugging Face Hub, such as Qwen/Qwen2.5-0.5B-Instruct-GGUF."""
    file: Text
    """GGUF file in the repository. For a split file, name the first part, such as model-00001-of-00003.gguf."""


class SecretName(msgspec.Struct, frozen=True):
    """A Secret in the Model's namespace."""

    name: str = ""
    """Name of the Secret."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Desired state of the Model."""

    source: Source
    runtime: Literal["llama.cpp"] = "llama.cpp"
    """Engine that serves the model."""
    image: str | msgspec.UnsetType = msgspec.UNSET
    """Container image of the engine. Empty means the operator's default, or ghcr.io/ggml-org/llama.cpp:server-v0.5.0 if
    the operator sets none."""
    image_pull_policy: str = "IfNotPresent"
    """Pull policy of the image: Always, IfNotPresent or Never."""
    image_pull_secrets: tuple[SecretName, ...] | msgspec.UnsetType = msgspec.UNSET
    """Secrets with credentials for the image registry."""
    port: Annotated[int, Meta(ge=1, le=65535)] = 8080
    """Port of the engine and of the Model's Service."""
    args: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Additional arguments for llama-server. The controller sets --host, --port, --hf-repo, --hf-file and --alias."""
    min_replicas: Count = 1
    """Number of replicas. Models of this kind are not autoscaled."""
    max_replicas: Count = 1
    """Reserved for autoscaling. This field has no effect."""
    resources: Resources | msgspec.UnsetType = msgspec.UNSET
    """Resource requests and limits of the engine's container, as in a pod."""
    env: tuple[EnvVar, ...] | msgspec.UnsetType = msgspec.UNSET
    """Environment variables of the engine, as in a pod."""
    env_from: tuple[EnvSource, ...] | msgspec.UnsetType = msgspec.UNSET
    """ConfigMaps and Secrets whose keys become environment variables of the engine, as in a pod."""
    service_account_name: str | msgspec.UnsetType = msgspec.UNSET
    """ServiceAccount of the pods. Empty means a dedicated ServiceAccount without permissions."""
    startup_timeout: str = "600s"
    """Maximum time for a pod to start, including the download, as a Go duration such as 90s or 1h30m."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the Model."""

    phase: Literal["Pending", "Ready", "Failed"] | msgspec.UnsetType = msgspec.UNSET
    """Ready means that at least one replica answers. Failed means that no replica answers, and a condition has the
    reason. Pending means that the Model is starting."""
    replicas: int | msgspec.UnsetType = msgspec.UNSET
    """Number of existing pods."""
    ready_replicas: int | msgspec.UnsetType = msgspec.UNSET
    """Number of ready pods."""
    url: str | msgspec.UnsetType = msgspec.UNSET
    """Base URL of the Model's OpenAI-compatible API inside the cluster."""
    model_id: str | msgspec.UnsetType = msgspec.UNSET
    """Model ID that clients send. Missing if the gateway does not serve the model."""
    observed_generation: int | msgspec.UnsetType = msgspec.UNSET
    """The spec generation that this status describes."""
    conditions: tuple[Condition, ...] | msgspec.UnsetType = msgspec.UNSET
    """Conditions Accepted, Available, Progressing and Routed, FieldsIgnored if a field has no effect, and the summary
    conditions Ready, Reconciling and Stalled."""


MODEL = CustomResource(
    kind=KIND,
    spec=ModelSpec,
    status=ModelStatus,
    short_names=("mdl",),
    columns=(
        Column("Runtime", "string", ".spec.runtime"),
        Column("Source", "string", ".spec.source.huggingface"),
        Column("Phase", "string", ".status.phase"),
        Column("Replicas", "integer", ".status.replicas"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Reason", "string", '.status.conditions[?(@.type=="Available")].reason', priority=1),
        Column("URL", "string", ".status.url", priority=1),
    ),
)
