"""Resolve: a single pass that parses and checks an InferenceService with its model, runtime and components. Pure.

Like models, runtimes are looked up in the namespace first, and then in the cluster, regardless of the kind in the
reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components import overlay, predictor, scaling
from slipway.apis.ome.components.adapters import adapter_of
from slipway.apis.ome.components.references import base_name_of, find_model, find_weight, name_of
from slipway.apis.ome.models import folders
from slipway.apis.ome.runtimes import selection
from slipway.apis.ome.runtimes.candidates import candidate
from slipway.apis.ome.runtimes.selection import Selection
from slipway.apis.ome.services.service import Part, Service
from slipway.apis.ome.types.model import BaseModelSpec
from slipway.apis.ome.types.service import InferenceServiceSpec
from slipway.artifacts.facts.config import ModelFacts
from slipway.engines.recognition import recognise
from slipway.kube.objects import Object, annotations_of, key
from slipway.serving.contract.api import InvalidSpecError, Reference, World
from slipway.serving.contract.watches import NAMESPACE
from slipway.serving.routing.route import MOST_IDS

SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
VIRTUAL = "VirtualDeployment"
INSTEAD = {
    "Serverless": "remove the annotation: minReplicas 0 scales to and from zero without Knative",
    "MultiNodeRayVLLM": "give the engine a leader and a worker, for a LeaderWorkerSet",
}
"""Unsupported deployment mode -> advice for the author."""
RUNTIMES = (names.SERVING_RUNTIME, names.CLUSTER_SERVING_RUNTIME)


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService, which may be invalid, with the observed state of the cluster."""

    world: World
    service: Service | InvalidSpecError
    selection: Selection | None = None
    """Result of the runtime selection. None if the service needs no runtime, or has an error that prevents the
    selection."""

    def valid(self) -> Service:
        """Return the service. Raise InvalidSpecError with the reason if the service cannot be served."""
        if isinstance(self.service, InvalidSpecError):
            raise self.service
        return self.service


def resolve(world: World) -> ServiceView:
    """Return the view of a service. The function does not raise InvalidSpecError: if the service cannot be served,
    ``view.service`` is the error."""
    choice: Selection | None = None
    try:
        resource = predictor.migrated(world.resource)
        spec = _spec(resource)
        if mode_of(resource) == VIRTUAL:
            return ServiceView(world=world, service=Service(resource=resource, spec=spec))
        _refuse_unserved(resource, spec)
        model, weights = _models(world, spec)
        choice = _select_runtime(world, resource, spec, model)
        service = _build_service(world, resource, spec, model, weights, choice)
        return ServiceView(world=world, service=service, selection=choice)
    except InvalidSpecError as error:
        return ServiceView(world=world, service=error, selection=choice)


