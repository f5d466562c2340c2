"""Selection: the choice of the runtime that serves a model, and the reasons that exclude every other runtime. Pure.

A runtime lists the formats that it supports. An entry fits a model with the same format, framework, architecture and
quantization. If an entry omits one of these fields, the model must omit it as well. If several runtimes fit, runtimes
in the namespace take precedence over cluster-scoped runtimes, then runtimes with a higher score, and then runtimes
whose size limits are closer to the model's size.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.runtimes.candidates import Candidate, InvalidRuntime, parse_size
from slipway.apis.ome.runtimes.fit import NOT_OFFERED, Match, Matcher
from slipway.apis.ome.types.model import PARAMETER_SIZE, BaseModelSpec, ModelFormat
from slipway.artifacts.facts.config import ModelFacts, VersionedName
from slipway.artifacts.facts.parameters import format_size
from slipway.kube.objects import Object, annotations_of, as_object
from slipway.serving.contract.api import InvalidSpecError, Reference
from slipway.spelling import did_you_mean

MOST_EXCLUDED = 50
MAX_LISTED = 3
"""Maximum number of runtimes that a message names. The service's status lists the others."""
UNKNOWN = (
    "the model's format is unknown until it is downloaded; a runtime is selected then, or when its spec sets the format"
)
PARTS = ("engine", "decoder")


class RuntimeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime that may serve the model."""

    reference: Reference
    score: int
    by: Literal["Service", "Selection"] = "Selection"
    """``Service`` if the service names the runtime, ``Selection`` if the controller selected it."""
    unfit: tuple[str, ...] = ()
    """Reasons why the runtime does not fit. A runtime with such reasons is only used if the service names it."""


class Excluded(msgspec.Struct, frozen=True):
    """A runtime that does not fit the model, with all reasons, most important first."""

    reference: Reference
    reasons: tuple[str, ...]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a runtime selection for one model."""

    chosen: RuntimeChoice | None = None
    ranked: tuple[RuntimeChoice, ...] = ()
    """All runtimes that fit, best first. Empty if the service names its runtime, or if no runtime fits."""
    excluded: tuple[Excluded, ...] = ()
    """Up to MOST_EXCLUDED runtimes: those that come closest to fitting, closest first, and then invalid ones. Empty
    unless the reason of ``fault`` is NoRuntime."""
    excluded_count: int = 0
    """Number of all runtimes if the reason of ``fault`` is NoRuntime, otherwise 0."""
    better: RuntimeChoice | None = None
    """The runtime that a new service would get, if it fits better than the runtime in use. Otherwise None."""
    fault: InvalidSpecError | None = None
    """Error if no runtime is chosen. The reason BaseModelNotReady means that the model's metadata is not known yet."""

    @property
    def fits(self) -> bool:
        """Whether the chosen runtime fits the model. Also True if no runtime is chosen."""
        return self.chosen is None or not self.chosen.unfit


def select(
    model: ModelFacts,
    candidates: Sequence[Candidate | InvalidRuntime],
    *,
    requested: Reference | None = None,
    current: Reference | None = None,
    required_classes: frozenset[str] = frozenset(),
) -> Selection:
    """Select the runtime for a model among the runtimes of a namespace and of the cluster.

    ``requested``: the runtime that the service names. It is used even if it does not fit, unless it is invalid or
    disabled. The name is looked up in the namespace and then in the cluster, and the kind is ignored, because authors
    rarely change the default kind on purpose. ``current``: the runtime that already serves the model. It is kept as
    long as it fits, even if it is no longer for automatic selection, and as long as it is enabled while the model's
    format is unknown. ``required_classes``: the accelerator classes that the service requests.

    ``model.parameter_size`` is the size as OME counts it: the number of values stored in the files. A quantized model
    has more parameters, ``model.parameters``. If no runtime fits the stored values, a runtime that fits the parameters
    is selected.
    """
    selection = _select(model, candidates, requested, current, required_classes)
    size = format_size(model.parameters)
    if not size or size == model.parameter_size or (selection.chosen is not None and selection.fits):
        return selection
    real = msgspec.structs.replace(model, parameter_size=size)
    other = _select(real, candidates, requested, current, required_classes)
    return other if other.chosen is not None and other.fits else selection


def _select(
    model: ModelFacts,
    candidates: Sequence[Candidate | InvalidRuntime],
    reference: Reference | None,
    current: Reference | None,
    required_classes: frozenset[str],
) -> Selection:
    request = Matcher(model, required_classes)
    if reference is not None:
        return _select_requested(reference, candidates, request)
    matches = [request.match(one) for one in candidates if isinstance(one, Candidate)]
    fitting = sorted((one for one in matches if not one.gaps), key=request.order)
    ranked = tuple(RuntimeChoice(reference=one.candidate.reference, score=one.score) for one in fitting)
    current_match = next(
        (one for one in matches if one.candidate.reference == current and _keeps_serving(one, model)), None
    )
    if current_match is not None:
        chosen = RuntimeChoice(reference=current_match.candidate.reference, score=current_match.score)
        beaten = bool(fitting) and (
            current_match.gaps > 0 or request.order(fitting[0])[:-1] < request.order(current_match)[:-1]
        )
        return Selection(chosen=chosen, ranked=ranked, better=ranked[0] if beaten else None)
    if ranked:
        return Selection(chosen=ranked[0], ranked=ranked)
    if model.format is None:
        return _reject("BaseModelNotReady", UNKNOWN)
    closest = heapq.nsmallest(MOST_EXCLUDED, matches, key=_closeness)
    broken = (Excluded(one.reference, (f"it {one.message}",)) for one in candidates if isinstance(one, InvalidRuntime))
    excluded = (*(Excluded(one.candidate.reference, request.reasons(one)) for one in closest), *broken)[:MOST_EXCLUDED]
    fault = InvalidSpecError("NoRuntime", _no_runtime(model, excluded, len(candidates)))
    return Selection(excluded=excluded, excluded_count=len(candidates), fault=fault)


