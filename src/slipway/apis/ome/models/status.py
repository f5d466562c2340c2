"""Status of a model: the nodes that have its files and the progress on other nodes, or the state of its claim. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.apis.ome.models import folders, turns
from slipway.apis.ome.models.jobs import inspection_task, is_bound, observe_job, secret_of
from slipway.apis.ome.models.plan import NodePlan, plan_nodes
from slipway.apis.ome.models.resolve import ModelView
from slipway.apis.ome.models.storage import Stored
from slipway.apis.ome.types import fields_ignored
from slipway.kube.objects import Object, generation, key
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import sentence
from slipway.serving.contract.api import InvalidSpecError, Rejection, StatusResult
from slipway.serving.status.builder import build_status, first_rejection, permanent, verdict
from slipway.weights import facts
from slipway.weights.jobs import progress
from slipway.weights.jobs.progress import Moving

CONDITIONS = frozenset({"Accepted", "Available", "Progressing", "FieldsIgnored"})
LOADING, WAITING, LEAVING, COMPLETE = "Loading", "WaitingForTurn", "Leaving", "Complete"
PASSED_THROUGH = frozenset({LOADING, WAITING, LEAVING})
"""Reasons of conditions that are transient states of a model, not errors."""
UNSOUND = "UnsupportedSource"
"""Condition reason for files that no engine can read."""
TURN_SECONDS, MISSING_SECONDS = turns.RECHECK_SECONDS, 30.0
"""Seconds until the next check of a model whose files are being removed, and of a model whose claim is missing or not
bound."""
MAX_LISTED = 3
"""Maximum number of nodes that a message names."""


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a model's files."""

    state: str
    available: bool = False
    reason: str
    message: str
    under_way: str = ""
    """Message about work in progress, or empty if there is none."""
    fields: Object = {}
    """Status fields in addition to the state and the conditions."""
    recheck: float | None = None


def status(view: ModelView, rejection: Rejection | None) -> StatusResult:
    rejection = first_rejection(view.stored, rejection)
    refused, outcome = permanent(rejection), _determine_state(view)
    if refused is not None and not outcome.available and not view.is_deleted:
        outcome = msgspec.structs.replace(
            outcome, state="Failed", reason=refused.reason, message=refused.message, under_way=""
        )
    conditions = [
        verdict(rejection, "The spec is valid."),
        Condition("Available", "True" if outcome.available else "False", outcome.reason, outcome.message),
        Condition("Progressing", "True" if outcome.under_way else "False", *_progress(outcome)),
        *fields_ignored.condition(view.resource.get("spec") or {}, fields_ignored.MODELS),
    ]
    lifecycle = {"lifecycle": (view.resource.get("status") or {}).get("lifecycle")}
    fields = {name: value for name, value in {**lifecycle, **outcome.fields}.items() if value}
    status_fields = {"state": outcome.state, **fields}
    return build_status(
        view.resource, status_fields, conditions, rechecks=(outcome.recheck,), passed_through=PASSED_THROUGH
    )


def _progress(outcome: ModelState) -> tuple[str, str]:
    if outcome.under_way:
        return LOADING, outcome.under_way
    return (
        (COMPLETE, "Nothing is in progress.") if outcome.available else (outcome.reason, "See the condition Available.")
    )


def _determine_state(view: ModelView) -> ModelState:
    if isinstance(view.stored, InvalidSpecError) and not view.is_deleted:
        return ModelState(state="Failed", reason=view.stored.reason, message=view.stored.message)
    done = plan_nodes(view)
    if view.is_deleted:
        return _state_of_deleted(done)
    stored = view.valid()
    outcome = _state_on_claim(view, stored) if stored.claim else _state_on_nodes(view, done)
    clears = any(one.stage in ("leaving", "in use") or (one.record and one.record.former) for one in done)
    waits = any(one.stage in ("waiting", "full") for one in done)
    seconds = TURN_SECONDS if clears else turns.recheck_seconds(view.world) if waits else None
    checks = [one for one in (outcome.recheck, seconds) if one is not None]
    return msgspec.structs.replace(outcome, recheck=min(checks, default=None))


