"""Status of a KubeAI Model: the state of its pods, its cache and its adapters. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.kubeai import names
from slipway.apis.kubeai.models import cache, pods
from slipway.apis.kubeai.models.resolve import Model, ModelView
from slipway.engines.definition.retired import sentence
from slipway.kube.objects import Object, deleting, key
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import Diagnosis, Failure
from slipway.serving.contract.api import Rejection, StatusResult, World
from slipway.serving.pods.job import without_pods
from slipway.serving.status.adapters import standings
from slipway.serving.status.builder import build_status, permanent
from slipway.serving.status.report import Component, Pending, model_id, report, routed
from slipway.weights.jobs import progress
from slipway.weights.jobs.loads import Run

PASSED_THROUGH = frozenset({"LoadingCache", "LoadingAdapters", "Leaving"})
"""Reasons of conditions that are transient states, for which no Events are created."""
LEAVING_SECONDS = 30.0
"""Seconds after which the status of a Model that is being deleted may change without an event."""
CACHE_LOADED, ADAPTERS_LOADED = "CacheLoaded", "AdaptersLoaded"


def status(view: ModelView, rejection: Rejection | None) -> StatusResult:
    world, deployment, leaving = view.world, view.deployment, deleting(view.world.resource)
    diagnosis, pending, cached = view.diagnosis, None, None
    others = [_routed(world)]
    if world.resource["spec"].get("cacheProfile"):
        cached = _cache(view)
        others.append(cached.condition(rejection))
        if not cached.loaded and not permanent(rejection):
            pending = Pending("LoadingCache", cached.message)
            diagnosis = cached.diagnosis if deployment is None else diagnosis
    others += _ignored(view)
    if world.resource["spec"].get("adapters"):
        others.append(_adapters(view))
    if leaving:
        pending = Pending("Leaving", "The Model is being deleted, and its weights are then removed from the cache.")
    state = report((Component(deployment, diagnosis),), rejection, others, pending)
    namespace, name = key(world.resource)
    fields: Object = {
        "replicas": {"all": state.replicas, "ready": state.ready_replicas},
        "selector": ",".join(f"{label}={value}" for label, value in names.selector(view.name).items()),
        **model_id(f"{namespace}/{names.service_name(name)}", (name,), world.routed),
    }
    trailing = {"cache": cached.status_fields} if cached else {}
    rechecks = (
        diagnosis.recheck_seconds,
        cached.diagnosis.recheck_seconds if cached else None,
        LEAVING_SECONDS if leaving else None,
    )
    return build_status(
        world.resource, fields, state.conditions, trailing=trailing, rechecks=rechecks, passed_through=PASSED_THROUGH
    )


DEFAULT_REPLICATIONS = (20, 256)
"""Defaults of ``replication`` in Slipway's and KubeAI's CRDs, which the API server adds to every Model."""


def _routed(world: World) -> Condition:
    """Return the condition Routed of the first model ID that does not reach the Model or one of its adapters. If all
    do, return the condition of the Model's own ID."""
    metadata, spec = world.resource["metadata"], world.resource["spec"]
    name, namespace = metadata["name"], metadata["namespace"]
    services = {names.service_name(name): name} | {
        names.adapter_service_name(name, adapter["name"]): names.public_name(name, adapter["name"])
        for adapter in spec.get("adapters") or ()
    }
    conditions = [routed(f"{namespace}/{service}", (public,), world.routed) for service, public in services.items()]
    return next((condition for condition in conditions if condition.status == "False"), conditions[0])


def _ignored(view: ModelView) -> list[Condition]:
    """Return a list with the condition FieldsIgnored, or an empty list if there is nothing to report."""
    withheld = [f"metadata.labels[{name}]" for name in pods.withheld_labels(view.world.resource)]
    unknown = view.config.unknown_keys
    texts = []
    if withheld:
        text = "These labels are not applied to the Model's pods, because Services select pods by them"
        texts.append(f"{text}: {', '.join(withheld)}.")
    if unknown:
        texts.append(f"The system configuration has unknown keys without effect: {', '.join(unknown)}.")
    retired = sentence(view.model.renewal.changes, "spec.args") if isinstance(view.model, Model) else ""
    hashed = (view.world.resource["spec"].get("loadBalancing") or {}).get("prefixHash") or {}
    unused = hashed.get("replication") not in (None, *DEFAULT_REPLICATIONS)
    if unused:
        texts.append("These have no effect: spec.loadBalancing.prefixHash.replication (there is no hash ring).")
    if not texts and not retired:
        return []
    reasons = {"ReservedLabels": withheld, "UnknownKeys": unknown, "RetiredFlags": retired, "UnsupportedFields": unused}
    reason = next(name for name, holds in reasons.items() if holds)
    return [Condition("FieldsIgnored", "True", reason, " ".join((*texts, retired)).strip())]


