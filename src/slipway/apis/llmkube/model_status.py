"""Status of a Model: where its weights are, or how far they are on their way, and what their header says. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.apis.llmkube import cache, later, loading, uses, words
from slipway.apis.llmkube.cache import Record
from slipway.apis.llmkube.hardware import resource
from slipway.apis.llmkube.loading import Run
from slipway.apis.llmkube.model_types import KIND
from slipway.apis.llmkube.weights import Model, wanted
from slipway.artifacts.report import Report
from slipway.kube.conditions import Condition, last_updated, timestamp
from slipway.kube.objects import Object, created_unix, deleting, generation, uid
from slipway.serving.agent import Progress
from slipway.serving.authors import NOT_ALLOWED
from slipway.serving.diagnosis import Diagnosis, Limits, diagnose, sentence
from slipway.serving.job import without_pods
from slipway.serving.plan import Invalid, Refusal, Verdict, World

Phase = Literal["Pending", "Downloading", "Copying", "Ready", "Failed"]
UNBOUND_SECONDS, MISSING_SECONDS, WAITING_SECONDS, LEAVING_SECONDS, IN_USE_SECONDS = 10.0, 30.0, 10.0, 30.0, 5.0
"""When to look again, where time alone may change something, or a word of the API server gets lost."""
STARTING_SECONDS = 60
ALL_IS_WELL = "AsExpected"
LOADING = "LoadingCache"
"""Reason why weights are not available while they are on their way."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a Model's weights."""

    phase: Phase
    reason: str
    message: str
    under_way: str = ""
    """What is done meanwhile for weights that are ready."""
    report: Report | None = None
    recalled: Object = {}
    """Fields of the status as it is, of weights whose report is gone."""
    record: Record | None = None
    progress: Progress | None = None
    recheck: float | None = None


def status(world: World, refusal: Refusal | None) -> Verdict:
    model, state = _judged(world, refusal)
    found: Object = {"phase": state.phase, "observedGeneration": generation(world.resource)}
    if model is not None:
        found |= {**state.recalled, **_facts(model, state), "acceleratorReady": _equipped(model, world)}
    found["conditions"] = [
        msgspec.to_builtins(msgspec.structs.replace(condition, observed_generation=generation(world.resource)))
        for condition in (*_conditions(state), *later.ignored(KIND.kind, world.resource["spec"]))
    ]
    stamp = last_updated(world.resource.get("status") or {}, found, world.now)
    return Verdict(found | {"lastUpdated": stamp}, _soonest(state.recheck, _until_unread(world)))


def _judged(world: World, refusal: Refusal | None) -> tuple[Model | None, State]:
    try:
        model = wanted(world, uses.demand(world))
    except Invalid as error:
        return None, State(phase="Failed", reason=error.reason, message=error.message)
    if deleting(world.resource):
        return model, _leaving(model, world)
    state = _state(model, world)
    if refusal is None or (state.phase == "Ready" and refusal.reason != NOT_ALLOWED):
        return model, state
    phase: Phase = "Pending" if refusal.passing else "Failed"
    return model, State(phase=phase, reason=refusal.reason, message=refusal.message)


def _state(model: Model, world: World) -> State:
    if model.on_a_mac:
        text = "Weights for Macs are loaded by the agent there; nothing in the cluster can serve them."
        return State(phase="Ready", reason="MetalAgentManaged", message=text)
    if model.in_claim:
        return _in_claim(model, world)
    if model.cached:
        return _in_cache(model, world)
    if model.by_each_pod:
        return _from_afar(model, world)
    text = f"Programs that take repositories fetch {model.source.repository} themselves when they start."
    return State(phase="Ready", reason="RuntimeResolved", message=text)


def _leaving(model: Model, world: World) -> State:
    record = loading.record_of(model, world)
    holders = cache.holders(world, world.referenced.get(cache.claim_reference(model.namespace)))
    if holders:
        several = len(holders) != 1
        some = f"the InferenceService{'s' * several} {', '.join(holders)} read{'s' * (not several)}"
        text = f"The Model is being deleted, and goes when {some} its weights no longer."
        return State(phase="Pending", reason="InUse", message=text, record=record, recheck=IN_USE_SECONDS)
    text = "The Model is being deleted: its weights leave the cache where no other Model uses them."
    return State(phase="Pending", reason="Leaving", message=text, recheck=LEAVING_SECONDS)


