"""Status of a KubeAI Model: what became of its pods, its cache and its adapters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.apis.kubeai import cache, names, pods
from slipway.apis.kubeai.model import ENGINES, read
from slipway.kube.conditions import Condition
from slipway.kube.objects import Object, deleting, generation, uid
from slipway.serving.agent import Adapter, AdapterState, Progress
from slipway.serving.diagnosis import Diagnosis, Failure, Limits, diagnose, is_ready, sentence
from slipway.serving.job import last_words, without_pods
from slipway.serving.plan import Invalid, Refusal, Verdict, World
from slipway.serving.report import Awaited, report, routed

LEAVING_SECONDS = 30.0
"""When to look again at a Model that is being deleted: time alone may end what keeps it."""
CACHE_LOADED, ADAPTERS_LOADED = "CacheLoaded", "AdaptersLoaded"


def status(world: World, refusal: Refusal | None) -> Verdict:
    spec, name = world.resource["spec"], world.resource["metadata"]["name"]
    deployment = world.children.get(("Deployment", names.workload_name(name)))
    diagnosis, awaited, cached = diagnosed(world, deployment), None, None
    others = [_routed(world)]
    if spec.get("cacheProfile"):
        cached = _cache(world)
        others.append(cached.condition(refusal))
        if not cached.loaded and not refusal:
            awaited = Awaited("LoadingCache", cached.message)
            diagnosis = cached.diagnosis if deployment is None else diagnosis
    others += _ignored(world)
    if spec.get("adapters"):
        others.append(_adapters(world, deployment))
    if deleting(world.resource):
        awaited = Awaited("Leaving", "The Model is being deleted: its pods end, then its weights leave the cache.")
    told = report(deployment, diagnosis, refusal, others, generation(world.resource), awaited)
    found: Object = {
        "replicas": {"all": told.replicas, "ready": told.ready_replicas},
        "selector": ",".join(f"{label}={value}" for label, value in names.selector(name).items()),
        "observedGeneration": generation(world.resource),
        "conditions": [msgspec.to_builtins(condition) for condition in told.conditions],
    }
    if cached:
        found["cache"] = cached.told
    leaving = LEAVING_SECONDS if deleting(world.resource) else None
    rechecks = (diagnosis.recheck_seconds, cached.diagnosis.recheck_seconds if cached else None, leaving)
    return Verdict(found, min((seconds for seconds in rechecks if seconds is not None), default=None))


def failing(world: World, deployment: Object | None) -> bool:
    """Whether no replica will answer until someone acts. For a pod that no node takes yet, a node may be on its way."""
    if deployment and deployment.get("status", {}).get("readyReplicas"):
        return False
    failure = diagnosed(world, deployment).failure
    return failure is not None and failure.reason != "Unschedulable"


def diagnosed(world: World, deployment: Object | None) -> Diagnosis:
    """What keeps the Model's pods from being ready."""
    return _judged(world, deployment, [pod for pod in world.pods if not cache.job_of(pod)])


def _judged(world: World, deployment: Object | None, judged: Sequence[Object]) -> Diagnosis:
    engine = ENGINES[world.resource["spec"]["engine"]]
    limits = Limits(
        startup_seconds=engine.probes.startup.patience,
        unschedulable_grace_seconds=world.settings.unschedulable_grace_seconds,
        drain_seconds=world.settings.drain_seconds,
        container=pods.CONTAINER,
    )
    return diagnose(deployment, judged, limits, world.now, engine.explain)


def _routed(world: World) -> Condition:
    """The first of the model's names that is not its own; that of the model itself where all are."""
    metadata, spec = world.resource["metadata"], world.resource["spec"]
    name, namespace = metadata["name"], metadata["namespace"]
    services = {names.service_name(name): name} | {
        names.adapter_service_name(name, adapter["name"]): names.public_name(name, adapter["name"])
        for adapter in spec.get("adapters") or ()
    }
    found = [routed(f"{namespace}/{service}", (public,), world.routed) for service, public in services.items()]
    return next((condition for condition in found if condition.status == "False"), found[0])


def _ignored(world: World) -> list[Condition]:
    """Told only where there is something to tell."""
    withheld = [f"metadata.labels[{name}]" for name in pods.withheld_labels(world.resource)]
    if not withheld:
        return []
    text = f"Services select pods by these labels, so that they are not given to the Model's: {', '.join(withheld)}."
    return [Condition("FieldsIgnored", "True", "ReservedLabels", text)]


class _Cache(msgspec.Struct, frozen=True, kw_only=True):
    """How far the cache is."""

    loaded: bool
    message: str
    told: Object
    """``status.cache``."""
    diagnosis: Diagnosis = Diagnosis()

    def condition(self, refusal: Refusal | None) -> Condition:
        if self.loaded:
            return Condition(CACHE_LOADED, "True", "Loaded", self.message)
        if refusal and not refusal.passing:
            return Condition(CACHE_LOADED, "False", refusal.reason, "See the condition Accepted.")
        failure = self.diagnosis.failure
        if failure:
            return Condition(CACHE_LOADED, "False", failure.reason, failure.message)
        return Condition(CACHE_LOADED, "False", "LoadingCache", self.message)


