"""The ModelPool kind of LLMKube: InferenceServices that share one slot of GPUs, which one of them has at a time. The
CustomResourceDefinition is made from this module."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.model_types import ATOMIC, INT32, Number64, Time
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.crd import Column, CustomResource, list_map
from slipway.kube.objects import Kind

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="ModelPool", plural="modelpools")

MOST_MEMBERS = 32
DURATION = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
"""Go's, without signs and microseconds by their Greek letter."""


class ServiceName(msgspec.Struct, frozen=True, kw_only=True):
    """Names an InferenceService of the pool's namespace."""

    name: str = ""
    """Its name."""


class Member(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An InferenceService that shares the slot."""

    inference_service_ref: Annotated[ServiceName, Meta(extra_json_schema=ATOMIC)]
    """The InferenceService. It has one replica while it has the slot, and none else."""


class ModelPoolSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who shares the slot, and how it changes hands."""

    node_selector: dict[str, str] = {}
    """Labels of the nodes with the slot: the pods of all members get them in addition to their own."""
    gpu: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] = 1
    """GPUs of the slot, for people: what a pod takes, its service says."""
    swap_policy: Literal["sticky"] = "sticky"
    """sticky: whoever has the slot keeps it until requests wait for another member."""
    members: Annotated[
        tuple[Member, ...],
        Meta(min_length=1, max_length=MOST_MEMBERS, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ]
    """The InferenceServices that share the slot. A service is a member of one pool: of several, the oldest has it."""
    default: str = ""
    """The member that gets the slot while nobody has it and no requests wait. Absent: none."""
    swap_budget: Annotated[str, Meta(pattern=DURATION, max_length=64)] = "300s"
    """How long requests wait for a member to get the slot and to start, as a Go duration such as 300s. A member with
    requests has the slot for a fifth of it, at least, before another one gets it."""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a member is."""

    name: str
    """Of the InferenceService."""
    phase: str | UnsetType = UNSET
    """Its phase."""
    resident: bool | UnsetType = UNSET
    """Whether it has the slot."""


class ModelPoolStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who has the slot."""

    phase: Literal["Pending", "Ready", "Swapping", "Degraded"] | UnsetType = UNSET
    """Ready: the member with the slot answers. Swapping: it finishes what it has begun, and another one gets the slot.
    Pending: nobody has the slot, or whoever has it starts. Degraded: a condition says what is wrong."""
    resident_member: str | UnsetType = UNSET
    """The member that has the slot."""
    resident_since: Time | UnsetType = UNSET
    """Since when it has the slot."""
    pending_member: str | UnsetType = UNSET
    """The member that gets the slot next, while the other one leaves it."""
    members: Annotated[tuple[MemberStatus, ...], Meta(extra_json_schema=list_map("name"))] | UnsetType = UNSET
    """How each of them is."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Accepted, MembersValid, SlotAllocated and SwapDeferred, each with a reason and a message."""


MODEL_POOL = CustomResource(
    kind=KIND,
    spec=ModelPoolSpec,
    status=ModelPoolStatus,
    description="InferenceServices that share one slot of GPUs: one of them has it at a time.",
    short_names=("mpool",),
    columns=(
        Column("Policy", "string", ".spec.swapPolicy"),
        Column("Resident", "string", ".status.residentMember"),
        Column("Phase", "string", ".status.phase"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
