"""Plan: weights come to where services find them, and go when nobody uses them. Pure."""

from __future__ import annotations

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache, loading
from slipway.apis.llmkube.models.resolve import View
from slipway.apis.llmkube.settings import llmkube
from slipway.kube.objects import Object, key
from slipway.serving.contract.api import Plan
from slipway.serving.pods.job import ended


def plan(view: View) -> Plan:
    """Raises InvalidSpecError."""
    model = view.valid()
    wish = loading.records_kept(view)
    if model.in_claim:
        wish += loading.from_claim(view, model)
    if model.by_each_pod:
        wish += loading.looked_into(view, model)
    cached = model.cached and not (view.undecided and view.record is None)
    if cached:
        wish += loading.into_cache(view, model)
    return Plan(
        children=wish.children,
        shared=(cache.claim(model.namespace, llmkube(view.world.settings).model_cache),) if cached else (),
        metadata_patches=wish.patches,
        self_patch={"metadata": {"annotations": wish.annotations}} if wish.annotations else {},
        finalizer=names.FINALIZER if cached or view.held or view.left else "",
    )


def finalize(view: View) -> Plan | None:
    """Ends in any case: without a claim or a working Job, and after a time; once nobody reads the weights."""
    evict = names.job_name(key(view.resource).name, "evict")
    others = [child for (_kind, name), child in view.world.children.items() if name.name != evict]
    working = any(_works(job) for job in others) and not view.late
    if working or view.readers:
        return Plan(children=())
    wish = loading.records_kept(view)
    waits = view.held and view.claim is not None and not view.claim_leaving
    if not (wish.children or wish.patches or waits):
        return None
    return Plan(children=wish.children, metadata_patches=wish.patches)


def _works(job: Object) -> bool:
    """Whether a Job may still write into the cache."""
    return ended(job, "Complete") is None and ended(job, "Failed") is None
