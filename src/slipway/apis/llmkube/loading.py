"""Loading: the Jobs that a Model wants just now, what they told, and what is written into the inventory for it. Pure.

A Job is looked at only if it does what is wanted now: one of an earlier spec is in the way, and goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from slipway.apis.llmkube import cache, names
from slipway.apis.llmkube.cache import Record
from slipway.apis.llmkube.weights import Model, affinity, inspector, loader, prober, source_volumes, tolerations
from slipway.artifacts.report import Fault, Report, fault
from slipway.artifacts.report import read as read_report
from slipway.kube.conditions import timestamp
from slipway.kube.objects import MANAGED_BY, Object, deleting, uid
from slipway.serving import volumes
from slipway.serving.job import Task, ended, job, last_words, pods_of, told
from slipway.serving.plan import Note, World
from slipway.serving.server import Container, Mount
from slipway.serving.settings import Settings
from slipway.serving.times import unix_time
from slipway.serving.workload import MANAGER, UNPRIVILEGED, restricted

RETRIES = 4
RETRY_SECONDS = 300
"""After a load that failed another one is tried, as what was wrong may lie in no object that we watch."""
ANSWER_SECONDS = 600
"""What a question to a source may take, pod and all; a node that has no such file starts none."""
REPORT_SECONDS = 60
"""After a Job is complete its pod's last words are waited for; then it is run again, which costs little."""
EVICTION_SECONDS = 600
"""After which a Model that is deleted waits no more for its Jobs, and goes with its weights left on the volume."""
NAME_LABEL, INSTANCE_LABEL = "app.kubernetes.io/name", "app.kubernetes.io/instance"
OWN_LABELS = frozenset({NAME_LABEL, INSTANCE_LABEL, names.MODEL_LABEL, MANAGED_BY})
LASTING: tuple[Fault, ...] = ("IntegrityCheckFailed", "SourceNotAllowed", "InvalidFileSet")
"""What another try would only find again, after as many bytes: a change of the spec, or the Job's deletion, asks for
one."""
What = Literal["download", "inspect", "revalidate", "evict"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A Job that is wanted, and what is known of the one that there is."""

    wanted: Object
    made: Object | None = None
    pods: Sequence[Object] = ()
    """Of this Job, the newest first."""

    @property
    def complete_since(self) -> float | None:
        return ended(self.made, "Complete")

    @property
    def failed_since(self) -> float | None:
        return ended(self.made, "Failed")

    @property
    def report(self) -> Report | None:
        return read_report(told(self.pods)) if self.complete_since is not None else None

    @property
    def fault(self) -> tuple[Fault | None, str]:
        """Why its last pod failed: a word, if there is one, and a sentence."""
        return fault(last_words(self.pods))

    def retried_at(self) -> float | None:
        """Unix seconds at which it is time for another one; None: it is not over, or it is of no use."""
        if self.complete_since is not None and self.report is None:
            return self.complete_since + REPORT_SECONDS
        if self.failed_since is not None and self.fault[0] not in LASTING:
            return self.failed_since + RETRY_SECONDS
        return None

    def children(self, now: float) -> tuple[Object, ...]:
        """The Job, unless it is time for another one: then it goes first."""
        retried = self.retried_at()
        return () if retried is not None and now >= retried else (self.wanted,)


class Wish(msgspec.Struct, frozen=True):
    """What a Model wants of the cluster."""

    children: tuple[Object, ...] = ()
    notes: tuple[Note, ...] = ()

    def __add__(self, other: Wish) -> Wish:
        return Wish(self.children + other.children, self.notes + other.notes)


def record_of(model: Model, world: World) -> Record | None:
    """What the inventory says of the Model's folder."""
    return cache.inventory(world.referenced.get(cache.claim_reference(model.namespace))).get(model.key)


def is_current(model: Model, record: Record | None) -> bool:
    """Whether what the cache has is what the Model wants."""
    if record is None or not record.complete or not _expects(model.resource, record):
        return False
    return not (record.drifted and model.spec.refresh_policy == "OnChange")


def _expects(resource: Object, record: Record) -> bool:
    """Whether a Model, which may not be valid, is content with the hash of what the cache has."""
    expected: str = resource["spec"].get("sha256") or ""
    return expected.lower() in ("", record.report.sha256)


def download(model: Model, world: World) -> Run:
    record = record_of(model, world)
    container = loader(model, refresh=record is not None and record.complete)
    cached = volumes.claim(names.CACHE_VOLUME, names.CLAIM)
    return _run(model, world, "download", container, (cached, *source_volumes(model)))


def inspection(model: Model, world: World) -> Run:
    """Of what lies on a claim, or where there is no cache of what the source says of itself."""
    if model.in_claim:
        return _run(model, world, "inspect", inspector(model), source_volumes(model))
    return _run(model, world, "inspect", prober(model, header=True), source_volumes(model), ANSWER_SECONDS)


def revalidation(model: Model, world: World) -> Run:
    return _run(model, world, "revalidate", prober(model), source_volumes(model), ANSWER_SECONDS)


def into_cache(model: Model, world: World) -> Wish:
    """What brings the weights into the cache, and watches over their source once they are there."""
    reference = cache.claim_reference(model.namespace)
    there, record = world.referenced.get(reference), record_of(model, world)
    if (there is not None and deleting(there)) or cache.being_evicted(world, record):
        return Wish()
    if is_current(model, record) and record is not None:
        return _watched(model, world, record)
    run = download(model, world)
    since, report = run.complete_since, run.report
    if since is not None and report is not None:
        done = cache.loaded(model, report, since)
        return Wish((run.wanted,), (Note(reference, cache.noted(model.key, done)),))
    begun = () if record is not None else (Note(reference, cache.noted(model.key, Record())),)
    return Wish(run.children(world.now), begun)


def _watched(model: Model, world: World, record: Record) -> Wish:
    """Asks the source from time to time, one Model for all that have it."""
    interval = model.settings.sources.revalidate_seconds
    content = [one for one in cache.users(world, model.namespace).get(model.key, []) if _expects(one, record)]
    mine = cache.is_first(world, content, cached=True)
    if not (interval and mine and world.now - record.asked >= interval):
        return Wish()
    run = revalidation(model, world)
    over = run.complete_since if run.complete_since is not None else run.failed_since
    # That the Job is over may be seen before what its pod has told.
    unheard = run.complete_since is not None and run.report is None
    if over is None or (unheard and world.now < over + REPORT_SECONDS):
        return Wish((run.wanted,))
    asked = cache.asked(record, run.report, world.now)
    return Wish((run.wanted,), (Note(cache.claim_reference(model.namespace), cache.noted(model.key, asked)),))


def from_claim(model: Model, world: World) -> Wish:
    """What reads the weights where they are. The Job stays, as its pod has the report."""
    there = world.referenced.get(model.claim) if model.claim else None
    if there is None or deleting(there) or there.get("status", {}).get("phase") != "Bound" or not worth_reading(model):
        return Wish()
    return Wish(inspection(model, world).children(world.now))


def from_afar(model: Model, world: World) -> Wish:
    """What reads the header of weights that each pod loads itself."""
    return Wish(inspection(model, world).children(world.now)) if worth_reading(model) else Wish()


def worth_reading(model: Model) -> bool:
    """Whether there is something that a look into the weights would tell."""
    return bool(model.spec.sha256 and model.in_claim) or model.spec.format == "gguf"


def out_of_cache(world: World) -> Wish:
    """What removes a folder that no Model uses any more: it is marked, removed, then forgotten."""
    namespace = world.resource["metadata"]["namespace"]
    reference = cache.claim_reference(namespace)
    there = world.referenced.get(reference)
    key = "" if there is None or deleting(there) else cache.to_evict(world, there)
    if not key:
        return Wish()
    me = uid(world.resource)
    record = cache.inventory(there)[key]
    if record.evicted_by != me:
        # Shorter than before, so that it has room where the claim takes no more.
        marked = Record(evicted_by=me, evicted_at=timestamp(world.now))
        return Wish((), (Note(reference, cache.noted(key, marked)),))
    run = _evict(world, key)
    since = record.evicted_at or world.resource["metadata"].get("deletionTimestamp")
    late = deleting(world.resource) and world.now - unix_time(since) > EVICTION_SECONDS
    if run.complete_since is None and run.failed_since is None and not late:
        return Wish((run.wanted,))
    kept = (run.wanted,) if run.made else ()
    return Wish(kept, (Note(reference, cache.noted(key, None)),))


def is_late(world: World) -> bool:
    """Whether a Model that goes has waited long enough for Jobs that load."""
    since = world.resource["metadata"].get("deletionTimestamp")
    return since is not None and world.now - unix_time(since) > EVICTION_SECONDS


def _evict(world: World, key: str) -> Run:
    metadata, settings = world.resource["metadata"], world.settings
    container = Container(
        name="evictor",
        image=settings.loader_image,
        args=("loader", "evict", f"{names.CACHE}/{key}", "--below", names.CACHE),
        mounts=(Mount(names.CACHE_VOLUME, names.CACHE),),
        security=UNPRIVILEGED,
    )
    name, namespace = metadata["name"], metadata["namespace"]
    volume = volumes.claim(names.CACHE_VOLUME, names.CLAIM)
    task = _task(name, namespace, "evict", container, (volume,), settings)
    return _observed(world, job(msgspec.structs.replace(task, tolerations=({"operator": "Exists"},))))


def _run(
    model: Model, world: World, what: What, container: Container, found: tuple[Object, ...], deadline: int = 0
) -> Run:
    task = _task(model.name, model.namespace, what, container, found, model.settings)
    near = {"tolerations": tolerations(model), "affinity": affinity(model)}
    return _observed(world, job(msgspec.structs.replace(task, deadline_seconds=deadline, **near)))


def _task(
    model: str, namespace: str, what: What, container: Container, found: tuple[Object, ...], settings: Settings
) -> Task:
    name = names.job_name(model, what)
    return Task(
        name=name,
        namespace=namespace,
        labels={
            NAME_LABEL: "model-loader",
            INSTANCE_LABEL: name,
            names.MODEL_LABEL: names.label_value(model),
            MANAGED_BY: MANAGER,
        },
        container=container,
        volumes=found,
        retries=RETRIES,
        security=_security(settings),
    )


def _security(settings: Settings) -> Object:
    """Volumes that take no group belong to root, and are written by nobody else."""
    user = settings.user(settings.model_cache.run_as_user)
    if user is None:
        return restricted(None)
    return {**restricted(user), "runAsNonRoot": user != 0, "fsGroup": names.GROUP_ID}


def _observed(world: World, wanted: Object) -> Run:
    made = world.children.get(("Job", wanted["metadata"]["name"]))
    if made is None or deleting(made) or _words(made) != _words(wanted):
        return Run(wanted=wanted)
    return Run(wanted=wanted, made=made, pods=pods_of(made, world.pods))


def _words(made: Object) -> list[str]:
    """What tells a Job from another of its name: what its program is told."""
    words: list[str] = made["spec"]["template"]["spec"]["containers"][0].get("args", [])
    return words