class _CacheState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a Model's cache."""

    loaded: bool
    message: str
    status_fields: Object
    """Value of ``status.cache``."""
    diagnosis: Diagnosis = Diagnosis()

    def condition(self, rejection: Rejection | None) -> Condition:
        if self.loaded:
            return Condition(CACHE_LOADED, "True", "Loaded", self.message)
        if refused := permanent(rejection):
            return Condition(CACHE_LOADED, "False", refused.reason, "See the condition Accepted.")
        failure = self.diagnosis.failure
        if failure:
            return Condition(CACHE_LOADED, "False", failure.reason, failure.message)
        return Condition(CACHE_LOADED, "False", "LoadingCache", self.message)


def _cache(view: ModelView) -> _CacheState:
    if cache.is_loaded(view):
        return _CacheState(
            loaded=True, message="The weights are complete in the cache.", status_fields={"loaded": True}
        )
    world = view.world
    if cache.failed_since(view) is not None:
        text = progress.failed("be loaded into the cache", view.load)
        retried = view.load.retried_at()
        recheck = retried - world.now if retried is not None else None
        diagnosis = Diagnosis(Failure("CacheLoadFailed", text), recheck)
        return _CacheState(
            loaded=False, message=text, status_fields={"loaded": False, "message": text}, diagnosis=diagnosis
        )
    moving = progress.moving(view.load, world, _without_pods(view.load, world.now))
    message = _held_up(view) or moving.message
    counts = {"doneBytes": moving.progress.done_bytes} if moving.progress else {}
    if moving.progress and moving.progress.total_bytes:
        counts["totalBytes"] = moving.progress.total_bytes
    status_fields = {"loaded": False, **counts, "message": message}
    return _CacheState(loaded=False, message=message, status_fields=status_fields, diagnosis=moving.diagnosis)


def _without_pods(load: Run, now: float) -> Diagnosis:
    """Return the diagnosis of a load Job without pods. The usual cause is a missing ServiceAccount."""
    diagnosis = without_pods(load.job, "loads the weights", now)
    account = load.job["spec"]["template"]["spec"].get("serviceAccountName") if load.job else ""
    if diagnosis.failure is None or not account:
        return diagnosis
    needed = f"It needs the ServiceAccount {account} in this namespace (modelServerPods)."
    return Diagnosis(Failure(diagnosis.failure.reason, f"{diagnosis.failure.message} {needed}"))


def _held_up(view: ModelView) -> str:
    """Return a message about the deletion for which the load waits, or an empty string if it waits for none."""
    if view.place and view.claim is not None and deleting(view.claim):
        return f"The claim {view.place.claim.name} is being deleted. A new one will be filled afterwards."
    return "Weights of this Model are being removed from the cache." if cache.is_evicting(view) else ""


def _adapters(view: ModelView) -> Condition:
    """Return the condition AdaptersLoaded: whether every pod that serves the Model has all its adapters."""
    world, deployment = view.world, view.deployment
    if not isinstance(view.model, Model):
        return Condition(ADAPTERS_LOADED, "Unknown", view.model.reason, "See the condition Accepted.")
    if deployment is not None and not deployment["spec"].get("replicas", 1):
        return Condition(ADAPTERS_LOADED, "False", "ScaledToZero", "Each replica loads them when it starts.")
    adapters = standings(pods.adapters(view.model).adapters, view.pods, world.agents)
    for one in adapters:
        if one.phase == "Failed":
            return Condition(ADAPTERS_LOADED, "False", "AdapterFailed", f"{one.adapter.name} {one.message}")
    loading = sorted(one.adapter.name for one in adapters if one.phase == "Loading")
    if loading:
        return Condition(ADAPTERS_LOADED, "False", "LoadingAdapters", f"Loading: {', '.join(loading)}.")
    loaded = ", ".join(one.adapter.name for one in adapters)
    return Condition(ADAPTERS_LOADED, "True", "Loaded", f"Every replica has {loaded}.")
