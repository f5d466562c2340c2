"""The parts of a service: engine, decoder and router. A runtime has them as a service does
(:mod:`slipway.apis.ome.runtime_types`, :mod:`slipway.apis.ome.service_types`), and the service's go before.

What of a pod stands beside their fields is Kubernetes' own, and stays a plain object: it is merged as such.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from slipway.apis.ome.model_types import INT64, Number64, part
from slipway.kube.core import core, inlined
from slipway.kube.crd import INT_OR_STRING
from slipway.kube.objects import Object

Metric = Literal["cpu", "memory", "concurrency", "rps", "tps"]
PROBES = tuple(f"{what}Probe.{how}.port" for what in ("liveness", "readiness") for how in ("httpGet", "tcpSocket"))
RunnerSpec = Annotated[Object, core("Container", optional=("name", *PROBES))]
POD: Object = inlined("PodSpec", ("containers", "os.name", *(f"containers[].{path}" for path in PROBES)))
"""A pod of which any part may come from elsewhere."""


class AuthenticationRef(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials by which KEDA asks Prometheus."""

    name: Annotated[str, Meta(min_length=1)]
    """Name of the TriggerAuthentication."""
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] = "TriggerAuthentication"
    """TriggerAuthentication is one of the service's namespace."""


class KedaConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How KEDA scales. It does where the annotation ome.io/autoscalerClass is keda."""

    enable_keda: bool | None = None
    """Whether KEDA scales, where the annotation says nothing."""
    prom_server_address: str = ""
    """URL of Prometheus."""
    custom_prom_query: str = ""
    """Query whose result is compared with the threshold."""
    scaling_threshold: str = ""
    """Number that the result is compared with."""
    scaling_operator: str = ""
    """GreaterThan, GreaterThanOrEqual, LessThan or LessThanOrEqual."""
    authentication_ref: AuthenticationRef | None = None
    """Credentials of Prometheus."""
    auth_modes: str = ""
    """How Prometheus is told them: basic, tls, bearer or custom, several with commas between."""


class ComponentExtensionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many pods a component has, and how they change."""

    min_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Replicas that always run. 0: none while there are no requests. Absent: 1."""
    max_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Replicas that are never exceeded. Absent or 0: 3, of a router 2. Less than minReplicas: as many as that."""
    scale_target: int | None = None
    """What replicas shall have of the metric on average: percent of cpu or memory, requests of concurrency."""
    scale_metric: Metric | None = None
    """What replicas follow. Absent: cpu."""
    container_concurrency: Number64 | None = None
    """Requests that each replica shall have, where scaleTarget says none. It limits nothing."""
    timeout_seconds: Number64 | None = None
    """Longest time of a request. It has no effect: the gateway has a limit of its own."""
    canary_traffic_percent: Annotated[int, Meta(ge=0, le=100, extra_json_schema=INT64)] | None = None
    """Percent of the requests that a changed spec gets, beside the one that is rolled out."""
    labels: dict[str, str] = {}
    """Labels of the pods."""
    annotations: dict[str, str] = {}
    """Annotations of the pods; of an engine also ome.io/deploymentMode."""
    min_available: Annotated[int | str, Meta(extra_json_schema=INT_OR_STRING)] | None = None
    """Pods, or percent of them, that nobody may take away on purpose."""
    max_unavailable: Annotated[int | str, Meta(extra_json_schema=INT_OR_STRING)] | None = None
    """Pods, or percent of them, that may be taken away on purpose. Absent: 1."""
    deployment_strategy: Annotated[Object, part("DeploymentStrategy")] | None = None
    """How new pods replace old ones, as in a Deployment."""
    keda_config: KedaConfig | None = None
    """How KEDA scales this component."""


class LeaderSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pod that leads a group of several nodes, as the fields of a pod."""

    runner: RunnerSpec | None = None
    """Its main container; what it says goes before the container of the same name."""

    inlined: ClassVar[Object] = POD


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that a leader gives work to, as the fields of a pod."""

    size: int | None = None
    """Workers of a group."""
    runner: RunnerSpec | None = None
    """Their main container; what it says goes before the container of the same name."""

    inlined: ClassVar[Object] = POD


class EngineSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """The part that computes, as the fields of a pod. Where there is a decoder: the part that reads prompts."""

    runner: RunnerSpec | None = None
    """The main container; what it says goes before the container of the same name."""
    leader: LeaderSpec | None = None
    """Where an engine spans several nodes: the pod that leads."""
    worker: WorkerSpec | None = None
    """Where an engine spans several nodes: the other pods."""
    accelerator_override: Annotated[Object, part("AcceleratorSelector")] | None = None
    """Which accelerator. AcceleratorClasses are not served: a service that names one is refused."""

    inlined: ClassVar[Object] = POD


class DecoderSpec(EngineSpec, frozen=True, kw_only=True, rename="camel"):
    """The part that writes answers, where an engine only reads prompts; as the fields of a pod."""


class RouterSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """The part that spreads requests over engines, as the fields of a pod."""

    runner: RunnerSpec | None = None
    """The main container; what it says goes before the container of the same name."""
    config: dict[str, str] = {}
    """Environment variables of the main container."""

    inlined: ClassVar[Object] = POD