def _cache(world: World) -> _Cache:
    if cache.loaded(world):
        return _Cache(loaded=True, message="The weights are complete in the cache.", told={"loaded": True})
    since, job = cache.failed_since(world), cache.load_name(world.resource["metadata"]["name"])
    loaders = [pod for pod in world.pods if cache.job_of(pod) == job]
    if since is not None:
        text = f"The weights could not be loaded into the cache: {_last_words(loaders)} It is tried again by itself."
        diagnosis = Diagnosis(Failure("CacheLoadFailed", text), since + cache.RETRY_SECONDS - world.now)
        return _Cache(loaded=False, message=text, told={"loaded": False, "message": text}, diagnosis=diagnosis)
    running = [pod for pod in loaders if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
    diagnosis = _judged(world, None, running) if loaders else _without_pods(world.children.get(("Job", job)), world.now)
    reports = (world.agents.get(uid(pod)) for pod in running)
    progress = next((told.progress for told in reports if told and told.progress), None)
    message = _loading(world, progress, loaders, len(loaders) - len(running))
    counts = {"doneBytes": progress.done_bytes} if progress else {}
    if progress and progress.total_bytes:
        counts["totalBytes"] = progress.total_bytes
    shown = {"loaded": False, **counts, "message": message}
    return _Cache(loaded=False, message=message, told=shown, diagnosis=diagnosis)


def _without_pods(job: Object | None, now: float) -> Diagnosis:
    """As of any Job; the account that this one's pods may need is the usual cause."""
    found = without_pods(job, "loads the weights", now)
    account = job["spec"]["template"]["spec"].get("serviceAccountName") if job else ""
    if found.failure is None or not account:
        return found
    needed = f"It needs the account {account} in this namespace (modelServerPods)."
    return Diagnosis(Failure(found.failure.reason, f"{found.failure.message} {needed}"))


def _loading(world: World, progress: Progress | None, loaders: Sequence[Object], failures: int) -> str:
    reference, claim = cache.claim_of(world)
    if claim is not None and deleting(claim):
        return f"The claim {reference.name} is being deleted; a new one is filled when it is gone."
    if cache.eviction(world) == "running":
        return "Weights of this Model are being removed from the cache."
    parts = ["The weights are being loaded into the cache."]
    if progress and progress.message:
        parts = [sentence(f"The weights are being loaded into the cache: {progress.message}")]
    if failures:
        parts.append(f"{failures} attempt{'s' * (failures != 1)} failed: {_last_words(loaders)}")
    return " ".join(parts)


def _last_words(loaders: Sequence[Object]) -> str:
    """What the newest loader that failed wrote last, as a sentence."""
    return sentence(last_words(loaders) or "no reason is given")


def _adapters(world: World, deployment: Object | None) -> Condition:
    """Whether every pod that serves the model has all its adapters."""
    try:
        wanted = pods.adapters(read(world))
    except Invalid as error:
        return Condition(ADAPTERS_LOADED, "Unknown", error.reason, "See the condition Accepted.")
    serving = [pod for pod in world.pods if not cache.job_of(pod) and not deleting(pod) and is_ready(pod)]
    if deployment is not None and not deployment["spec"].get("replicas", 1):
        return Condition(ADAPTERS_LOADED, "False", "ScaledToZero", "Each replica loads them when it starts.")
    states = {(uid(pod), state.name): state for pod in serving for state in _states(world, pod)}
    missing = [
        (adapter, pod, states.get((uid(pod), adapter.name)))
        for adapter in wanted
        for pod in serving
        if not _has(states.get((uid(pod), adapter.name)), adapter)
    ]
    for adapter, pod, state in missing:
        if state and state.phase == "Failed":
            text = f"{adapter.name} in pod {pod['metadata']['name']}: {state.message}"
            return Condition(ADAPTERS_LOADED, "False", "AdapterFailed", text)
    if missing or not serving:
        some = sorted({adapter.name for adapter, _pod, _state in missing} or {adapter.name for adapter in wanted})
        return Condition(ADAPTERS_LOADED, "False", "LoadingAdapters", f"On their way: {', '.join(some)}.")
    return Condition(ADAPTERS_LOADED, "True", "Loaded", f"Every replica has {', '.join(one.name for one in wanted)}.")


def _states(world: World, pod: Object) -> tuple[AdapterState, ...]:
    told = world.agents.get(uid(pod))
    return told.adapters if told else ()


def _has(state: AdapterState | None, adapter: Adapter) -> bool:
    return state is not None and state.loaded == adapter.digest
