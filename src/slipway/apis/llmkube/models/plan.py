"""The plan of a Model: the Jobs that load its weights for services, and that remove weights without users. Pure."""

from __future__ import annotations

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache, loading
from slipway.apis.llmkube.models.resolve import ModelView
from slipway.apis.llmkube.settings import llmkube
from slipway.kube.objects import Object, key
from slipway.serving.contract.api import Plan
from slipway.serving.pods.job import ended


def plan(view: ModelView) -> Plan:
    """Return the Model's Jobs, the changes of its records and, if its weights belong in the cache, the cache's claim.
    Raise InvalidSpecError if the Model is invalid."""
    model = view.valid()
    weights_plan = loading.reconcile_records(view)
    if model.in_claim:
        weights_plan += loading.from_claim(view, model)
    if model.by_each_pod:
        weights_plan += loading.inspect_in_place(view, model)
    cached = model.cached and not (view.settling_seconds and view.record is None)
    if cached:
        weights_plan += loading.into_cache(view, model)
    return Plan(
        children=weights_plan.children,
        shared=(cache.claim(model.namespace, llmkube(view.world.settings).model_cache),) if cached else (),
        metadata_patches=weights_plan.patches,
        self_patch={"metadata": {"annotations": weights_plan.annotations}} if weights_plan.annotations else {},
        finalizer=names.FINALIZER if cached or view.held or view.orphaned else "",
    )


def finalize(view: ModelView) -> Plan | None:
    """Return the next step in the deletion of a Model, or None if nothing remains to be done. The deletion waits for
    pods that read the weights, and for Jobs up to a time limit. Then it waits until no records of the Model are left,
    unless the claim is gone or is being deleted."""
    evict = names.job_name(key(view.resource).name, "evict")
    others = [child for (_kind, name), child in view.world.children.items() if name.name != evict]
    working = any(_is_active(job) for job in others) and not view.is_overdue
    if working or view.readers:
        return Plan(children=())
    weights_plan = loading.reconcile_records(view)
    waits = view.held and view.claim is not None and not view.claim_leaving
    if not (weights_plan.children or weights_plan.patches or waits):
        return None
    return Plan(children=weights_plan.children, metadata_patches=weights_plan.patches)


def _is_active(job: Object) -> bool:
    """Whether a Job has not ended, so that it may still write to the cache."""
    return ended(job, "Complete") is None and ended(job, "Failed") is None
