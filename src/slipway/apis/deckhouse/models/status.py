"""Status of a Model or ClusterModel: the phase, and the conditions that explain the phase. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.models import plan as models
from slipway.apis.deckhouse.models.plan import ARTIFACT_RESOLVED, METADATA_RESOLVED, READY, UPLOAD, ModelView
from slipway.apis.deckhouse.types import Phase
from slipway.artifacts.documents.publication import ENDPOINT_TYPES, FEATURES, Facts, Publication
from slipway.artifacts.locations import model_pages
from slipway.kube.objects import Object, deleting, generation
from slipway.kube.schemas.conditions import SUMMARY, Condition, find, timestamp
from slipway.serving.containers.diagnosis import sentence
from slipway.serving.contract.api import InvalidSpecError, Rejection, StatusResult
from slipway.serving.status.builder import build_status, first_rejection, permanent, verdict
from slipway.weights.jobs import progress, publications, turns
from slipway.weights.jobs.turns import PENDING, TURN

CONDITIONS = SUMMARY | {ARTIFACT_RESOLVED, METADATA_RESOLVED, TURN}
FAILED, PUBLISHED = "Failed", "ArtifactPublished"
PUBLISHING: Literal["Publishing"] = "Publishing"
PUBLICATION_FAILED, INSUFFICIENT, VANISHED = "PublicationFailed", "InsufficientStorage", "ArtifactVanished"
CALCULATED, PARTIAL = "ModelMetadataCalculated", "ModelMetadataPartial"
AWAITED = "WaitingForUserUpload"
PASSED_THROUGH = frozenset({PENDING, PUBLISHING, AWAITED})
"""Reasons of conditions that are transient states, for which no Events are created."""
TURN_SECONDS, WAIT_SECONDS = 30.0, 300.0
"""Seconds after which the status may change without an event. WAIT_SECONDS is for models that are not next in their
namespace."""
TURNS: Mapping[turns.Place, tuple[Literal["True", "False", "Unknown"], str, str]] = {
    "has": ("True", "HasTurn", "The model is being published."),
    "next": ("Unknown", "NextInNamespace", "The model is the next one in its namespace."),
    "waits": ("False", "WaitingInNamespace", "Older models in the namespace come first."),
}
MOST_SIZE = (1 << 63) - 1
"""The largest integer that the API server accepts."""
MOST_NAMED = 5
"""Maximum number of workloads that a message lists."""


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a model, from which its status is built."""

    phase: Phase
    message: str
    artifact: str = PENDING
    """Reason of the condition ArtifactResolved."""
    ready: str = PENDING
    """Reason of the condition Ready."""
    progress: str = ""
    recheck: float | None = None
    publication: Publication | None = None
    """The finished publication, if it is not in the model's status yet."""
    turn: turns.Place | None = None
    """Place of the model in its queue. None if the model needs no turn, or could not begin its turn."""
    size: int = 0
    """Size in bytes that the publisher reports. 0 if the size is unknown."""
    retried: Rejection | None = None
    """Retryable rejection of the model's plan, if any."""


def status(view: ModelView, rejection: Rejection | None) -> StatusResult:
    state = _determine_state(view)
    rejection = first_rejection(view.origin, rejection)
    if rejection is not None and state.phase not in ("Ready", "Deleting") and not view.vanished:
        state = _rejected(state, rejection)
    before = view.status
    fields = {
        "observedGeneration": generation(view.model),
        "phase": state.phase,
        "progress": state.progress or before.get("progress"),
        "source": _source(view, state),
        "upload": _upload(view) if state.phase == "WaitForUpload" else None,
    }
    if state.publication is not None:
        fields |= {"artifact": _artifact(state.publication), "resolved": _resolved(view, state.publication.facts)}
    elif view.published:
        fields |= {field: before.get(field) for field in ("artifact", "resolved")}
    elif size := state.size or turns.size_of(view.model):  # data sent so far stays in the registry for some time
        fields |= {"artifact": {"sizeBytes": min(size, MOST_SIZE)}}
    return build_status(
        view.model,
        _without_empty(fields),
        _conditions(view, state),
        rechecks=(state.recheck,),
        passed_through=PASSED_THROUGH,
    )


