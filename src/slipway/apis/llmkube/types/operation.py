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
    """If true, a PodDisruptionBudget blocks evictions until all pods are ready."""
    protect_always: bool = False
    """If true, the pods always have Karpenter's annotation karpenter.sh/do-not-disrupt."""


class RolloutPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replacement of pods after a change. A rollout starts at once, and a terminating pod finishes its requests, as the
    condition RolloutDeferred reports."""

    wait_for_idle: bool = False
    """If true, pods with GPUs are replaced one at a time instead of all at once, so that other replicas continue to
    answer."""
    idle_timeout_seconds: Annotated[int, Meta(ge=0)] = 300
    """Maximum seconds to wait for an idle pod. This field has no effect: the operator sets how long a terminating pod
    may finish its requests."""
    force: bool = False
    """If true, waitForIdle has no effect."""


class GpuSharing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Sharing of GPUs between pods. The modes shared and partitioned require exactly one GPU per pod."""

    mode: Literal["exclusive", "shared", "partitioned"] = "exclusive"
    """exclusive means a whole GPU. partitioned means a MIG partition of an NVIDIA GPU. shared means a GPU that other
    pods use at the same time, on nodes that the operator reserves for shared GPUs."""
    profile: str = ""
    """MIG profile, such as 1g.24gb, for the resource nvidia.com/mig-<profile>."""
    memory_limit_gi_b: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """GPU memory in GiB that the service should use. This limit is not enforced."""

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
    """Namespace of the Gateway. Empty means the namespace of the resource."""


class Gateway(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Additional model ID at the gateway."""

    enabled: bool = False
    """Enables the additional model ID."""
    gateway_ref: GatewayName
    """Gateway of Envoy AI Gateway. This field has no effect, because Slipway's gateway serves the model."""
    model_name: str = ""
    """Additional model ID. Empty means the Model's name."""


class Slo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Service level objective. If Pyrra is installed, it creates recording rules and alerts for the objective."""

    name: str = ""
    """Name of the ServiceLevelObjective. Empty means <service>-<indicator>."""
    objective: Annotated[str, Meta(pattern=NUMBER, extra_json_schema=OBJECTIVE)]
    """Target in percent, from 50 to 99.999."""
    window: Annotated[str, Meta(pattern="^[0-9]+[mhdw]$")] = "28d"
    """Time window of the objective in minutes, hours, days or weeks, such as 28d."""
    indicator: Literal["availability", "latency"] = "availability"
    """availability measures whether pods can be scraped. latency measures request durations, and requires the runtime
    vllm."""
    latency_threshold: Annotated[str, Meta(pattern=NUMBER)] = ""
    """Maximum duration of a good request in seconds. It must be a bucket boundary of vLLM's latency histogram."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.indicator != 'latency' || has(self.latencyThreshold)",
            "latencyThreshold is required when indicator is latency.",
        ),
    )
