"""InferenceService: a model on a runtime. The CRD is generated from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.ome import names
from slipway.apis.ome.types.component import (
    POD,
    PROBES,
    ComponentExtensionSpec,
    DecoderSpec,
    EngineSpec,
    KedaConfig,
    RouterSpec,
    WorkerSpec,
)
from slipway.apis.ome.types.model import ATOMIC, Number64, Strings, part
from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import Condition
from slipway.kube.schemas.core import inlined
from slipway.kube.schemas.crd import PRESERVES_UNKNOWN, Column, CustomResource, Rule

ANY: Object = {"type": "object", **PRESERVES_UNKNOWN}
LATER: dict[str, Object] = {
    "deploymentMode": {"type": "string"},
    "rollout": ANY,
    "scalingPolicy": ANY,
    "topologyKey": {"type": "string"},
    "traffic": ANY,
    "model.overlays": PRESERVES_UNKNOWN,
}
"""Field of the spec in later versions of OME -> its schema. Slipway accepts these fields but ignores them."""

Group = Annotated[str, Meta(extra_json_schema={"default": names.GROUP})]


class ModelRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Model that the service serves."""

    name: str
    """Name of a BaseModel in the namespace, or of a ClusterBaseModel."""
    kind: str = names.CLUSTER_BASE_MODEL.kind
    """Kind of the model. FineTunedWeight serves the weights of that name with their base model. Otherwise, a BaseModel
    in the namespace takes precedence over a ClusterBaseModel, whatever the kind."""
    api_group: Group = names.GROUP
    """API group of the kind."""
    fine_tuned_weights: Strings = ()
    """Names of FineTunedWeights to add to the model, or to serve instead."""


class ServingRuntimeRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Runtime of the service."""

    name: str
    """Name of a ServingRuntime in the namespace, or of a ClusterServingRuntime."""
    kind: str = names.CLUSTER_SERVING_RUNTIME.kind
    """Kind of the runtime. A ServingRuntime in the namespace always takes precedence over a ClusterServingRuntime."""
    api_group: Group = names.GROUP
    """API group of the kind."""


class PredictorModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime and main container in older versions of the API."""

    base_model: str | None = None
    """Name of the model."""
    runtime: str | None = None
    """Name of the runtime."""
    fine_tuned_weights: Strings = ()
    """Names of FineTunedWeights."""
    storage_uri: str | None = None
    """Source of weights. It has no effect; specify a model instead."""
    runtime_version: str | None = None
    """Version of the runtime's image. It has no effect."""
    protocol_version: str | None = None
    """Protocol of the engine. It has no effect."""

    inlined: ClassVar[Object] = inlined("Container", ("name", *PROBES))


class PredictorSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime and engine in older versions of the API, with the fields of a pod."""

    model: PredictorModel | None = None
    """Model, runtime and main container."""
    worker_spec: WorkerSpec | None = None
    """Worker pods of an engine on several nodes."""

    inlined: ClassVar[Object] = POD


class InferenceServiceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime, and changes to the runtime's components."""

    model: ModelRef | None = None
    """Model that the service serves."""
    runtime: ServingRuntimeRef | None = None
    """Runtime of the service. Empty means the one that matches the model best."""
    engine: EngineSpec | None = None
    """Engine."""
    decoder: DecoderSpec | None = None
    """Decoder, which generates the answers. The engine then processes only prompts."""
    router: RouterSpec | None = None
    """Router, which distributes requests over the engines."""
    predictor: PredictorSpec | None = None
    """Model, runtime and engine in older versions of the API. The condition PredictorDeprecated lists the current
    fields."""
    keda_config: KedaConfig | None = None
    """Autoscaling by KEDA for components without their own setting."""
    accelerator_selector: Annotated[Object, part("AcceleratorSelector")] | None = None
    """Accelerator of the service. AcceleratorClasses are not supported: services with one are rejected."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.decoder) || has(self.engine) || has(self.predictor)",
            "decoder requires an engine, which processes the prompts.",
        ),
    )


class ScoredRuntime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A matching runtime."""

    name: str
    """Name of the runtime."""
    kind: str
    """ServingRuntime or ClusterServingRuntime."""
    score: Number64 | UnsetType = UNSET
    """Score of the match."""


class SelectedRuntime(ScoredRuntime, frozen=True, kw_only=True, rename="camel"):
    """Selected runtime and alternatives."""

    chosen: str
    """Service if the spec names the runtime, Selection if the controller selected it."""
    next: Annotated[tuple[ScoredRuntime, ...], Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """The next two best matches."""
    better: ScoredRuntime | UnsetType = UNSET
    """A better match that was created later. To use it, set it in spec.runtime."""


class ExcludedRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime that does not match."""

    name: str
    """Name of the runtime."""
    kind: str
    """ServingRuntime or ClusterServingRuntime."""
    reason: str
    """First mismatch."""


class ServiceCondition(Condition, frozen=True, rename="camel"):
    """One aspect of the service's state."""

    severity: str = ""
    """Info if the condition has no effect on Ready."""


class InferenceServiceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the service."""

    url: str | UnsetType = UNSET
    """URL of the service inside the cluster."""
    address: Annotated[Object, part("Address")] | UnsetType = UNSET
    """Address of the service inside the cluster."""
    components: dict[str, Annotated[Object, part("ComponentStatusSpec")]] | UnsetType = UNSET
    """Observed state of engine, decoder and router."""
    model_status: Annotated[Object, part("ModelStatus")] | UnsetType = UNSET
    """Observed state of the model in the pods."""
    runtime: SelectedRuntime | UnsetType = UNSET
    """Selected runtime and alternatives."""
    excluded: Annotated[tuple[ExcludedRuntime, ...], Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """If no runtime matches: up to 50 runtimes with their first mismatch, the closest first."""
    excluded_count: int | UnsetType = UNSET
    """If no runtime matches: number of all runtimes."""
    replicas: int | UnsetType = UNSET
    """Number of pods of the component that receives requests."""
    ready_replicas: int | UnsetType = UNSET
    """Number of ready pods of the component that receives requests."""
    annotations: dict[str, str] | UnsetType = UNSET
    """Additional facts, as in the original."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if there is none."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: tuple[ServiceCondition, ...] | UnsetType = UNSET
    """Accepted, Available, Progressing, Routed, EngineReady, DecoderReady, RouterReady, CanaryReady, IngressReady,
    RuntimeFits, and others if they apply."""


SERVICE = CustomResource(
    kind=names.INFERENCE_SERVICE,
    spec=InferenceServiceSpec,
    status=InferenceServiceStatus,
    unsupported=LATER,
    description="A model that the gateway serves, with a runtime.",
    short_names=("isvc",),
    validations=(
        Rule(
            "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the name is also a Service name: use at most 63 of a-z, 0-9 and -, starting with a letter.",
        ),
    ),
    columns=(
        Column("URL", "string", ".status.url"),
        Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        Column("BaseModel", "string", ".spec.model.name"),
        Column("Runtime", "string", ".spec.runtime.name"),
        Column("Prev", "integer", ".status.components.engine.traffic[?(@.tag=='prev')].percent"),
        Column("Latest", "integer", ".status.components.engine.traffic[?(@.latestRevision==true)].percent"),
        Column("PrevRolledoutRevision", "string", ".status.components.engine.traffic[?(@.tag=='prev')].revisionName"),
        Column(
            "LatestReadyRevision",
            "string",
            ".status.components.engine.traffic[?(@.latestRevision==true)].revisionName",
        ),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
