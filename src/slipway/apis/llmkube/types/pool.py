"""The ModelPool kind of LLMKube: InferenceServices that take turns with one slot of GPUs. The CRD is generated from
this module."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.types.model import ATOMIC, INT32, Number64, Time
from slipway.kube.objects import Kind
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.crd import Column, CustomResource, list_map

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="ModelPool", plural="modelpools")

MOST_MEMBERS = 32
DURATION = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
"""A Go duration without a sign, and without the Greek letter for microseconds."""


class ServiceName(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService in the pool's namespace."""

    name: str = ""
    """Name of the InferenceService."""


class Member(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An InferenceService that shares the slot."""

    inference_service_ref: Annotated[ServiceName, Meta(extra_json_schema=ATOMIC)]
    """InferenceService that shares the slot. It has one replica while it has the slot, and otherwise none."""


class ModelPoolSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """InferenceServices that share a slot of GPUs, and the rules by which they take turns."""

    node_selector: dict[str, str] = {}
    """Labels of the nodes with the slot, which are added to the node selectors of all members."""
    gpu: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] = 1
    """Number of GPUs in the slot. This field has no effect: each InferenceService sets the number of GPUs of its
    pod."""
    swap_policy: Literal["sticky"] = "sticky"
    """sticky means that a member keeps the slot until requests wait for another member."""
    members: Annotated[
        tuple[Member, ...],
        Meta(min_length=1, max_length=MOST_MEMBERS, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ]
    """InferenceServices that share the slot. If several pools name a service, the service belongs to the oldest
    pool."""
    default: str = ""
    """Member that gets the slot if no member has it and no requests wait. Empty means that the first request selects
    the member."""
    swap_budget: Annotated[str, Meta(pattern=DURATION, max_length=64)] = "300s"
    """Maximum time that requests wait for a member, from 1s to 24h. A member with requests keeps the slot for at least
    a fifth of this time."""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of a member."""

    name: str
    """Name of the InferenceService."""
    phase: str | UnsetType = UNSET
    """Phase of the InferenceService. Empty if the service does not exist, or belongs to an older pool."""
    resident: bool | UnsetType = UNSET
    """Whether the InferenceService has the slot."""


class ModelPoolStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the pool."""

    phase: Literal["Pending", "Ready", "Swapping", "Degraded"] | UnsetType = UNSET
    """Ready means that the member with the slot answers. Pending means that no member has the slot, or that its holder
    is starting. Swapping means that the slot moves to another member. Degraded means that a condition reports a
    fault."""
    resident_member: str | UnsetType = UNSET
    """Member that has the slot."""
    resident_since: Time | UnsetType = UNSET
    """Time since which residentMember has had the slot."""
    pending_member: str | UnsetType = UNSET
    """Member that gets the slot when the pods of all other members are gone."""
    members: Annotated[tuple[MemberStatus, ...], Meta(extra_json_schema=list_map("name"))] | UnsetType = UNSET
    """State of each member."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Conditions Accepted, MembersValid and SlotAllocated, and the summary conditions Ready, Reconciling and
    Stalled."""


MODEL_POOL = CustomResource(
    kind=KIND,
    spec=ModelPoolSpec,
    status=ModelPoolStatus,
    description="InferenceServices that share one slot of GPUs: one of them runs at a time.",
    short_names=("mpool",),
    columns=(
        Column("Policy", "string", ".spec.swapPolicy"),
        Column("Resident", "string", ".status.residentMember"),
        Column("Phase", "string", ".status.phase"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
