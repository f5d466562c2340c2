"""The LoRAAdapter kind of LLMKube: an adapter that a running InferenceService's engine loads. The CRD is generated from
this module."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.types.model import Number64, Time
from slipway.kube.objects import Kind
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.crd import Column, CustomResource

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="LoRAAdapter", plural="loraadapters")

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ServiceReference(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService in the adapter's namespace."""

    name: str
    """Name of the InferenceService."""
    namespace: str = ""
    """Namespace of the InferenceService. It must be empty or the adapter's own namespace."""


class LoRAAdapterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Adapter, and the service that loads it."""

    inference_service_ref: ServiceReference
    """InferenceService whose engine loads the adapter. The runtime of the service must be sglang or vllm."""
    name: Name
    """Name of the adapter in the engine. The model ID of the adapter is <service>:<name>."""
    path: Annotated[str, Meta(min_length=1)]
    """Directory of the adapter in the engine's container, for example on a PVC in the service's extraVolumes."""


class LoRAAdapterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the adapter."""

    loaded_path: str | UnsetType = UNSET
    """Path from which every replica has loaded the adapter."""
    last_loaded_at: Time | UnsetType = UNSET
    """Time since which all replicas have had the adapter."""
    model_id: str | UnsetType = UNSET
    """Model ID that clients send. Missing if the gateway does not serve the adapter."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Conditions Available, Loaded, Error and Routed, and the summary conditions Ready, Reconciling and Stalled."""


LORA_ADAPTER = CustomResource(
    kind=KIND,
    spec=LoRAAdapterSpec,
    status=LoRAAdapterStatus,
    description="A LoRA adapter that the running engine of an InferenceService loads.",
    short_names=("lora",),
    columns=(
        Column("Service", "string", ".spec.inferenceServiceRef.name"),
        Column("Adapter", "string", ".spec.name"),
        Column("Loaded", "string", '.status.conditions[?(@.type=="Loaded")].status'),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
