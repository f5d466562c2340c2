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
    """Kind of the model. FineTunedWeight serves the weights of that name with their base model. With any other kind, a
    BaseModel in the namespace takes precedence over a ClusterBaseModel."""
    api_group: Group = names.GROUP
    """API group of the kind. This field has no effect."""
    fine_tuned_weights: Strings = ()
    """Names of FineTunedWeights to add to the model, or to serve instead of the model."""


class ServingRuntimeRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Runtime of the service."""

    name: str
    """Name of a ServingRuntime in the namespace, or of a ClusterServingRuntime."""
    kind: str = names.CLUSTER_SERVING_RUNTIME.kind
    """Kind of the runtime. This field has no effect: a ServingRuntime in the namespace always takes precedence over a
    ClusterServingRuntime."""
    api_group: Group = names.GROUP
    """API group of the kind. This field has no effect."""


class PredictorModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime and main container in older versions of the API."""

    base_model: str | None = None
    """Name of a BaseModel in the namespace, or of a ClusterBaseModel."""
    runtime: str | None = None
    """Name of a ServingRuntime in the namespace, or of a ClusterServingRuntime."""
    fine_tuned_weights: Strings = ()
    """Names of FineTunedWeights to add to the model, or to serve instead of the model."""
    storage_uri: str | None = None
    """Source of the weights. This field has no effect; set baseModel instead."""
    runtime_version: str | None = None
    """Version of the runtime's image. This field has no effect."""
    protocol_version: str | None = None
    """Protocol of the engine. This field has no effect."""

    inlined: ClassVar[Object] = inlined("Container", ("name", *PROBES))


class PredictorSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime and engine in older versions of the API. All fields of a pod spec are allowed."""

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
    """Runtime of the service. Empty means the runtime that matches the model best."""
    engine: EngineSpec | None = None
    """Engine, which serves the model. All fields of a pod spec are allowed."""
    decoder: DecoderSpec | None = None
    """Decoder, which generates the answers. The engine then only processes prompts. All fields of a pod spec are
    allowed."""
    router: RouterSpec | None = None
    """Router, which distributes requests over the engines. All fields of a pod spec are allowed."""
    predictor: PredictorSpec | None = None
    """Model, runtime and engine in older versions of the API. The condition PredictorDeprecated lists the current
    fields."""
    keda_config: KedaConfig | None = None
    """Settings for autoscaling by KEDA. Settings in the kedaConfig of a component take precedence."""
    accelerator_selector: Annotated[Object, part("AcceleratorSelector")] | None = None
    """Selection of an AcceleratorClass. It is not supported, and a service with this field is rejected."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.decoder) || has(self.engine) || has(self.predictor)",
            "decoder requires an engine, which processes the prompts.",
        ),
    )


class ScoredRuntime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A runtime that matches the model."""

    name: str
    """Name of the runtime."""
    kind: str
    """Kind of the runtime: ServingRuntime or ClusterServingRuntime."""
    score: Number64 | UnsetType = UNSET
    """Score of the match: the priority times the sum of the weights of format and framework."""


class SelectedRuntime(ScoredRuntime, frozen=True, kw_only=True, rename="camel"):
    """Runtime that the service uses, and other runtimes that match the model."""

    chosen: str
    """Origin of the choice: Service if the spec names the runtime, Selection if the controller selected it."""
    next: Annotated[tuple[ScoredRuntime, ...], Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """The two best matches among the other runtimes."""
    better: ScoredRuntime | UnsetType = UNSET
    """Runtime that matches the model better than the one in use. To switch to it, name it in spec.runtime."""


class ExcludedRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime that does not match the model."""

    name: str
    """Name of the runtime."""
    kind: str
    """Kind of the runtime: ServingRuntime or ClusterServingRuntime."""
    reason: str
    """Most important reason why the runtime does not match."""


class ServiceCondition(Condition, frozen=True, rename="camel"):
    """One aspect of the service's state."""

    severity: str = ""
    """Severity of the condition in the original OME. Never set by Slipway."""


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
    """Runtime that the service uses, and other runtimes that match the model."""
    excluded: Annotated[tuple[ExcludedRuntime, ...], Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """Up to 50 runtimes, closest match first, each with the most important reason why it does not match. Only set if no
    runtime matches."""
    excluded_count: int | UnsetType = UNSET
    """Total number of runtimes that do not match. Only set if no runtime matches."""
    replicas: int | UnsetType = UNSET
    """Number of pods of the component that receives requests."""
    ready_replicas: int | UnsetType = UNSET
    """Number of ready pods of the component that receives requests."""
    annotations: dict[str, str] | UnsetType = UNSET
    """Additional facts in the original OME. Never set by Slipway."""
    model_id: str | UnsetType = UNSET
    """Model ID that clients send. Missing if the gateway does not serve the model."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: tuple[ServiceCondition, ...] | UnsetType = UNSET
    """Conditions Accepted, Available, Progressing, Routed, EngineReady, DecoderReady, RouterReady, CanaryReady,
    IngressReady and RuntimeFits, others if they apply, and the summary conditions Ready, Reconciling and Stalled."""


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
