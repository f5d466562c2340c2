"""The status of a Model: the location of its weights, the progress of their download, and the metadata in their header.
Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.apis.llmkube.models import cache, loading, nodes, usage
from slipway.apis.llmkube.models.cache import Record
from slipway.apis.llmkube.models.loading import ObservedJob
from slipway.apis.llmkube.models.resolve import ModelView
from slipway.apis.llmkube.models.spec import Model
from slipway.apis.llmkube.rules.hardware import resource
from slipway.apis.llmkube.rules.updated import stamped
from slipway.apis.llmkube.settings import llmkube
from slipway.artifacts.documents.report import Report
from slipway.kube.objects import NODE, Object, created_unix, generation
from slipway.kube.schemas.conditions import Condition, timestamp
from slipway.serving.contract.api import InvalidSpecError, Rejection, StatusResult, World
from slipway.serving.contract.authors import NOT_ALLOWED
from slipway.serving.status.builder import build_status, verdict
from slipway.serving.wire.agent import Progress
from slipway.weights import facts
from slipway.weights.facts import describe_header
from slipway.weights.jobs import progress

Phase = Literal["Pending", "Downloading", "Copying", "Ready", "Failed"]
UNBOUND_SECONDS, MISSING_SECONDS, WAITING_SECONDS, LEAVING_SECONDS, IN_USE_SECONDS = 10.0, 30.0, 10.0, 30.0, 5.0
"""Seconds until the status is computed again, because it may change without an event, or an event may have been
lost."""
STARTING_SECONDS = 60
CONDITIONS = frozenset({"Available", "Progressing", "Degraded", "SourceDrifted"})
"""Types of the conditions of Models."""
ALL_IS_WELL = "AsExpected"
LOADING = "LoadingCache"
"""Reason of the condition Available while the weights are being loaded."""
LEAVING = "Leaving"
PASSED_THROUGH = frozenset({LOADING, LEAVING})
"""Intermediate reasons, which cause no Events."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a Model's weights."""

    phase: Phase
    reason: str
    message: str
    under_way: str = ""
    """Message about the download of newer weights while the current weights are ready; empty: there is none."""
    report: Report | None = None
    recalled: Object = {}
    """Fields to keep from the current status, for weights whose report is no longer available."""
    record: Record | None = None
    progress: Progress | None = None
    recheck: float | None = None
    rejection: Rejection | None = None
    """Why the Model's plan is not applied; None: it is applied, the Model is being deleted, or the weights are ready or
    have failed for another reason."""


def status(view: ModelView, rejection: Rejection | None) -> StatusResult:
    world = view.world
    model, state = _determine_state(view, rejection)
    fields: Object = {"phase": state.phase, "observedGeneration": generation(world.resource)}
    if model is not None:
        fields |= {**state.recalled, **_facts(model, state)}
        # The devices behind resource claims are unknown here.
        if not model.spec.hardware.gpu.resource_claims:
            fields["acceleratorReady"] = _accelerator_available(model, world)
    rechecks = (state.recheck, LEAVING_SECONDS if loading.waits_for_readers(view) else None)
    result = build_status(world.resource, fields, _conditions(state), rechecks=rechecks, passed_through=PASSED_THROUGH)
    return stamped(result, world.resource, CONDITIONS, world.now)


def _determine_state(view: ModelView, rejection: Rejection | None) -> tuple[Model | None, State]:
    model = view.model
    if isinstance(model, InvalidSpecError):
        return None, _rejected(Rejection(model.reason, model.message), "Failed")
    if view.leaving:
        return model, _leaving(view)
    state = _state(view, model)
    if rejection is None or (state.phase == "Ready" and rejection.reason != NOT_ALLOWED):
        return model, state
    if rejection.retryable:
        return model, state if state.phase == "Failed" else _rejected(rejection, "Pending")
    return model, _rejected(rejection, "Failed")


def _rejected(rejection: Rejection, phase: Phase) -> State:
    return State(phase=phase, reason=rejection.reason, message=rejection.message, rejection=rejection)


