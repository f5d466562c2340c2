"""InferenceService: a model on a runtime. Its definition is made from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.ome import names
from slipway.apis.ome.component_types import (
    POD,
    PROBES,
    ComponentExtensionSpec,
    DecoderSpec,
    EngineSpec,
    KedaConfig,
    RouterSpec,
    WorkerSpec,
)
from slipway.apis.ome.model_types import ATOMIC, Number64, Strings, part
from slipway.kube.conditions import Condition
from slipway.kube.core import inlined
from slipway.kube.crd import UNKNOWN_KEPT, Column, CustomResource, Rule
from slipway.kube.objects import Object

ANY: Object = {"type": "object", **UNKNOWN_KEPT}
LATER: dict[str, Object] = {
    "deploymentMode": {"type": "string"},
    "rollout": ANY,
    "scalingPolicy": ANY,
    "topologyKey": {"type": "string"},
    "traffic": ANY,
    "model.overlays": UNKNOWN_KEPT,
}
"""Fields of the spec that later versions of OME have, as far as they are known by name -> their schema."""

Group = Annotated[str, Meta(extra_json_schema={"default": names.GROUP})]


class ModelRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The model to serve."""

    name: str
    """Name of a BaseModel of the namespace, or of a ClusterBaseModel."""
    kind: str = names.CLUSTER_BASE_MODEL.kind
    """Kind of the model. Whatever it says, a model of the namespace goes before one of the cluster."""
    api_group: Group = names.GROUP
    """Group of the kind."""
    fine_tuned_weights: Strings = ()
    """Names of FineTunedWeights that are added to the model, or take its place."""


class ServingRuntimeRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The runtime that serves it."""

    name: str
    """Name of a ServingRuntime of the namespace, or of a ClusterServingRuntime."""
    kind: str = names.CLUSTER_SERVING_RUNTIME.kind
    """Kind of the runtime. Whatever it says, a runtime of the namespace goes before one of the cluster."""
    api_group: Group = names.GROUP
    """Group of the kind."""


class PredictorModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime and main container, as services of earlier versions have them."""

    base_model: str | None = None
    """Name of the model."""
    runtime: str | None = None
    """Name of the runtime."""
    fine_tuned_weights: Strings = ()
    """Names of FineTunedWeights."""
    storage_uri: str | None = None
    """Source of weights. It has no effect: a model is named."""
    runtime_version: str | None = None
    """Version of the runtime's image. It has no effect."""
    protocol_version: str | None = None
    """Protocol of the engine. It has no effect."""

    inlined: ClassVar[Object] = inlined("Container", ("name", *PROBES))


class PredictorSpec(ComponentExtensionSpec, frozen=True, kw_only=True, rename="camel"):
    """Model, runtime and engine in one, as services of earlier versions have them; as the fields of a pod."""

    model: PredictorModel | None = None
    """Model, runtime and main container."""
    worker_spec: WorkerSpec | None = None
    """Workers of a group, where the engine spans several nodes."""

    inlined: ClassVar[Object] = POD


class InferenceServiceSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model, a runtime, and what of the runtime's parts there is."""

    model: ModelRef | None = None
    """The model to serve."""
    runtime: ServingRuntimeRef | None = None
    """The runtime that serves it. Absent: the one that fits the model best."""
    engine: EngineSpec | None = None
    """The part that computes."""
    decoder: DecoderSpec | None = None
    """The part that writes answers; the engine then only reads prompts."""
    router: RouterSpec | None = None
    """The part that spreads requests over the engines."""
    predictor: PredictorSpec | None = None
    """Model, runtime and engine of earlier versions; the condition PredictorDeprecated says what to write instead."""
    keda_config: KedaConfig | None = None
    """How KEDA scales the components that do not say it themselves."""
    accelerator_selector: Annotated[Object, part("AcceleratorSelector")] | None = None
    """Which accelerator. AcceleratorClasses are not served: a service that names one is refused."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.decoder) || has(self.engine) || has(self.predictor)",
            "decoder needs an engine, which reads the prompts.",
        ),
    )


class ScoredRuntime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A runtime that fits."""

    name: str
    """Its name."""
    kind: str
    """ServingRuntime or ClusterServingRuntime."""
    score: Number64 | UnsetType = UNSET
    """How well it fits."""


class SelectedRuntime(ScoredRuntime, frozen=True, kw_only=True, rename="camel"):
    """The runtime that serves, and those that could."""

    chosen: str
    """Who chose it: Service, in its spec, or Selection."""
    next: Annotated[tuple[ScoredRuntime, ...], Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """The two that fit best after it."""
    better: ScoredRuntime | UnsetType = UNSET
    """One that fits better and came later: it serves once the spec names it, or this one does not fit any more."""


class ExcludedRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime that does not fit."""

    name: str
    """Its name."""
    kind: str
    """ServingRuntime or ClusterServingRuntime."""
    reason: str
    """The first that keeps it from fitting."""


class ServiceCondition(Condition, frozen=True, rename="camel"):
    """One aspect of a service's state, with a word that the original's conditions may have."""

    severity: str = ""
    """Info, where the condition does not count for Ready."""


class InferenceServiceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    url: str | UnsetType = UNSET
    """URL of the service inside the cluster."""
    address: Annotated[Object, part("Address")] | UnsetType = UNSET
    """Where the service answers."""
    components: dict[str, Annotated[Object, part("ComponentStatusSpec")]] | UnsetType = UNSET
    """engine, decoder and router, and what became of each."""
    model_status: Annotated[Object, part("ModelStatus")] | UnsetType = UNSET
    """What became of the model in the pods."""
    runtime: SelectedRuntime | UnsetType = UNSET
    """The runtime that serves, and those that could."""
    excluded: Annotated[tuple[ExcludedRuntime, ...], Meta(extra_json_schema=ATOMIC)] | UnsetType = UNSET
    """Runtimes that do not fit, the closest first, 50 at most; where none fits."""
    excluded_count: int | UnsetType = UNSET
    """Number of all runtimes that do not fit, where none fits."""
    replicas: int | UnsetType = UNSET
    """Pods of the component that requests go to."""
    ready_replicas: int | UnsetType = UNSET
    """Pods of it that answer."""
    annotations: dict[str, str] | UnsetType = UNSET
    """Further facts, of the original."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if no ID leads to it."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: tuple[ServiceCondition, ...] | UnsetType = UNSET
    """Accepted, Available, Progressing, Routed, EngineReady, DecoderReady, RouterReady, CanaryReady, IngressReady,
    RuntimeFits and others where they apply; each with a reason and a message."""


SERVICE = CustomResource(
    kind=names.INFERENCE_SERVICE,
    spec=InferenceServiceSpec,
    status=InferenceServiceStatus,
    unsupported=LATER,
    description="A model, served by a runtime.",
    short_names=("isvc",),
    validations=(
        Rule(
            "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the name becomes that of a Service: at most 63 of a-z, 0-9 and -, a letter first.",
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
