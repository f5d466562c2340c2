"""The LoRAAdapter kind of LLMKube: an adapter that the engine of a running InferenceService loads. The
CustomResourceDefinition is made from this module."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.model_types import Number64, Time
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.crd import Column, CustomResource
from slipway.kube.objects import Kind

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="LoRAAdapter", plural="loraadapters")

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ServiceReference(msgspec.Struct, frozen=True, kw_only=True):
    """Names an InferenceService."""

    name: str
    """Its name."""
    namespace: str = ""
    """Its namespace, which has to be the adapter's own. Absent: that."""


class LoRAAdapterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which adapter is loaded, and by which service."""

    inference_service_ref: ServiceReference
    """The InferenceService whose engine loads it; its runtime is sglang or vllm."""
    name: Name
    """Name of the adapter at the engine. Requests ask for <service>:<name>."""
    path: Annotated[str, Meta(min_length=1)]
    """Its folder in the engine's container, such as one of a claim in the service's extraVolumes."""


class LoRAAdapterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    loaded_path: str | UnsetType = UNSET
    """The path that every replica has loaded it from."""
    last_loaded_at: Time | UnsetType = UNSET
    """Since when all of them have it."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if no ID leads to it."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Available, Loaded, Error and Routed, each with a reason and a message."""


LORA_ADAPTER = CustomResource(
    kind=KIND,
    spec=LoRAAdapterSpec,
    status=LoRAAdapterStatus,
    description="A LoRA adapter that the engine of an InferenceService loads while it runs.",
    short_names=("lora",),
    columns=(
        Column("Service", "string", ".spec.inferenceServiceRef.name"),
        Column("Adapter", "string", ".spec.name"),
        Column("Loaded", "string", '.status.conditions[?(@.type=="Loaded")].status'),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