def _state(view: ModelView, model: Model) -> State:
    if model.on_a_mac:
        text = "The agent on the Mac downloads these weights. Nothing in the cluster can serve them."
        return State(phase="Ready", reason="MetalAgentManaged", message=text)
    if model.in_claim:
        return _in_claim(view, model)
    if model.cached:
        return _in_cache(view, model)
    if model.by_each_pod:
        return _loaded_per_pod(view, model)
    text = f"Engines that support repositories download {model.source.repository} themselves at startup."
    return State(phase="Ready", reason="RuntimeResolved", message=text)


def _leaving(view: ModelView) -> State:
    record, readers = view.record, view.readers
    if readers:
        several = len(readers) != 1
        some = f"the InferenceService{'s' * several} {', '.join(readers)} no longer use{'s' * (not several)}"
        text = f"The Model will be deleted when {some} its weights."
        return State(phase="Pending", reason="InUse", message=text, record=record, recheck=IN_USE_SECONDS)
    text = "The Model is being deleted. Its weights are removed from the cache unless another Model uses them."
    return State(phase="Pending", reason=LEAVING, message=text, recheck=LEAVING_SECONDS)


def _loaded_per_pod(view: ModelView, model: Model) -> State:
    """Return the state of a Model whose weights each pod downloads itself. The Model's Job only reads the header, which
    shows whether the source has the weights."""
    inspection = loading.inspection(view, model)
    run = inspection.run
    failed = _failed(model, inspection, view.world.now, "InspectionFailed")
    if failed is not None and run.fault[0]:
        return failed
    is_cached = llmkube(model.settings).model_cache.persistence == "Cached"
    why = "No service needs these weights in the cache" if is_cached else "There is no cache"
    text = describe_header(f"{why}: each pod downloads them itself", run.report or Report())
    recheck, recalled = _until(run.retried_at(), view.world.now), {} if run.report else _previous_facts(view.world)
    return State(
        phase="Ready", reason=usage.BY_EACH_POD, message=text, report=run.report, recalled=recalled, recheck=recheck
    )


def _previous_facts(world: World) -> Object:
    """Return the size, hash and header from the current status if the weights were ready with this spec, otherwise
    nothing. The pod that reported them may be deleted with its node, so they are kept until there is another report."""
    status = world.resource.get("status") or {}
    if status.get("phase") != "Ready" or status.get("observedGeneration") != generation(world.resource):
        return {}
    return {field: status[field] for field in ("size", "sha256", "gguf") if field in status}


def _in_cache(view: ModelView, model: Model) -> State:
    record = view.record
    if record is not None and record.complete:
        return _complete(view, model, record)
    if view.claim_leaving:
        text = "The cache's claim is being deleted. A new one will be filled afterwards."
        return State(phase="Pending", reason=_started(model), message=text, recheck=WAITING_SECONDS)
    if cache.being_evicted(view.world, record):
        text = "Another Model is removing these weights from the cache. They will be downloaded again afterwards."
        return State(phase="Pending", reason=_started(model), message=text, recheck=WAITING_SECONDS)
    if view.settling_seconds and record is None:
        text = "The download starts soon, unless the first services download the weights themselves."
        return State(phase="Pending", reason=_started(model), message=text, recheck=view.settling_seconds)
    return _download_state(view, model, loading.download(view, model))


def _complete(view: ModelView, model: Model, record: Record) -> State:
    expected, actual = model.spec.sha256.lower(), record.report.sha256
    due = _due(view, model, record)
    if expected and expected != actual:
        newer = _download_state(view, model, loading.download(view, model))
        text = f"The cached weights do not have the expected SHA-256. {newer.message}"
        message = newer.message if newer.phase == "Failed" else text
        return msgspec.structs.replace(newer, message=message, record=record)
    reason = "ModelReady" if record.by == model.name else "ModelCached"
    text = describe_header("The weights are complete in the cache", record.report)
    ready = State(phase="Ready", reason=reason, message=text, report=record.report, record=record, recheck=due)
    if loading.is_current(model, record):
        return ready
    newer = _download_state(view, model, loading.download(view, model))
    under_way = f"The source has changed. Its new weights are being downloaded. {newer.message}"
    return msgspec.structs.replace(ready, under_way=under_way, progress=newer.progress, recheck=newer.recheck)


