"""The GPUQuota kind of LLMKube: how many GPUs the services of some namespaces may have together. The
CustomResourceDefinition is made from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.model_types import ATOMIC, INT32, INT64, Number64, Time
from slipway.apis.llmkube.service_types import Count, Priority
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.crd import Column, CustomResource, Rule
from slipway.kube.objects import Kind

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="GPUQuota", plural="gpuquotas")


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement on labels."""

    key: str
    """Name of the label."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: tuple[str, ...] = ()
    """What In and NotIn compare with."""


class Selector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Chooses namespaces by their labels."""

    match_labels: dict[str, str] = {}
    """Labels that they have."""
    match_expressions: tuple[Requirement, ...] = ()
    """Further requirements, all of which hold."""


class GPUQuotaSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose GPUs are counted, and how many there may be."""

    selector: Annotated[Selector, Meta(extra_json_schema=ATOMIC)] | None = None
    """The namespaces with these labels, which share the quota."""
    namespace_ref: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    """The one namespace that it is for."""
    gpu_count: Annotated[int, Meta(ge=0, extra_json_schema=INT32)]
    """GPUs that services may have together: replicas, or the most that autoscaling allows, times GPUs of a pod."""
    vram_bytes: Annotated[int, Meta(ge=0, extra_json_schema=INT64)] = msgspec.field(default=0, name="vramBytes")
    """Bytes of GPU memory. It has no effect, as the condition FieldsUsed says."""
    min_priority: Priority | None = None
    """The least priority of services that are started under this quota."""
    cost_budget_ref: str = ""
    """Name of a CostBudget. It has no effect, as the condition FieldsUsed says."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.selector) != has(self.namespaceRef)", "exactly one of selector or namespaceRef must be set."),
    )


class GPUQuotaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is in use."""

    used_gpu_count: Count | UnsetType = msgspec.field(default=UNSET, name="usedGPUCount")
    """GPUs that services have, or are about to get."""
    used_vram_bytes: Number64 | UnsetType = msgspec.field(default=UNSET, name="usedVRAMBytes")
    """Always 0: nobody counts GPU memory."""
    waiting: Count | UnsetType = UNSET
    """Services that wait for room."""
    waiting_digests: tuple[str, ...] | UnsetType = UNSET
    """Digests of the uids of those services, by which each denial is counted once. Absent with more than 256."""
    admission_denials: Number64 | UnsetType = UNSET
    """How often services had to wait so far."""
    last_denial: Time | UnsetType = UNSET
    """When the last one had to."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Accepted, Exceeded and FieldsUsed, each with a reason and a message."""


GPU_QUOTA = CustomResource(
    kind=KIND,
    spec=GPUQuotaSpec,
    status=GPUQuotaStatus,
    description="How many GPUs InferenceServices may have together. Whoever may write it decides for other namespaces.",
    short_names=("gq",),
    columns=(
        Column("GPU Count", "integer", ".spec.gpuCount"),
        Column("Used GPUs", "integer", ".status.usedGPUCount"),
        Column("Waiting", "integer", ".status.waiting"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