def _rejected(state: ModelState, rejection: Rejection) -> ModelState:
    refused = permanent(rejection)
    if refused is None:
        turn = state.turn if state.phase == PUBLISHING else None  # it could not begin, and must not block others
        in_turn = msgspec.structs.replace(state, turn=turn)
        if state.phase == "Failed":
            return in_turn
        return msgspec.structs.replace(in_turn, message=rejection.message, retried=rejection)
    reason = models.UNSUPPORTED if refused.reason == models.UNSUPPORTED else PUBLICATION_FAILED
    return _failed(refused.message, reason, state.recheck)


def _failed(message: str, reason: str = PUBLICATION_FAILED, recheck: float | None = None) -> ModelState:
    return ModelState(phase="Failed", message=sentence(message), artifact=reason, ready=FAILED, recheck=recheck)


def _conditions(view: ModelView, state: ModelState) -> tuple[Condition, ...]:
    artifact = "True" if state.artifact == PUBLISHED else "False"
    conditions: tuple[Condition, ...] = (Condition(ARTIFACT_RESOLVED, artifact, state.artifact, state.message),)
    if state.turn is not None:
        value, reason, message = TURNS[state.turn]
        conditions = (*conditions, Condition(TURN, value, reason, message))
    if state.phase != "Ready":
        ready = Condition(READY, "False", state.ready, state.message)
        return (*conditions, verdict(state.retried, "", type_=READY) if state.retried else ready)
    condition = find(view.model, METADATA_RESOLVED) or {}
    partial = state.publication.facts.partial if state.publication else condition.get("reason") == PARTIAL
    text = "Some metadata is unknown." if partial else "It was read from the model's files."
    metadata = (PARTIAL if partial else CALCULATED, text)
    return (
        *conditions,
        Condition(METADATA_RESOLVED, "True", *metadata),
        Condition(READY, "True", "Ready", "Workloads can use the model."),
    )


# Phases


def _determine_state(view: ModelView) -> ModelState:
    if deleting(view.model):
        return _leaving(view)
    if view.vanished:
        return _vanished(view.published)
    if view.published:
        return _there(view.published)
    if isinstance(view.origin, InvalidSpecError):
        return _failed(view.origin.message)
    if not view.settings.registry:
        return _pending(view, models.NO_REGISTRY)
    if not view.origin.source:
        return _pending(view, view.origin.waiting) if view.origin.provider == "Catalog" else _session(view)
    has_begun = models.has_begun(view)
    if has_begun and (publication := view.publication) is not None:
        return _there(publication.digest, publication)
    return _publishing(view) if has_begun or _keeps_turn(view) else _waiting(view)


def _keeps_turn(view: ModelView) -> bool:
    """Whether the model has its turn, but currently no Job, and need not yield the turn."""
    queue = models.queue(view)
    has = turns.place(view.world, queue) == "has"
    return has and view.run.job is None and not turns.must_yield(view.world, queue)


def _waiting(view: ModelView) -> ModelState:
    waits = _pending(view, "The model waits for other publications, or for space in the registry.")
    turn = turns.place(view.world, models.queue(view))
    turn = "waits" if turn == "has" else turn  # it yields its turn
    return msgspec.structs.replace(waits, turn=turn, recheck=WAIT_SECONDS if turn == "waits" else TURN_SECONDS)


def _there(digest: str, publication: Publication | None = None) -> ModelState:
    message = f"The model is in the registry as {digest}."
    return ModelState(phase="Ready", message=message, artifact=PUBLISHED, progress="100%", publication=publication)


def _vanished(digest: str) -> ModelState:
    text = f"The registry no longer has {digest}. Delete the model and create it again to publish it again"
    return _failed(text, VANISHED)


def _pending(view: ModelView, message: str) -> ModelState:
    none = "0%" if view.valid().provider == "Upload" else ""
    return ModelState(phase="Pending", message=message, progress=none, recheck=TURN_SECONDS)