def _due(view: ModelView, model: Model, record: Record) -> float | None:
    """Return the seconds until the next check of the source, at least ``WAITING_SECONDS``, or None if the operator has
    disabled such checks."""
    interval = llmkube(model.settings).revalidate_seconds
    return max(record.checked_at + interval - view.world.now, WAITING_SECONDS) if interval else None


def _download_state(view: ModelView, model: Model, task: ObservedJob) -> State:
    """Return the state of weights that a Job downloads."""
    run, host, world = task.run, model.source.kind == "host", view.world
    failed = _failed(model, task, view.world.now, "CopyFailed" if host else "DownloadFailed")
    if failed is not None:
        return failed
    moving = progress.moving(run, world)
    failure, recheck = moving.diagnosis.failure, moving.diagnosis.recheck_seconds
    if failure:
        return State(phase="Failed", reason=failure.reason, message=failure.message, recheck=recheck)
    began = moving.progress is not None or any(_runs(pod) for pod in moving.running)
    held_up = [_held_up(pod) for pod in moving.running if _waits(pod, world.now)] if host and not began else []
    going: Phase = "Copying" if host else "Downloading"
    return State(
        phase=going if began else "Pending",
        reason=_started(model),
        message=" ".join((moving.message, *held_up)),
        progress=moving.progress,
        recheck=_soonest(recheck, _until(run.retried_at(), world.now)),
    )


def _failed(model: Model, task: ObservedJob, now: float, otherwise: str) -> State | None:
    run = task.run
    if run.failed_since is None:
        return None
    message = progress.failed("be loaded" if model.cached else "be read", run)
    recheck = _until(run.retried_at(), now)
    return State(phase="Failed", reason=run.fault[0] or otherwise, message=message, recheck=recheck)


def _in_claim(view: ModelView, model: Model) -> State:
    """Return the state of weights that pods read from the source's claim. They are ready once the claim is bound,
    unless an inspection has found a fault. If the Model has a hash, the hash must be verified first."""
    claim = view.world.get(model.claim) if model.claim else None
    name = model.source.claim
    if claim is None:
        text = f"There is no claim {name} in the namespace {model.namespace}."
        return State(phase="Failed", reason="PVCNotFound", message=text, recheck=MISSING_SECONDS)
    if claim.get("status", {}).get("phase") != "Bound":
        text = f"The claim {name} has no volume yet."
        return State(phase="Pending", reason="PVCNotBound", message=text, recheck=UNBOUND_SECONDS)
    inspection, ready = loading.inspection(view, model), f"The weights are on the claim {name}"
    run, failed = inspection.run, _failed(model, inspection, view.world.now, "InspectionFailed")
    if failed is not None and (model.spec.sha256 or run.fault[0]):
        return failed
    report, retried = run.report, _until(run.retried_at(), view.world.now)
    recalled = {} if report else _previous_facts(view.world)
    if report is None and model.spec.sha256.lower() not in ("", recalled.get("sha256")):
        checked = _download_state(view, model, inspection)
        if checked.phase == "Failed":
            return checked
        text = "The weights are being read to verify their hash."
        return State(phase="Pending", reason="IntegrityCheckStarted", message=text, recheck=checked.recheck)
    if model.spec.sha256 and report is not None and report.sha256 != model.spec.sha256.lower():
        text = f"The weights have the SHA-256 {report.sha256 or '(unknown)'}, not the expected one."
        return State(phase="Failed", reason="IntegrityCheckFailed", message=text)
    if report is not None and report.fault:
        text = f"No engine can read the weights on the claim {name}: {report.fault}."
        return State(phase="Failed", reason="UnsupportedSource", message=text, recheck=retried)
    text = describe_header(ready, report or Report())
    return State(phase="Ready", reason="PVCModelReady", message=text, report=report, recalled=recalled, recheck=retried)


