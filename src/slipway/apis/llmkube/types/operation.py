"""Fields for the operation of an InferenceService (``apis.llmkube.types.service``): rollouts, disruptions, objectives
and GPU sharing."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from slipway.apis.llmkube.types.model import INT32
from slipway.kube.schemas.crd import Rule, cel

NUMBER = r"^[0-9]+(\.[0-9]+)?$"
OBJECTIVE = cel(Rule("double(self) >= 50.0 && double(self) <= 99.999", "must be a number from 50 to 99.999."))


class Disruption(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Protection of the pods from node autoscalers that remove nodes."""

    protect_startup: bool = True
    """Blocks evictions with a PodDisruptionBudget until all pods are ready."""
    protect_always: bool = False
    """Always protects the pods, with Karpenter's annotation do-not-disrupt."""


class RolloutPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replacement of pods after a change. Rollouts are not deferred: a terminating pod finishes its requests, and the
    condition RolloutDeferred reports this."""

    wait_for_idle: bool = False
    """Replaces pods with GPUs one at a time, so that the other replicas answer, instead of all at once."""
    idle_timeout_seconds: Annotated[int, Meta(ge=0)] = 300
    """Seconds that a pod has for its requests. Every pod has as many as the operator allows."""
    force: bool = False
    """Disables waitForIdle."""


class GpuSharing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """GPU sharing. Modes other than exclusive are for a single GPU."""

    mode: Literal["exclusive", "shared", "partitioned"] = "exclusive"
    """exclusive is a whole GPU. partitioned is a MIG partition of an NVIDIA GPU. shared is a GPU that other pods use at
    the same time, on nodes that the operator reserves for that."""
    profile: str = ""
    """MIG profile, such as 1g.24gb, for the resource nvidia.com/mig-<profile>."""
    memory_limit_gi_b: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """GPU memory in GiB that the service should use. Informational; it is not enforced."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.mode) || self.mode != 'partitioned' || (has(self.profile) && self.profile.size() > 0)",
            "profile is required when mode is partitioned.",
        ),
        Rule(
            "!has(self.profile) || self.profile.size() == 0 || (has(self.mode) && self.mode == 'partitioned')",
            "profile is only valid when mode is partitioned.",
        ),
        Rule(
            "!has(self.memoryLimitGiB) || (has(self.mode) && self.mode == 'shared')",
            "memoryLimitGiB is only valid when mode is shared.",
        ),
    )


class GatewayName(msgspec.Struct, frozen=True, kw_only=True):
    """A Gateway of the Gateway API."""

    name: str
    """Name of the Gateway."""
    namespace: str = ""
    """Namespace of the Gateway. Empty means the service's own."""


class Gateway(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Additional model ID at the gateway."""

    enabled: bool = False
    """Enables the additional ID."""
    gateway_ref: GatewayName
    """A Gateway of Envoy AI Gateway. The controller creates no objects for it, because Slipway's gateway serves the
    model."""
    model_name: str = ""
    """The additional ID. Empty means the Model's name."""


class Slo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Service level objective. If Pyrra is installed, it creates recording rules and alerts for it."""

    name: str = ""
    """Name of the ServiceLevelObjective. Empty means <service>-<indicator>."""
    objective: Annotated[str, Meta(pattern=NUMBER, extra_json_schema=OBJECTIVE)]
    """Target percentage, such as 99.5."""
    window: Annotated[str, Meta(pattern="^[0-9]+[mhdw]$")] = "28d"
    """Time window of the objective."""
    indicator: Literal["availability", "latency"] = "availability"
    """availability measures whether pods can be scraped. latency measures request durations, with vllm only."""
    latency_threshold: Annotated[str, Meta(pattern=NUMBER)] = ""
    """Maximum seconds of a good request. Must be a bucket boundary of vLLM's histogram."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.indicator != 'latency' || has(self.latencyThreshold)",
            "latencyThreshold is required when indicator is latency.",
        ),
    )