def _session(view: ModelView) -> ModelState:
    if not view.can_upload:
        return _pending(view, models.NO_KEY)
    if not view.until:
        return _pending(view, "The upload is being prepared.")
    remaining, until = view.until - view.world.now, timestamp(view.until)
    if remaining <= 0:
        return _failed(
            f"Nothing was uploaded until {until}, when the session expired. Delete the model and create it again"
        )
    secret = f"The Secret {names.child(view.model, UPLOAD)} in {view.namespace}"
    text = f"{secret} has the URL and token of the upload until {until}."
    return ModelState(phase="WaitForUpload", message=text, artifact=AWAITED, progress="0%", recheck=remaining)


def _publishing(view: ModelView) -> ModelState:
    state = publications.state(view.record, view.run, view.world)
    if state.failed:
        reason = state.fault if state.fault in (INSUFFICIENT, models.UNSUPPORTED) else PUBLICATION_FAILED
        return _failed(state.message, reason or PUBLICATION_FAILED, state.recheck)
    return ModelState(
        phase=PUBLISHING,
        message=state.message,
        artifact=PUBLISHING,
        ready=PUBLISHING,
        progress=publications.percent(state.done, view.record.total, view.progress),
        recheck=TURN_SECONDS if view.run.job is None else min(filter(None, (state.recheck, _remaining_turn(view)))),
        turn="has",
        size=publications.size(view.run, view.world),
    )


def _remaining_turn(view: ModelView) -> float:
    remaining = turns.remaining_slice(view.model, view.world)
    return remaining if remaining > 0 else TURN_SECONDS


def _leaving(view: ModelView) -> ModelState:
    going = ModelState(phase="Deleting", message="The model is being removed from the registry.", recheck=TURN_SECONDS)
    if view.users:
        rest = len(view.users) - MOST_NAMED
        named = ", ".join(view.users[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
        text = f"The model will be deleted when these no longer use it: {named}."
        return msgspec.structs.replace(going, message=text, artifact=PUBLISHED if view.published else PENDING)
    if view.removal.failed_since is None:
        return going
    why = sentence(view.removal.fault[1] or "no reason is given")
    text = f"The model could not be removed from the registry: {why} {progress.AGAIN}"
    return msgspec.structs.replace(going, message=text, ready=FAILED)


# Fields


def _source(view: ModelView, state: ModelState) -> Object:
    before: Object = view.status.get("source") or {}
    if isinstance(view.origin, InvalidSpecError):
        return _without_empty({"resolvedType": model_pages.provider_of(view.url)})
    entry, provenance = view.origin.entry, {}
    if entry and state.phase != "Pending":
        provenance = {
            "name": entry.name,
            "sourceName": entry.source_name,
            "version": entry.version,
            "catalogRevision": entry.revision,
            "remoteDigest": entry.digest,
        }
    revision = state.publication.revision if state.publication else before.get("resolvedRevision")
    fields = {"resolvedType": view.origin.provider, "resolvedRevision": revision, "catalog": _without_empty(provenance)}
    return _without_empty(fields)


def _upload(view: ModelView) -> Object:
    name = names.child(view.model, UPLOAD)
    return {"expiresAt": timestamp(view.until), "secretName": name, "secretNamespace": view.namespace}


def _artifact(publication: Publication) -> Object:
    return _without_empty(
        {
            "kind": "OCI",
            "digest": publication.digest,
            "mediaType": publication.media_type,
            "sizeBytes": publication.size,
        }
    )


def _resolved(view: ModelView, facts: Facts) -> Object:
    capabilities = {"provider": view.valid().provider, "tasks": _each(facts.tasks), "features": _each(facts.features)}
    fields = {
        "format": facts.format,
        "family": facts.family,
        "architecture": facts.architecture,
        "parameterCount": facts.parameters,
        "quantization": facts.quantization,
        "contextWindowTokens": facts.context,
        "supportedEndpointTypes": _each(facts.endpoint_types, ENDPOINT_TYPES),
        "supportedFeatures": _each(facts.supported_features, FEATURES),
        "sourceCapabilities": _without_empty(capabilities),
    }
    return _without_empty(fields)


def _each(words: Sequence[str], allowed: Sequence[str] = ()) -> list[str]:
    """Return the words without duplicates. If ``allowed`` is not empty, other words are removed."""
    return [word for word in dict.fromkeys(words) if not allowed or word in allowed]


def _without_empty(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value}
