"""LLMKube's pure functions for Models: weights come to where services find them, and go when nobody uses them."""

from __future__ import annotations

from collections.abc import Collection

from slipway.apis.llmkube import cache, loading, names, uses, weights
from slipway.apis.llmkube.model_status import status
from slipway.apis.llmkube.model_types import MODEL
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.kube.crd import CustomResource
from slipway.kube.objects import JOB, NODE, PERSISTENT_VOLUME_CLAIM, Kind, Object
from slipway.serving.freedoms import Freedom, freedoms
from slipway.serving.job import ended
from slipway.serving.plan import Invalid, Plan, Reference, Refusal, Verdict, World
from slipway.serving.scaling import Scaling
from slipway.serving.settings import Settings


class Models:
    """See :class:`slipway.serving.plan.Api`."""

    name = "llmkube"
    resources: tuple[CustomResource, ...] = (MODEL,)
    child_kinds: tuple[Kind, ...] = (JOB,)
    shared_kinds: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM, INFERENCE_SERVICE, NODE)
    user_kinds: tuple[Kind, ...] = (INFERENCE_SERVICE,)
    foreign_finalizers = frozenset({names.FINALIZER})
    pod_labels = loading.OWN_LABELS

    def references(self, resource: Object, settings: Settings) -> tuple[Reference, ...]:
        """The cache of the namespace, also of a Model that is not in it: what nobody uses is everybody's to remove. And
        the claim that the source names."""
        shared = cache.claim_reference(resource["metadata"]["namespace"])
        try:
            own = weights.read(resource, settings).claim
        except Invalid:
            own = None
        return (shared,) if own in (None, shared) else (shared, own)

    def concerned(self, old: Object | None, new: Object | None) -> Collection[str] | None:
        """Of a service the Models that it names, or named. Of a claim all: several share a folder, and what nobody uses
        is everybody's to remove."""
        return uses.concerned(old, new) if (new or old or {})["kind"] == INFERENCE_SERVICE.kind else None

    def plan(self, world: World) -> Plan:
        asked = uses.demand(world)
        model = weights.wanted(world, asked)
        wish = loading.out_of_cache(world)
        if model.in_claim:
            wish += loading.from_claim(model, world)
        if model.by_each_pod:
            wish += loading.from_afar(model, world)
        unsettled = uses.undecided(world, asked) and loading.record_of(model, world) is None
        if not model.cached or unsettled:
            return Plan(children=wish.children, notes=wish.notes)
        wish += loading.into_cache(model, world)
        return Plan(
            children=wish.children,
            shared=(cache.claim(model.namespace, world.settings.model_cache),),
            notes=wish.notes,
            finalizer=names.FINALIZER,
        )

    def granted(self, _world: World, plan: Plan) -> frozenset[Freedom]:
        """All: a Model says what is loaded, and nothing of the pods that load it."""
        return freedoms(plan.children)

    def finish(self, world: World) -> Plan | None:
        """Ends in any case: without a claim or a working Job, and after a time; once nobody reads the weights."""
        evict = names.job_name(world.resource["metadata"]["name"], "evict")
        others = [child for (_kind, name), child in world.children.items() if name != evict]
        working = any(_works(job) for job in others) and not loading.is_late(world)
        claim = cache.claim_reference(world.resource["metadata"]["namespace"])
        if working or cache.holders(world, world.referenced.get(claim)):
            return Plan(children=())
        wish = loading.out_of_cache(world)
        return Plan(children=wish.children, notes=wish.notes) if wish.children or wish.notes else None

    def scaling(self, world: World) -> Scaling | None:  # noqa: ARG002 - a Model has no replicas
        return None

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        return status(world, refusal)


def _works(job: Object) -> bool:
    """Whether a Job may still write into the cache."""
    return ended(job, "Complete") is None and ended(job, "Failed") is None