def _state_of_deleted(node_plans: Sequence[NodePlan]) -> ModelState:
    used = [one for one in node_plans if one.stage == "in use"]
    if used:
        text = f"The model is being deleted, and waits for pods that still read its files, on {_list_nodes(used)}."
        return ModelState(state="In_Transit", reason="InUse", message=text, recheck=TURN_SECONDS)
    text = f"The model is being deleted. Its files are being removed from {_list_nodes(node_plans)}."
    return ModelState(state="In_Transit", reason=LEAVING, message=text, recheck=TURN_SECONDS)


# On nodes


def _state_on_nodes(view: ModelView, node_plans: Sequence[NodePlan]) -> ModelState:
    desired = [one for one in node_plans if view.is_for(one.node)]
    there, failed, loading, waiting, full = (
        [one for one in desired if one.stage == stage] for stage in ("there", "failed", "loading", "waiting", "full")
    )
    moving = [progress.moving(one.run, view.world, does=f"{one.node.name} is downloading the files") for one in loading]
    transfers = [one.progress for one in moving if one.progress]
    size = max((one.record.size for one in there if one.record), default=0)
    fields: Object = {
        "nodesReady": [one.node.name for one in there],
        "nodesFailed": [one.node.name for one in failed],
        "size": facts.human(size) if size else "",
        "doneBytes": sum(one.done_bytes for one in transfers),
        "totalBytes": sum(one.total_bytes for one in transfers),
    }
    retries = [at - view.world.now for one in (*failed, *loading) if (at := one.run.retried_at()) is not None]
    checks = [one.diagnosis.recheck_seconds for one in moving if one.diagnosis.recheck_seconds is not None]
    checks += [max(seconds, 1.0) for seconds in retries]
    recheck = min(checks, default=None)
    parts = [
        *_describe_nodes(loading, moving, waiting, failed),
        *_explain_occupied(view, waiting),
        *_explain_full(view, full),
    ]
    if failed:
        parts += _explain_secret(view)
    if there:
        text = f"{len(there)} of {len(desired)} nodes have the files."
        reason, going = "OnNodes", " ".join(parts) if loading or waiting else ""
        message = " ".join((text, *parts))
        return ModelState(
            state="Ready",
            available=True,
            reason=reason,
            message=message,
            under_way=going,
            fields=fields,
            recheck=recheck,
        )
    if not desired:
        text = "No node matches storage.nodeSelector and storage.nodeAffinity. Label a node, or change them."
        return ModelState(state="In_Transit", reason="NoNode", message=text, fields=fields, recheck=recheck)
    stuck = [one.diagnosis.failure for one in moving if one.diagnosis.failure]
    if failed or (stuck and len(stuck) == len(loading)):
        reason = (_reason(failed[0]) if failed else stuck[0].reason if stuck[0] else None) or "LoadFailed"
        going = " ".join(parts) if waiting or (loading and not stuck) else ""
        return ModelState(
            state="Failed", reason=reason, message=" ".join(parts), under_way=going, fields=fields, recheck=recheck
        )
    if full and not loading and not waiting:
        return ModelState(state="Failed", reason=turns.FULL, message=" ".join(parts), fields=fields, recheck=recheck)
    reason, message = (LOADING if loading else WAITING), " ".join(parts)
    return ModelState(
        state="In_Transit", reason=reason, message=message, under_way=message, fields=fields, recheck=recheck
    )


def _describe_nodes(
    loading: Sequence[NodePlan], moving: Sequence[Moving], waiting: Sequence[NodePlan], failed: Sequence[NodePlan]
) -> list[str]:
    """Return sentences about the nodes that do not have the files: nodes that load, wait or failed."""
    parts = []
    for node_plan, one in zip(loading[:MAX_LISTED], moving, strict=False):
        failure = one.diagnosis.failure
        parts.append(f"{node_plan.node.name}: {failure.message}" if failure else one.message)
    if len(loading) > MAX_LISTED:
        parts.append(f"{len(loading) - MAX_LISTED} more nodes are downloading them.")
    if waiting:
        parts.append(f"{_list_nodes(waiting)} wait{'s' * (len(waiting) == 1)} for other downloads.")
    parts += [f"{one.node.name}: {_failure_message(one)}" for one in failed[:MAX_LISTED]]
    if len(failed) > MAX_LISTED:
        parts.append(f"{len(failed) - MAX_LISTED} more nodes failed.")
    return parts