def _until_unread(world: World) -> float | None:
    """When to look whether folders can go that pods read: a pod's end is told to nobody."""
    claim = world.referenced.get(cache.claim_reference(world.resource["metadata"]["namespace"]))
    return LEAVING_SECONDS if cache.idle_but_read(world, claim) else None


def _from_afar(model: Model, world: World) -> State:
    """Weights that each pod loads itself: their header is of interest, and whether the source has them at all."""
    run = loading.inspection(model, world)
    failed = _failed(model, run, world.now, "InspectionFailed")
    if failed is not None and run.fault[0]:
        return failed
    kept = model.settings.model_cache.persistence == "Cached"
    why = "No service wants these weights in the cache" if kept else "There is no cache"
    text = _described(f"{why}: each pod loads them itself", run.report or Report())
    recheck, recalled = _until(run.retried_at(), world.now), {} if run.report else _recalled(world)
    return State(
        phase="Ready", reason=uses.BY_EACH_POD, message=text, report=run.report, recalled=recalled, recheck=recheck
    )


def _recalled(world: World) -> Object:
    """What the status says of weights that were ready with this spec. The pod that told it may go with its node; what
    is known stays until the next one has looked."""
    status = world.resource.get("status") or {}
    if status.get("phase") != "Ready" or status.get("observedGeneration") != generation(world.resource):
        return {}
    return {field: status[field] for field in ("size", "sha256", "gguf") if field in status}


def _in_cache(model: Model, world: World) -> State:
    record, claim = loading.record_of(model, world), world.referenced.get(cache.claim_reference(model.namespace))
    if record is not None and record.complete:
        return _complete(model, world, record)
    if claim is not None and deleting(claim):
        text = "The cache's claim is being deleted; a new one is filled when it is gone."
        return State(phase="Pending", reason=_started(model), message=text, recheck=WAITING_SECONDS)
    if cache.being_evicted(world, record):
        text = "Another Model takes these weights out of the cache; they are loaded again after that."
        return State(phase="Pending", reason=_started(model), message=text, recheck=WAITING_SECONDS)
    pause = uses.undecided(world, uses.demand(world))
    if pause and record is None:
        text = "The weights are loaded in a moment, unless the first services bring them themselves."
        return State(phase="Pending", reason=_started(model), message=text, recheck=pause)
    return _brought(model, world, loading.download(model, world))


def _complete(model: Model, world: World, record: Record) -> State:
    expected, found = model.spec.sha256.lower(), record.report.sha256
    due = _due(model, world, record)
    if expected and expected != found:
        newer = _brought(model, world, loading.download(model, world))
        text = f"What the cache has of this source has another SHA-256 than is expected. {newer.message}"
        message = newer.message if newer.phase == "Failed" else text
        return msgspec.structs.replace(newer, message=message, record=record)
    reason = "ModelReady" if record.by == model.name else "ModelCached"
    text = _described("The weights are complete in the cache", record.report)
    ready = State(phase="Ready", reason=reason, message=text, report=record.report, record=record, recheck=due)
    if loading.is_current(model, record):
        return ready
    newer = _brought(model, world, loading.download(model, world))
    under_way = f"The source has changed; what it has now is loaded. {newer.message}"
    return msgspec.structs.replace(ready, under_way=under_way, progress=newer.progress, recheck=newer.recheck)


def _due(model: Model, world: World, record: Record) -> float | None:
    """Seconds until the source is asked again."""
    interval = model.settings.sources.revalidate_seconds
    return max(record.asked + interval - world.now, WAITING_SECONDS) if interval else None


