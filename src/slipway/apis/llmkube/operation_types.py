"""How an InferenceService (:mod:`slipway.apis.llmkube.service_types`) is operated: rollouts, disruptions, objectives,
and whom it shares a GPU with."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from slipway.apis.llmkube.model_types import INT32
from slipway.kube.crd import Rule, cel

NUMBER = r"^[0-9]+(\.[0-9]+)?$"
OBJECTIVE = cel(Rule("double(self) >= 50.0 && double(self) <= 99.999", "must be a number from 50 to 99.999."))


class Disruption(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When nodes are not taken from under the pods, as node autoscalers do to save some."""

    protect_startup: bool = True
    """Not while pods start: a PodDisruptionBudget lets none be evicted until all answer."""
    protect_always: bool = False
    """Never: the pods carry Karpenter's annotation do-not-disrupt."""


class RolloutPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When pods are replaced after a change. Nobody asks replicas whether they are idle: a pod that is replaced goes on
    answering for a while, and the condition RolloutDeferred says so."""

    wait_for_idle: bool = False
    """Whether pods should be replaced only once they work on nothing."""
    idle_timeout_seconds: Annotated[int, Meta(ge=0)] = 300
    """How long that should be waited for."""
    force: bool = False
    """Whether waitForIdle is not to count."""


class GpuSharing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the pod has its GPU for itself. Other modes than exclusive are for one GPU."""

    mode: Literal["exclusive", "shared", "partitioned"] = "exclusive"
    """partitioned: a part of an NVIDIA GPU, by MIG. shared: a GPU that others use at the same time, on the nodes that
    the operator keeps for that."""
    profile: str = ""
    """The part, such as 1g.24gb: the resource nvidia.com/mig-<profile>."""
    memory_limit_gi_b: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """GiB of the GPU that the service means to use, for people to read: nothing holds it to that."""

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
    """Names a Gateway of the Gateway API."""

    name: str
    """Name of the Gateway."""
    namespace: str = ""
    """Its namespace. Absent: the service's own."""


class Gateway(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A further name of the model at the gateway."""

    enabled: bool = False
    """Whether it has the name."""
    gateway_ref: GatewayName
    """A Gateway of Envoy AI Gateway, for which nothing is made: Slipway's own gateway serves the model."""
    model_name: str = ""
    """The name. Absent: that of the Model."""


class Slo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An objective for which Pyrra, where it is installed, makes recording rules and alerts."""

    name: str = ""
    """Name of the ServiceLevelObjective. Absent: <service>-<indicator>."""
    objective: Annotated[str, Meta(pattern=NUMBER, extra_json_schema=OBJECTIVE)]
    """Percent that are to be good, such as 99.5."""
    window: Annotated[str, Meta(pattern="^[0-9]+[mhdw]$")] = "28d"
    """The time that it is about."""
    indicator: Literal["availability", "latency"] = "availability"
    """What is looked at: whether pods can be scraped, or, with vllm alone, how long requests take."""
    latency_threshold: Annotated[str, Meta(pattern=NUMBER)] = ""
    """Seconds within which a request is good: one of the bounds of vLLM's histogram."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.indicator != 'latency' || has(self.latencyThreshold)",
            "latencyThreshold is required when indicator is latency.",
        ),
    )
