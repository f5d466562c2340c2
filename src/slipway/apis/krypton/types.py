"""The Model kind: its fields, their rules and their texts. The CustomResourceDefinition is made from this module."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipway.kube.conditions import Condition
from slipway.kube.core import core
from slipway.kube.crd import Column, CustomResource
from slipway.kube.objects import Kind, Object

KIND = Kind(group="krypton.ai", version="v1alpha1", kind="Model", plural="models")

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Resources = Annotated[Object, core("ResourceRequirements")]
EnvVar = Annotated[Object, core("EnvVar")]
EnvSource = Annotated[Object, core("EnvFromSource")]


class Source(msgspec.Struct, frozen=True):
    """Where the weights are. A gated repository needs a token: HUGGINGFACE_HUB_TOKEN or HF_TOKEN by env or envFrom."""

    huggingface: Text
    """Repository on the Hugging Face hub, such as Qwen/Qwen2.5-0.5B-Instruct-GGUF."""
    file: Text
    """GGUF file inside the repository."""


class SecretName(msgspec.Struct, frozen=True):
    """Names a Secret in the model's namespace."""

    name: str = ""
    """Name of the Secret."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What to serve and how."""

    source: Source
    runtime: Literal["llama.cpp"] = "llama.cpp"
    """The engine."""
    image: str | msgspec.UnsetType = msgspec.UNSET
    """Container image of the engine. Empty: the operator's choice, or ghcr.io/ggml-org/llama.cpp:server-v0.5.0."""
    image_pull_policy: str = "IfNotPresent"
    """Always, IfNotPresent or Never."""
    image_pull_secrets: tuple[SecretName, ...] | msgspec.UnsetType = msgspec.UNSET
    """Secrets with the credentials of the image's registry."""
    port: Annotated[int, Meta(ge=1, le=65535)] = 8080
    """Port of the engine and of the model's Service."""
    args: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Further arguments of llama-server; --host, --port, --hf-repo, --hf-file and --alias are set for you."""
    min_replicas: Count = 1
    """Replicas that always run."""
    max_replicas: Count = 1
    """Reserved for autoscaling."""
    resources: Resources | msgspec.UnsetType = msgspec.UNSET
    """Requests and limits of the engine's container, as in a pod."""
    env: tuple[EnvVar, ...] | msgspec.UnsetType = msgspec.UNSET
    """Environment variables of the engine, as in a pod."""
    env_from: tuple[EnvSource, ...] | msgspec.UnsetType = msgspec.UNSET
    """Sources of environment variables, as in a pod."""
    service_account_name: str | msgspec.UnsetType = msgspec.UNSET
    """ServiceAccount of the pods. Empty: one of the model's own, without permissions."""
    startup_timeout: str = "600s"
    """How long a start may take, the download included, as a Go duration such as 90s or 1h30m."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    phase: Literal["Pending", "Ready", "Failed"] | msgspec.UnsetType = msgspec.UNSET
    """Ready: at least one replica answers. Failed: none does, and a condition says why. Pending: on its way."""
    replicas: int | msgspec.UnsetType = msgspec.UNSET
    """Pods that exist."""
    ready_replicas: int | msgspec.UnsetType = msgspec.UNSET
    """Pods that answer."""
    url: str | msgspec.UnsetType = msgspec.UNSET
    """Base URL of the model's own OpenAI API inside the cluster."""
    model_id: str | msgspec.UnsetType = msgspec.UNSET
    """The ID that clients send. Missing if no ID leads to it."""
    observed_generation: int | msgspec.UnsetType = msgspec.UNSET
    """Generation of the spec that this status speaks of."""
    conditions: tuple[Condition, ...] | msgspec.UnsetType = msgspec.UNSET
    """Accepted, Available, Progressing and Routed, and FieldsIgnored if something has no effect; each with a reason and
    a message."""


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