def _brought(model: Model, world: World, run: Run) -> State:
    """Weights that a Job brings."""
    failed = _failed(model, run, world.now, "CopyFailed" if model.source.kind == "host" else "DownloadFailed")
    if failed is not None:
        return failed
    running = [pod for pod in run.pods if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
    diagnosis = _diagnosis(world, run, running)
    if diagnosis.failure:
        failure = diagnosis.failure
        return State(phase="Failed", reason=failure.reason, message=failure.message, recheck=diagnosis.recheck_seconds)
    told = (world.agents.get(uid(pod)) for pod in running)
    progress = next((report.progress for report in told if report and report.progress), None)
    parts = ["The weights are being loaded into the cache."]
    if progress and progress.message:
        parts = [f"The weights are being loaded into the cache: {sentence(progress.message)}"]
    attempts = len(run.pods) - len(running) - (run.complete_since is not None)
    if attempts > 0:
        parts.append(f"{attempts} attempt{'s' * (attempts != 1)} failed: {sentence(run.fault[1])}")
    began = progress is not None or any(_runs(pod) for pod in running)
    if model.source.kind == "host" and not began:
        parts += [_held_up(pod) for pod in running if _waits(pod, world.now)]
    moving: Phase = "Copying" if model.source.kind == "host" else "Downloading"
    return State(
        phase=moving if began else "Pending",
        reason=_started(model),
        message=" ".join(parts),
        progress=progress,
        recheck=_soonest(diagnosis.recheck_seconds, _until(run.retried_at(), world.now)),
    )


def _failed(model: Model, run: Run, now: float, otherwise: str) -> State | None:
    if run.failed_since is None:
        return None
    word, text = run.fault
    retried = run.retried_at()
    name = run.wanted["metadata"]["name"]
    again = "It is tried again by itself." if retried else f"Change the spec, or delete the Job {name} to try again."
    does = "be loaded" if model.cached else "be read"
    message = f"The weights could not {does}: {sentence(text or 'no reason is given')} {again}"
    return State(phase="Failed", reason=word or otherwise, message=message, recheck=_until(retried, now))


def _in_claim(model: Model, world: World) -> State:
    """Weights that lie where they are read: ready when their claim is, and their hash, where one is expected."""
    claim = world.referenced.get(model.claim) if model.claim else None
    name = model.source.claim
    if claim is None:
        text = f"There is no claim {name} in the namespace {model.namespace}."
        return State(phase="Failed", reason="PVCNotFound", message=text, recheck=MISSING_SECONDS)
    if claim.get("status", {}).get("phase") != "Bound":
        text = f"The claim {name} has no volume yet."
        return State(phase="Pending", reason="PVCNotBound", message=text, recheck=UNBOUND_SECONDS)
    run, ready = loading.inspection(model, world), f"The weights are on the claim {name}"
    failed = _failed(model, run, world.now, "InspectionFailed")
    if failed is not None and (model.spec.sha256 or run.fault[0]):
        return failed
    report, retried = run.report, _until(run.retried_at(), world.now)
    recalled = {} if report else _recalled(world)
    if report is None and model.spec.sha256.lower() not in ("", recalled.get("sha256")):
        checked = _brought(model, world, run)
        if checked.phase == "Failed":
            return checked
        text = "The weights are read, as a hash of them is expected."
        return State(phase="Pending", reason="IntegrityCheckStarted", message=text, recheck=checked.recheck)
    if model.spec.sha256 and report is not None and report.sha256 != model.spec.sha256.lower():
        text = f"The weights have the SHA-256 {report.sha256 or '(unknown)'}, not the one that is expected."
        return State(phase="Failed", reason="IntegrityCheckFailed", message=text)
    text = _described(ready, report or Report())
    return State(phase="Ready", reason="PVCModelReady", message=text, report=report, recalled=recalled, recheck=retried)


def _diagnosis(world: World, run: Run, running: list[Object]) -> Diagnosis:
    """Why no pod of the Job gets on. None of its containers is an engine's."""
    if not run.pods:
        return without_pods(run.made, "loads the weights", world.now)
    patience = Limits(
        startup_seconds=0,
        unschedulable_grace_seconds=world.settings.unschedulable_grace_seconds,
        drain_seconds=0,
        container="",
    )
    return diagnose(None, running, patience, world.now, lambda _log: None)


def _runs(pod: Object) -> bool:
    return any("running" in one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", []))


def _waits(pod: Object, now: float) -> bool:
    """Whether a pod has a node and does not start there, for longer than that takes."""
    return bool(pod.get("status", {}).get("hostIP")) and now - created_unix(pod) > STARTING_SECONDS


def _held_up(pod: Object) -> str:
    return f"The pod does not start on the node {pod['status']['hostIP']}, as on every one that has no such file."


def _started(model: Model) -> str:
    return "CopyStarted" if model.source.kind == "host" else "DownloadStarted"


def _until(at: float | None, now: float) -> float | None:
    return None if at is None else max(at - now, 1.0)


def _soonest(*times: float | None) -> float | None:
    return min((one for one in times if one is not None), default=None)


def _described(begin: str, report: Report) -> str:
    """A sentence with what their header says of them."""
    parts = [f"{report.files} files"] if report.files > 1 else []
    if report.safetensors:
        numbers = report.safetensors.parameters
        total = sum(numbers.values())
        parts.append(f"{report.safetensors.tensor_count} tensors, {total:,} parameters ({', '.join(numbers)})")
    if report.header_fault:
        parts.append(f"their header says nothing: {report.header_fault}")
    return f"{begin}{': ' if parts else ''}{'; '.join(parts)}."


def _facts(model: Model, state: State) -> Object:
    """All fields of the status that tell of the weights; what is not known is not there."""
    report, record = state.report or Report(), state.record
    sized = model.cached or model.in_claim or model.by_each_pod
    found: Object = {
        "size": words.human(report.size) if report.size else "",
        "doneBytes": state.progress.done_bytes if state.progress else 0,
        "totalBytes": state.progress.total_bytes if state.progress else 0,
        "path": model.path(state.report) if state.phase == "Ready" and sized else "",
        "cacheKey": model.key if model.cached else "",
        "sha256": report.sha256,
        "sourceETag": record.report.etag if record else "",
        "sourceContentLength": record.report.size if record else 0,
        "lastRevalidated": timestamp(record.asked) if record and record.complete else "",
        "gguf": words.header(report.gguf) if report.gguf else {},
    }
    return {field: value for field, value in found.items() if value}


def _equipped(model: Model, world: World) -> bool:
    """Whether some node has what pods would ask for. Macs are none of ours, and a processor is everywhere."""
    hardware = model.spec.hardware
    if hardware.accelerator == "metal" or (hardware.accelerator == "cpu" and not hardware.gpu.count):
        return True
    return resource(hardware) in world.extended_resources


def _conditions(state: State) -> list[Condition]:
    drifted = _drifted(state)
    if state.phase == "Ready":
        going = (
            ("True", "DownloadStarted", state.under_way)
            if state.under_way
            else ("False", ALL_IS_WELL, "Nothing is under way.")
        )
        return [
            Condition("Available", "True", state.reason, state.message),
            Condition("Progressing", *going),
            Condition("Degraded", "False", ALL_IS_WELL, "Nothing is wrong."),
            *drifted,
        ]
    elsewhere = "See the condition Available."
    if state.phase == "Failed":
        return [
            Condition("Available", "False", state.reason, state.message),
            Condition("Progressing", "False", state.reason, elsewhere),
            Condition("Degraded", "True", state.reason, elsewhere),
            *drifted,
        ]
    quiet = LOADING if state.reason in ("DownloadStarted", "CopyStarted", "IntegrityCheckStarted") else state.reason
    return [
        Condition("Available", "False", quiet, state.message),
        Condition("Progressing", "True", state.reason, elsewhere),
        Condition("Degraded", "False", ALL_IS_WELL, "Nothing is wrong."),
    ]


def _drifted(state: State) -> list[Condition]:
    """Only of a source that was asked since."""
    record = state.record
    if record is None or record.seen is None:
        return []
    if not (record.seen.etag or record.seen.size):
        return [Condition("SourceDrifted", "Unknown", "NoAnswer", "The source did not answer when it was asked last.")]
    if record.drifted:
        text = "The source has other weights by now than those that were loaded."
        return [Condition("SourceDrifted", "True", "SourceChanged", text)]
    return [Condition("SourceDrifted", "False", ALL_IS_WELL, "The source has what was loaded.")]
