"""The components of a service: engine, decoder and router. Runtimes have the same components
(``apis.ome.types.runtime``), and the fields of a service (``apis.ome.types.service``) take precedence.

All fields without a type in this module are Kubernetes pod fields. They stay plain objects, and are merged like pod
fields.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from slipway.apis.ome.types.model import INT64, Number64, part
from slipway.kube.objects import Object
from slipway.kube.schemas.core import core, inlined
from slipway.kube.schemas.crd import INT_OR_STRING

Metric = Literal["cpu", "memory", "concurrency", "rps", "tps"]
PROBES = tuple(f"{what}Probe.{how}.port" for what in ("liveness", "readiness") for how in ("httpGet", "tcpSocket"))
RunnerSpec = Annotated[Object, core("Container", optional=("name", *PROBES))]
POD: Object = inlined("PodSpec", ("containers", "os.name", *(f"containers[].{path}" for path in PROBES)))
"""Schema of a pod spec without required fields, because the service and its runtime may each set a part of the pod."""


class AuthenticationRef(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials that KEDA uses for Prometheus."""

    name: Annotated[str, Meta(min_length=1)]
    """Name of the TriggerAuthentication."""
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] = "TriggerAuthentication"
    """Kind of the object. A TriggerAuthentication must be in the service's namespace."""


class KedaConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Autoscaling by KEDA, if the annotation ome.io/autoscalerClass is keda."""

    enable_keda: bool | None = None
    """Enables KEDA if the annotation is missing."""
    prom_server_address: str = ""
    """URL of Prometheus."""
    custom_prom_query: str = ""
    """Query. Its result is compared with the threshold."""
    scaling_threshold: str = ""
    """Threshold."""
    scaling_operator: str = ""
    """Comparison: GreaterThan, GreaterThanOrEqual, LessThan or LessThanOrEqual."""
    authentication_ref: AuthenticationRef | None = None
    """Credentials that KEDA uses for Prometheus."""
    auth_modes: str = ""
    """Authentication modes for Prometheus: basic, tls, bearer or custom. Separate several with commas."""


class ComponentExtensionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replicas and rollout of a component."""

    min_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Minimum number of replicas. 0 scales to zero without requests. Empty means 1."""
    max_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Maximum number of replicas. Empty or 0 means 3, or 2 for a router. Values below minReplicas mean minReplicas."""
    scale_target: int | None = None
    """Target average of the metric per replica: percent for cpu and memory, in-flight requests for concurrency."""
    scale_metric: Metric | None = None
    """Metric of the autoscaler. Empty means cpu."""
    container_concurrency: Number64 | None = None
    """Target of in-flight requests per replica if scaleTarget is empty. It limits nothing."""
    timeout_seconds: Number64 | None = None
    """Request timeout in seconds. It has no effect, because the gateway's limits apply."""
    canary_traffic_percent: Annotated[int, Meta(ge=0, le=100, extra_json_schema=INT64)] | None = None
    """Percentage of requests for the changed spec. The others go to the previous one."""
    labels: dict[str, str] = {}
    """Labels of the pods."""
    annotations: dict[str, str] = {}
    """Annotations of the pods. An engine's ome.io/deploymentMode selects the deployment mode."""
    min_available: Annotated[int | str, Meta(extra_json_schema=INT_OR_STRING)] | None = None
    """Minimum number or percentage of pods that evictions must leave running."""
    max_unavailable: Annotated[int | str, Meta(extra_json_schema=INT_OR_STRING)] | None = None
    """Maximum number or percentage of pods that evictions may remove. Empty means 1."""
    deployment_strategy: Annotated[Object, part("DeploymentStrategy")] | None = None
    """Replacement of old pods by new ones, as in a Deployment."""
    keda_config: KedaConfig | None = None
    """Autoscaling of this component by KEDA."""


class LeaderSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pod that leads a group on several nodes, with the fields of a pod."""

    runner: RunnerSpec | None = None
    """Main container. It is merged into the container with the same name."""

    inlined: ClassVar[Object] = POD


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Worker pods of a group, with the fields of a pod."""

    size: int | None = None
    """Number of workers per group."""
    runner: RunnerSpec | None = None
    """Main container. It is merged into the container with the same name."""

    inlined: ClassVar[Object] = POD


class EngineSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Engine, with the fields of a pod. With a decoder, it processes only prompts."""

    runner: RunnerSpec | None = None
    """Main container. It is merged into the container with the same name."""
    leader: LeaderSpec | None = None
    """Leader pod of an engine on several nodes."""
    worker: WorkerSpec | None = None
    """Worker pods of an engine on several nodes."""
    accelerator_override: Annotated[Object, part("AcceleratorSelector")] | None = None
    """Accelerator of the engine. AcceleratorClasses are not supported: services with one are rejected."""

    inlined: ClassVar[Object] = POD


class DecoderSpec(EngineSpec, frozen=True, kw_only=True, rename="camel"):
    """Decoder, which generates answers after the engine has processed the prompt, with the fields of a pod."""


class RouterSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Router, which distributes requests over the engines, with the fields of a pod."""

    runner: RunnerSpec | None = None
    """Main container. It is merged into the container with the same name."""
    config: dict[str, str] = {}
    """Environment variables of the main container."""

    inlined: ClassVar[Object] = POD