def _spec(resource: Object) -> InferenceServiceSpec:
    name = key(resource).name
    if not SERVICE_NAME.fullmatch(name):
        text = f"{name[:64]!r} is not a valid Service name. Use at most 63 of a-z, 0-9 and -, starting with a letter"
        raise InvalidSpecError("InvalidSpec", text)
    try:
        spec = msgspec.convert(resource["spec"], InferenceServiceSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", f"spec: {error}") from error
    if spec.engine is None and mode_of(resource) != VIRTUAL:
        raise InvalidSpecError("InvalidSpec", "spec.engine is required; an empty one, {}, is sufficient")
    return spec


def mode_of(resource: Object) -> str:
    """Return the deployment mode in the annotations of the engine or else of the service, or an empty string if none is
    set."""
    engine = (resource["spec"].get("engine") or {}).get("annotations") or {}
    return engine.get(names.MODE) or annotations_of(resource).get(names.MODE) or ""


def _refuse_unserved(resource: Object, spec: InferenceServiceSpec) -> None:
    """Raise InvalidSpecError for features of the original OME that Slipway does not support."""
    mode = mode_of(resource)
    if mode in INSTEAD:
        raise InvalidSpecError("ModeNotServed", f"{names.MODE} {mode} is not supported: {INSTEAD[mode]}")
    overrides = (part.accelerator_override for part in (spec.engine, spec.decoder) if part)
    if selection.required_classes(resource) or spec.accelerator_selector or any(overrides):
        text = "AcceleratorClasses are not supported. Remove acceleratorSelector, acceleratorOverride and"
        instead = f"the annotation {names.ACCELERATOR_CLASS}, and set a nodeSelector of the engine"
        raise InvalidSpecError("AcceleratorClassNotServed", f"{text} {instead}")


def _models(world: World, spec: InferenceServiceSpec) -> tuple[Object | None, tuple[Object, ...]]:
    """Return the base model and the FineTunedWeights of the service, or None and an empty tuple if the service has no
    model. Raise InvalidSpecError if the model is missing or disabled, or if weights are missing, are for another base
    model, or are too many."""
    if spec.model is None:
        return None, ()
    namespace, base_name, weights = key(world.resource).namespace, spec.model.name, spec.model.fine_tuned_weights
    if spec.model.kind == names.FINE_TUNED_WEIGHT.kind:
        weights = (spec.model.name, *weights)
        base_name = base_name_of(_weight(world, spec.model.name))
    model = find_model(world, namespace, base_name)
    if model is None:
        text = f"There is neither a BaseModel {base_name} in {namespace} nor a ClusterBaseModel of this name"
        raise InvalidSpecError("BaseModelNotFound", text)
    if (model.get("spec") or {}).get("disabled"):
        raise InvalidSpecError("BaseModelDisabled", f"The {model['kind']} {base_name} is disabled")
    if len(weights) >= MOST_IDS:
        raise InvalidSpecError("InvalidSpec", f"spec.model.fineTunedWeights: {MOST_IDS - 1} at most")
    return model, tuple(_adapter(world, name, base_name) for name in dict.fromkeys(weights))


def _weight(world: World, name: str) -> Object:
    weight = find_weight(world, name)
    if weight is None:
        raise InvalidSpecError("FineTunedWeightNotFound", f"There is no FineTunedWeight {name}")
    return weight


def _adapter(world: World, name: str, base: str) -> Object:
    weight = _weight(world, name)
    own = base_name_of(weight)
    if own != base:
        text = f"The FineTunedWeight {name} is for the base model {own}, and the service's is {base}"
        raise InvalidSpecError("FineTunedWeightMismatch", text)
    return weight


def _select_runtime(
    world: World, resource: Object, spec: InferenceServiceSpec, model: Object | None
) -> Selection | None:
    """Return the result of the runtime selection. Return None if the service names no runtime and needs none: each of
    its main containers has an image, and each has a command or arguments as well, or there is no model, or no runtime
    matches. Raise InvalidSpecError if the service has neither a model nor a runtime nor images, or if the model's spec
    is invalid."""
    namespace, runners = key(resource).namespace, list(_runners(resource["spec"]))
    images = all(one.get("image") for one in runners)
    if spec.runtime is None and images and all(one.get("command") or one.get("args") for one in runners):
        return None
    if spec.runtime is None and model is None:
        if images:
            return None
        text = "spec.model or spec.runtime is required: set one, or give each part a runner with an image"
        raise InvalidSpecError("InvalidSpec", text)
    runtimes = (
        *world.list(names.SERVING_RUNTIME, NAMESPACE, namespace),
        *world.list(names.CLUSTER_SERVING_RUNTIME),
    )
    reference = Reference(names.CLUSTER_SERVING_RUNTIME, "", spec.runtime.name) if spec.runtime else None
    choice = selection.select(
        _facts(model) if model else ModelFacts(),
        [candidate(runtime) for runtime in runtimes],
        requested=reference,
        current=_current(resource, namespace),
    )
    return None if images and choice.fault and choice.fault.reason == "NoRuntime" else choice


def _facts(model: Object) -> ModelFacts:
    try:
        return selection.facts(msgspec.convert(model.get("spec"), BaseModelSpec))
    except msgspec.ValidationError as error:
        raise InvalidSpecError(
            "InvalidModel", f"The {model['kind']} {key(model).name} cannot be read: {error}"
        ) from error


def _current(resource: Object, namespace: str) -> Reference | None:
    """Return a reference to the runtime in the service's status, or None if the status has no runtime."""
    status = (resource.get("status") or {}).get("runtime") or {}
    kind = next((kind for kind in RUNTIMES if kind.kind == status.get("kind")), None)
    name = name_of(status)
    return Reference(kind, namespace if kind.namespaced else "", name) if kind and name else None


def _runners(spec: Object) -> Iterable[Object]:
    """Yield the main container of each pod that a service defines, with only the fields that the service sets."""
    for part in (spec[name] for name in overlay.NAMES if spec.get(name) is not None):
        for pod in [one for one in (part.get("leader"), part.get("worker")) if one] or [part]:
            yield pod.get("runner") or next(iter(pod.get("containers") or ()), {})


def _build_service(
    world: World,
    resource: Object,
    spec: InferenceServiceSpec,
    model: Object | None,
    weights: tuple[Object, ...],
    choice: Selection | None,
) -> Service:
    if choice is not None and choice.fault is not None:
        raise choice.fault
    runtime = world.get(choice.chosen.reference) if choice and choice.chosen else None
    return Service(
        resource=resource,
        spec=spec,
        model=model,
        mount=folders.resolve_mount(world, model) if model else None,
        weights=weights,
        adapters=tuple(adapter_of(weight, world.settings) for weight in weights),
        runtime=runtime,
        parts=_build_parts(resource, spec, runtime),
    )


def _build_parts(resource: Object, spec: InferenceServiceSpec, runtime: Object | None) -> tuple[Part, ...]:
    annotations = annotations_of(resource)
    parts = []
    for component in overlay.components(resource, runtime):
        runner = overlay.runner(component.leader or component.pod)
        scaler = scaling.scaler(
            component.name,
            component.extension,
            {**annotations, **component.extension.annotations},
            spec.keda_config,
            group=component.leader is not None,
        )
        parts.append(
            Part(
                component=component,
                name=names.component_name(key(resource).name, component.name),
                runner=runner,
                recognised=recognise(runner),
                scaler=scaler,
            )
        )
    return tuple(parts)