def _runs(pod: Object) -> bool:
    return any("running" in one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", []))


def _waits(pod: Object, now: float) -> bool:
    """Whether a pod has a node but has not started there for longer than usual."""
    return bool(pod.get("status", {}).get("hostIP")) and now - created_unix(pod) > STARTING_SECONDS


def _held_up(pod: Object) -> str:
    return f"The pod cannot start on the node {pod['status']['hostIP']}: the file may not exist there."


def _started(model: Model) -> str:
    return "CopyStarted" if model.source.kind == "host" else "DownloadStarted"


def _until(at: float | None, now: float) -> float | None:
    return None if at is None else max(at - now, 1.0)


def _soonest(*times: float | None) -> float | None:
    return min((one for one in times if one is not None), default=None)


def _facts(model: Model, state: State) -> Object:
    """Return the status fields that describe the weights, omitting empty and zero values."""
    report, record = state.report or Report(), state.record
    sized = model.cached or model.in_claim or model.by_each_pod
    fields: Object = {
        "size": facts.human(report.size) if report.size else "",
        "doneBytes": state.progress.done_bytes if state.progress else 0,
        "totalBytes": state.progress.total_bytes if state.progress else 0,
        "stagedFiles": list(model.source.files) if record and record.complete and model.spec.files else [],
        "path": model.path(state.report) if state.phase == "Ready" and sized else "",
        "cacheKey": model.place.folder if model.cached else "",
        "sha256": report.sha256,
        "sourceETag": record.report.etag if record else "",
        "sourceContentLength": record.report.size if record else 0,
        "lastRevalidated": timestamp(record.checked_at) if record and record.complete else "",
        "gguf": facts.header(report.gguf) if report.gguf else {},
    }
    return {field: value for field, value in fields.items() if value}


def _accelerator_available(model: Model, world: World) -> bool:
    """Whether a node has the accelerators that the pods would request. Always true for Macs, which are outside of the
    cluster, and for CPUs, which every node has."""
    hardware = model.spec.hardware
    if hardware.accelerator == "metal" or (hardware.accelerator == "cpu" and not hardware.gpu.count):
        return True
    return world.listers.count(NODE, nodes.EXTENDED, resource(hardware)) > 0


def _conditions(state: State) -> list[Condition]:
    drifted = _drifted(state)
    if state.phase == "Ready":
        going = (
            ("True", "DownloadStarted", state.under_way)
            if state.under_way
            else ("False", ALL_IS_WELL, "Nothing is in progress.")
        )
        return [
            Condition("Available", "True", state.reason, state.message),
            Condition("Progressing", *going),
            Condition("Degraded", "False", ALL_IS_WELL, "Nothing is wrong."),
            *drifted,
        ]
    elsewhere, quiet = "See the condition Available.", state.reason
    if state.phase != "Failed" and state.reason in ("DownloadStarted", "CopyStarted", "IntegrityCheckStarted"):
        quiet = LOADING
    available = Condition("Available", "False", quiet, state.message)
    if state.rejection:
        available = verdict(state.rejection, "", type_="Available")
    if state.phase == "Failed":
        return [
            available,
            Condition("Progressing", "False", state.reason, elsewhere),
            Condition("Degraded", "True", state.reason, elsewhere),
            *drifted,
        ]
    return [
        available,
        Condition("Progressing", "True", state.reason, elsewhere),
        Condition("Degraded", "False", ALL_IS_WELL, "Nothing is wrong."),
    ]


def _drifted(state: State) -> list[Condition]:
    """Return the condition SourceDrifted, if the source has been checked."""
    record = state.record
    if record is None or record.last_check is None:
        return []
    if not (record.last_check.etag or record.last_check.size):
        return [Condition("SourceDrifted", "Unknown", "NoAnswer", "The source did not respond to the last check.")]
    if record.has_drifted:
        text = "The source has changed since the download."
        return [Condition("SourceDrifted", "True", "SourceChanged", text)]
    return [Condition("SourceDrifted", "False", ALL_IS_WELL, "The source has not changed since the download.")]
