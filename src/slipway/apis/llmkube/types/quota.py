"""The GPUQuota kind of LLMKube: a limit on the GPUs of all services in some namespaces. The CRD is generated from this
module."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.types.model import ATOMIC, INT32, INT64, Number64, Time
from slipway.apis.llmkube.types.service import Count, Priority
from slipway.kube.objects import Kind
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.crd import Column, CustomResource, Rule

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="GPUQuota", plural="gpuquotas")


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement for a label of the namespaces."""

    key: str
    """Name of the label."""
    operator: str
    """Required relation of the label to the values: In, NotIn, Exists or DoesNotExist."""
    values: tuple[str, ...] = ()
    """Values for In and NotIn."""


class Selector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A label selector for namespaces."""

    match_labels: dict[str, str] = {}
    """Labels that the namespaces must have."""
    match_expressions: tuple[Requirement, ...] = ()
    """Additional requirements, all of which a namespace must meet."""


class GPUQuotaSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Limit for the GPUs of InferenceServices."""

    selector: Annotated[Selector, Meta(extra_json_schema=ATOMIC)] | None = None
    """Labels of the namespaces that share the quota."""
    namespace_ref: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    """Name of the only namespace to which the quota applies."""
    gpu_count: Annotated[int, Meta(ge=0, extra_json_schema=INT32)]
    """Maximum total number of GPUs. Each service counts with its replicas, or its autoscaling maximum, times its GPUs
    per pod."""
    vram_bytes: Annotated[int, Meta(ge=0, extra_json_schema=INT64)] = msgspec.field(default=0, name="vramBytes")
    """GPU memory in bytes. This field has no effect, as the condition FieldsUsed reports."""
    min_priority: Priority | None = None
    """Minimum priority of services. Services with a lower priority do not start."""
    cost_budget_ref: str = ""
    """Name of a CostBudget. This field has no effect, as the condition FieldsUsed reports."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.selector) != has(self.namespaceRef)", "exactly one of selector or namespaceRef must be set."),
    )


class GPUQuotaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the quota."""

    used_gpu_count: Count | UnsetType = msgspec.field(default=UNSET, name="usedGPUCount")
    """Number of GPUs that are granted to services or reserved for them."""
    used_vram_bytes: Number64 | UnsetType = msgspec.field(default=UNSET, name="usedVRAMBytes")
    """Always 0, because GPU memory is not measured."""
    waiting: Count | UnsetType = UNSET
    """Number of services that wait for quota."""
    waiting_digests: tuple[str, ...] | UnsetType = UNSET
    """Digests of the UIDs of the services that wait for quota, so that each denial counts only once. Empty if more than
    256 services wait."""
    admission_denials: Number64 | UnsetType = UNSET
    """Total number of times that a service had to wait for quota."""
    last_denial: Time | UnsetType = UNSET
    """Last time that a service had to wait for quota."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Conditions Accepted, Exceeded and FieldsUsed, and the summary conditions Ready, Reconciling and Stalled."""


GPU_QUOTA = CustomResource(
    kind=KIND,
    spec=GPUQuotaSpec,
    status=GPUQuotaStatus,
    description="Limit for the total number of GPUs of InferenceServices. It can affect other namespaces.",
    short_names=("gq",),
    columns=(
        Column("GPU Count", "integer", ".spec.gpuCount"),
        Column("Used GPUs", "integer", ".status.usedGPUCount"),
        Column("Waiting", "integer", ".status.waiting"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