def _reason(failed: NodePlan) -> str | None:
    report = failed.run.report
    return UNSOUND if report and report.fault else failed.run.fault[0]


def _failure_message(failed: NodePlan) -> str:
    report = failed.run.report
    return sentence(report.fault) if report and report.fault else progress.failed("be loaded", failed.run)


def _explain_occupied(view: ModelView, waiting: Sequence[NodePlan]) -> list[str]:
    path = view.valid().path
    if not waiting or not folders.is_mounted_by_others(view.world.listers, view.resource, path):
        return []
    return [f"Pods of another namespace may still read the directory {path}. It is free when they have ended."]


def _explain_secret(view: ModelView) -> list[str]:
    """Return a sentence about the namespace and name of a model's Secret if these differ from the model's namespace and
    ``storage.key``. Otherwise return an empty list. Jobs that mount node directories do not run in the model's
    namespace, and so cannot read its Secrets."""
    stored = view.valid()
    secret = secret_of(view, stored)
    if not stored.url or secret == (stored.spec.key or ""):
        return []
    text = f"The loader reads the Secret {secret} in the namespace {view.job_namespace} for storage.key"
    return [f"{text} {stored.spec.key}. If it is missing, ask the operator to create it."]


def _explain_full(view: ModelView, full: Sequence[NodePlan]) -> list[str]:
    if not full:
        return []
    text = f"{_list_nodes(full)} cannot record more models of the namespace {key(view.resource).namespace}"
    return [f"{text}. Delete BaseModels, or select fewer nodes with storage.nodeSelector."]


def _list_nodes(node_plans: Sequence[NodePlan]) -> str:
    """Return the names of the first few nodes and the number of the others, as text for messages: ``the nodes`` if
    there are none."""
    names = [one.node.name for one in node_plans]
    if not names:
        return "the nodes"
    rest = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


# On a claim


def _state_on_claim(view: ModelView, stored: Stored) -> ModelState:
    loader_task, claim = inspection_task(view, stored), stored.claim
    if loader_task is None or claim is None or view.world.get(claim) is None:
        text = f"There is no claim {claim.name if claim else ''} in the namespace {claim.namespace if claim else ''}."
        return ModelState(state="Failed", reason="ClaimNotFound", message=text, recheck=MISSING_SECONDS)
    if not is_bound(view, stored):
        text = f"The claim {claim.name} has no volume yet."
        return ModelState(
            state="In_Transit", reason="ClaimNotBound", message=text, under_way=text, recheck=MISSING_SECONDS
        )
    run = observe_job(view, loader_task)
    at = run.retried_at()
    recheck = max(at - view.world.now, 1.0) if at is not None else None
    report, before = run.report, view.resource.get("status") or {}
    if run.failed_since is not None:
        text, reason = progress.failed("be read", run), run.fault[0] or "InspectionFailed"
        return ModelState(state="Failed", reason=reason, message=text, recheck=recheck)
    if report is not None and report.fault:
        return ModelState(state="Failed", reason=UNSOUND, message=sentence(report.fault), recheck=recheck)
    inspected = before.get("state") == "Ready" and before.get("observedGeneration") == generation(view.resource)
    if report is None and not inspected:
        moving = progress.moving(run, view.world)
        failure, seconds = moving.diagnosis.failure, moving.diagnosis.recheck_seconds
        if failure:
            return ModelState(state="Failed", reason=failure.reason, message=failure.message, recheck=seconds)
        text = "The files are being inspected in place."
        return ModelState(state="In_Transit", reason=LOADING, message=text, under_way=text, recheck=recheck or seconds)
    size = facts.human(report.size) if report and report.size else before.get("size", "")
    text = sentence(f"The files are on the claim {claim.name}")
    return ModelState(
        state="Ready", available=True, reason="OnClaim", message=text, fields={"size": size}, recheck=recheck
    )
