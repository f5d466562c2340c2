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
    """Name of the TriggerAuthentication or ClusterTriggerAuthentication."""
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] = "TriggerAuthentication"
    """Kind of the object. A TriggerAuthentication must be in the service's namespace."""


class KedaConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings for autoscaling by KEDA. They apply if the annotation ome.io/autoscalerClass is keda, or if enableKeda
    is true."""

    enable_keda: bool | None = None
    """If true, KEDA scales the component unless the annotation ome.io/autoscalerClass selects another autoscaler."""
    prom_server_address: str = ""
    """URL of Prometheus. Empty means http://prometheus-operated.monitoring.svc.cluster.local:9090."""
    custom_prom_query: str = ""
    """Prometheus query whose result KEDA compares with the threshold. Empty means the number of running requests."""
    scaling_threshold: str = ""
    """Threshold for the result of the query, as a number. Empty means 10."""
    scaling_operator: str = ""
    """Comparison with the threshold: GreaterThan, GreaterThanOrEqual, LessThan or LessThanOrEqual. Empty means
    LessThanOrEqual."""
    authentication_ref: AuthenticationRef | None = None
    """Credentials that KEDA uses for Prometheus."""
    auth_modes: str = ""
    """Authentication modes for Prometheus, separated by commas: basic, tls, bearer or custom."""


class ComponentExtensionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replicas and rollout of a component."""

    min_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Minimum number of replicas. 0 means that the component scales to zero when there are no requests. Empty means
    1."""
    max_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Maximum number of replicas. Empty or 0 means 3, or 2 for a router. A value below minReplicas counts as
    minReplicas."""
    scale_target: int | None = None
    """Target average of the metric per replica: percent for cpu and memory (80 if empty), in-flight requests for
    concurrency (100 if empty)."""
    scale_metric: Metric | None = None
    """Metric of the autoscaler. Empty means cpu. rps and tps require KEDA."""
    container_concurrency: Number64 | None = None
    """Target for in-flight requests per replica if scaleTarget sets none. It does not limit requests."""
    timeout_seconds: Number64 | None = None
    """Request timeout in seconds. This field has no effect, because the gateway's limits apply."""
    canary_traffic_percent: Annotated[int, Meta(ge=0, le=100, extra_json_schema=INT64)] | None = None
    """Percentage of requests for the changed spec. The remaining requests go to the previous spec."""
    labels: dict[str, str] = {}
    """Additional labels of the pods."""
    annotations: dict[str, str] = {}
    """Additional annotations of the pods. On an engine, ome.io/deploymentMode selects the deployment mode."""
    min_available: Annotated[int | str, Meta(extra_json_schema=INT_OR_STRING)] | None = None
    """Minimum number or percentage of pods that evictions must leave running."""
    max_unavailable: Annotated[int | str, Meta(extra_json_schema=INT_OR_STRING)] | None = None
    """Maximum number or percentage of pods that evictions may remove. Empty means 1."""
    deployment_strategy: Annotated[Object, part("DeploymentStrategy")] | None = None
    """Update strategy, as in a Deployment. Empty means a rolling update with maxUnavailable 0 and maxSurge 1."""
    keda_config: KedaConfig | None = None
    """Autoscaling of this component by KEDA."""


class LeaderSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Leader pod of an engine or decoder on several nodes. All fields of a pod spec are allowed."""

    runner: RunnerSpec | None = None
    """Main container. It is merged with the container of the same name."""

    inlined: ClassVar[Object] = POD


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Worker pods of an engine or decoder on several nodes. All fields of a pod spec are allowed."""

    size: int | None = None
    """Number of worker pods for each leader."""
    runner: RunnerSpec | None = None
    """Main container. It is merged with the container of the same name."""

    inlined: ClassVar[Object] = POD


class EngineSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Engine, which serves the model. With a decoder, the engine only processes prompts. All fields of a pod spec are
    allowed."""

    runner: RunnerSpec | None = None
    """Main container. It is merged with the container of the same name."""
    leader: LeaderSpec | None = None
    """Leader pod of each replica, for an engine or decoder on several nodes."""
    worker: WorkerSpec | None = None
    """Worker pods of each replica, for an engine or decoder on several nodes."""
    accelerator_override: Annotated[Object, part("AcceleratorSelector")] | None = None
    """Selection of an AcceleratorClass. It is not supported, and a service with this field is rejected."""

    inlined: ClassVar[Object] = POD


class DecoderSpec(EngineSpec, frozen=True, kw_only=True, rename="camel"):
    """Decoder, which generates answers after the engine has processed the prompt. All fields of a pod spec are
    allowed."""


class RouterSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Router, which distributes requests over the engines. All fields of a pod spec are allowed."""

    runner: RunnerSpec | None = None
    """Main container. It is merged with the container of the same name."""
    config: dict[str, str] = {}
    """Environment variables of the main container."""

    inlined: ClassVar[Object] = POD