def facts(spec: BaseModelSpec) -> ModelFacts:
    """Return the facts of a model that a selection uses, from the model's spec."""
    pipeline = spec.diffusion_pipeline
    try:
        parameters = parse_size(spec.additional_metadata.get(PARAMETER_SIZE, "0"))
    except ValueError:
        parameters = 0
    return ModelFacts(
        architecture=spec.model_architecture or "",
        format=_named_version(spec.model_format),
        framework=_named_version(spec.model_framework),
        parameter_size=spec.model_parameter_size or "",
        parameters=parameters,
        quantization=spec.quantization or "",
        diffusion_pipeline=None if pipeline is None else msgspec.to_builtins(pipeline),
    )


def required_classes(service: Object) -> frozenset[str]:
    """Return the accelerator classes that an InferenceService requests, in its annotation or in any part of its
    spec."""
    spec, annotations = service.get("spec") or {}, annotations_of(service)
    overrides = (as_object(spec.get(part)).get("acceleratorOverride") for part in PARTS)
    classes = (as_object(one).get("acceleratorClass") for one in (spec.get("acceleratorSelector"), *overrides))
    return frozenset(
        one for one in (annotations.get(names.ACCELERATOR_CLASS), *classes) if one and isinstance(one, str)
    )


def runtime_status(selection: Selection) -> Object | None:
    """Return ``status.runtime`` of a service: the chosen runtime, the origin of the choice, the next two best runtimes
    and, if any, a better one. Return None if no runtime is chosen."""
    chosen = selection.chosen
    if chosen is None:
        return None
    others = [_row(one) for one in selection.ranked if one.reference != chosen.reference]
    better = {"better": _row(selection.better)} if selection.better else {}
    return {**_row(chosen), "chosen": chosen.by, "next": others[:2], **better}


def excluded_status(selection: Selection) -> list[Object]:
    """Return ``status.excluded`` of a service: the excluded runtimes, each with the most important reason."""
    return [{**_identity(one.reference), "reason": one.reasons[0]} for one in selection.excluded]


def _row(one: RuntimeChoice) -> Object:
    return {**_identity(one.reference), "score": one.score}


def _identity(reference: Reference) -> Object:
    return {"name": reference.name, "kind": reference.kind.kind}


def _select_requested(
    reference: Reference, candidates: Sequence[Candidate | InvalidRuntime], matcher: Matcher
) -> Selection:
    same_name = [one for one in candidates if one.reference.name == reference.name]
    runtime = min(same_name, key=lambda one: not one.reference.kind.namespaced, default=None)
    if runtime is None:
        kinds = "no ServingRuntime in its namespace and no ClusterServingRuntime"
        suggestion = did_you_mean(reference.name, sorted({one.reference.name for one in candidates}))
        text = f"spec.runtime names {reference.name}, but there is {kinds} of this name"
        return _reject("RuntimeNotFound", f"{text}{suggestion}")
    subject = f"the {runtime.reference.kind.kind} {reference.name}"
    if isinstance(runtime, InvalidRuntime):
        return _reject("RuntimeInvalid", f"{subject} {runtime.message}")
    if runtime.disabled:
        return _reject("RuntimeDisabled", f"{subject} is disabled: enable it, or set another one in spec.runtime")
    matches = matcher.match(runtime)
    matches = matches._replace(gaps=matches.gaps & ~NOT_OFFERED)
    unfit = matcher.reasons(matches) if matcher.model.format else ()
    return Selection(chosen=RuntimeChoice(reference=runtime.reference, score=matches.score, by="Service", unfit=unfit))


def _reject(reason: str, message: str) -> Selection:
    return Selection(fault=InvalidSpecError(reason, message))


def _keeps_serving(match: Match, model: ModelFacts) -> bool:
    """Whether a runtime that already serves the model continues to do so. A model without a known format, for example
    after it was recreated, keeps its runtime unless the runtime is disabled."""
    return match.gaps <= NOT_OFFERED or (model.format is None and not match.candidate.disabled)


def _closeness(match: Match) -> tuple[Any, ...]:
    reference = match.candidate.reference
    return match.gaps, not reference.kind.namespaced, reference.name


def _no_runtime(model: ModelFacts, excluded: Sequence[Excluded], count: int) -> str:
    if not excluded:
        return "there is no runtime: apply a ServingRuntime or a ClusterServingRuntime, or set an image in spec.engine"
    closest = "; ".join(f"{one.reference.name}: {', '.join(one.reasons)}" for one in excluded[:MAX_LISTED])
    others = f"; status.excluded has the others, {count} in all" if count > MAX_LISTED else ""
    return f"no runtime serves {_describe_model(model)}. Closest: {closest}{others}"


def _describe_model(model: ModelFacts) -> str:
    formats = [f"{one.name} {one.version}".strip() for one in (model.format, model.framework) if one]
    return ", ".join(
        f"{one:.64}" for one in (*formats, model.architecture, model.quantization, model.parameter_size) if one
    )


def _named_version(one: ModelFormat | None) -> VersionedName | None:
    return VersionedName(one.name, one.version or "") if one and one.name else None
