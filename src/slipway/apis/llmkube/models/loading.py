"""The Jobs that a Model currently needs, and the changes of its cache records. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache, loaders
from slipway.apis.llmkube.models.cache import Folder, Record
from slipway.apis.llmkube.models.resolve import ModelView, expects
from slipway.apis.llmkube.models.spec import Model
from slipway.apis.llmkube.settings import llmkube
from slipway.kube.objects import MANAGED_BY, Object, deleting, key, uid
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import MetadataPatch, World
from slipway.weights.jobs import loads as jobs
from slipway.weights.jobs.loads import INSTANCE_LABEL, NAME_LABEL, REPORT_SECONDS, Run

OWN_LABELS = frozenset({NAME_LABEL, INSTANCE_LABEL, names.MODEL_LABEL, MANAGED_BY})


class ObservedJob(msgspec.Struct, frozen=True):
    """A Job that the Model needs, and its observed state."""

    job: Object
    run: Run

    def children(self, now: float) -> tuple[Object, ...]:
        return self.run.children(self.job, now)


class WeightsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The Jobs, patches and annotations that a Model needs for its weights."""

    children: tuple[Object, ...] = ()
    patches: tuple[MetadataPatch, ...] = ()
    annotations: Object = {}
    """Annotations to set on the Model before any object is created."""

    def __add__(self, other: WeightsPlan) -> WeightsPlan:
        return WeightsPlan(
            children=self.children + other.children,
            patches=self.patches + other.patches,
            annotations=self.annotations | other.annotations,
        )


def is_current(model: Model, record: Record | None) -> bool:
    """Whether the cache has the weights that the Model requests."""
    if record is None or not record.complete or not expects(model.resource, record):
        return False
    return not (record.has_drifted and model.spec.refresh_policy == "OnChange")


def download(view: ModelView, model: Model) -> ObservedJob:
    refresh = view.record is not None and view.record.complete
    return _observed(view.world, loaders.download(model, refresh=refresh))


def inspection(view: ModelView, model: Model) -> ObservedJob:
    """Return the Job that inspects the weights in a claim or, for other sources, only their header, and its observed
    state."""
    return _observed(view.world, loaders.inspection(model))


def into_cache(view: ModelView, model: Model) -> WeightsPlan:
    """Plan the Job that loads the weights into the cache or, once they are complete, the Job that checks their source.
    The result is empty while the claim or the directory is being removed."""
    record = view.record
    if view.claim_leaving or cache.being_evicted(view.world, record):
        return WeightsPlan()
    if is_current(model, record) and record is not None:
        return _watched(view, model, record)
    load = download(view, model)
    since, report = load.run.complete_since, load.run.report
    if since is not None and report is not None:
        done = Record(loaded=timestamp(since), by=model.name, report=report)
        return WeightsPlan(children=(load.job,), patches=(_patch_record(view, done),))
    first_record = {} if record is not None else {model.place.annotation: cache.encode_record(Record(), view.claim)}
    return WeightsPlan(children=load.children(view.world.now), annotations=first_record)


def _watched(view: ModelView, model: Model, record: Record) -> WeightsPlan:
    """Plan the Job that checks the source at intervals. The result is empty if no check is due, or if another Model
    that shares the weights checks the source."""
    interval, now = llmkube(model.settings).revalidate_seconds, view.world.now
    if not (interval and view.is_source_checker and now - record.checked_at >= interval):
        return WeightsPlan()
    revalidation = _observed(view.world, loaders.revalidation(model))
    run = revalidation.run
    over = run.complete_since if run.complete_since is not None else run.failed_since
    # The completion of the Job may be visible before its pod's report.
    unheard = run.complete_since is not None and run.report is None
    if over is None or (unheard and now < over + REPORT_SECONDS):
        return WeightsPlan(children=(revalidation.job,))
    return WeightsPlan(
        children=(revalidation.job,), patches=(_patch_record(view, cache.record_source_check(record, run.report, now)),)
    )


def _patch_record(view: ModelView, record: Record) -> MetadataPatch:
    """Return the patch that writes a record to the holder of the directory's record. If there is none, the view's Model
    becomes the holder."""
    return cache.patch_record(view.folder.holder or view.resource, view.folder.place, record, view.claim)


def from_claim(view: ModelView, model: Model) -> WeightsPlan:
    """Plan the Job that inspects the weights in a claim, once the claim is bound. The Job is kept, because its pod has
    the report."""
    there = view.world.get(model.claim) if model.claim else None
    bound = there is not None and not deleting(there) and there.get("status", {}).get("phase") == "Bound"
    return inspect_in_place(view, model) if bound else WeightsPlan()


def inspect_in_place(view: ModelView, model: Model) -> WeightsPlan:
    """Plan the Job that inspects weights without copying them. The result is empty unless the format is GGUF, or the
    weights are in a claim and have an expected hash."""
    if not (model.spec.format == "gguf" or (model.spec.sha256 and model.in_claim)):
        return WeightsPlan()
    return WeightsPlan(children=inspection(view, model).children(view.world.now))


def reconcile_records(view: ModelView) -> WeightsPlan:
    """Plan the changes of the Model's records, and of the claim's records that it takes over. A record is written to
    the Model before it is deleted from the claim, handed to another Model that uses the directory, or deleted with the
    directory. The result is empty if the claim does not exist or is being deleted."""
    if view.claim is None or view.claim_leaving:
        return WeightsPlan()
    adopted = (cache.patch_record(view.resource, one.place, one.record, view.claim) for one in view.orphaned)
    weights_plan = WeightsPlan(patches=tuple(adopted))
    idle: list[Folder] = []
    for folder in view.held:
        weights_plan += _reconcile_record(view, folder)
        idle += [folder] if _is_idle(view, folder) else []
    return weights_plan + _out_of_cache(view, idle)


def _reconcile_record(view: ModelView, folder: Folder) -> WeightsPlan:
    me = view.resource
    if not folder.held_by(me):
        return WeightsPlan(patches=(cache.patch_record(me, folder.place, None, view.claim),))
    patches = tuple(cache.patch_record(model, folder.place, None, view.claim) for model in folder.copies)
    if folder.on_claim:
        patches += (folder.place.recorded(folder.place.claim, None),)
    if folder.users and not folder.used_by(me) and not _marked(view, folder):
        patches += (cache.patch_record(folder.users[0], folder.place, folder.record, view.claim),)
    return WeightsPlan(patches=patches)


def _is_idle(view: ModelView, folder: Folder) -> bool:
    """Whether the Model should remove a directory: no Model uses the directory, or its removal has begun. Other records
    of the directory must be deleted first."""
    has_other_records = folder.copies or folder.on_claim
    return folder.held_by(view.resource) and not has_other_records and (not folder.users or _marked(view, folder))


def _marked(view: ModelView, folder: Folder) -> bool:
    return folder.record is not None and folder.record.evicted_by == uid(view.resource)


def _out_of_cache(view: ModelView, idle: list[Folder]) -> WeightsPlan:
    """Plan the next step of removing one idle directory: mark its record, remove the files with a Job, or delete the
    record. Marked directories come first; others that pods still read are skipped. A Model that is being deleted waits
    for the Job only up to a time limit. The plan is empty if no directory can be removed."""
    free = [one for one in idle if _marked(view, one) or not is_read(view, one)]
    folder = min(free, key=lambda one: (not _marked(view, one), one.key), default=None)
    if folder is None or folder.record is None:
        return WeightsPlan()
    me, now = view.resource, view.world.now
    if not _marked(view, folder):
        marked = Record(evicted_by=uid(me), evicted_at=timestamp(now))
        return WeightsPlan(patches=(cache.patch_record(me, folder.place, marked, view.claim),))
    eviction = _observed(view.world, loaders.eviction(me, folder.place, view.world.settings))
    since = folder.record.evicted_at or me["metadata"].get("deletionTimestamp")
    if not eviction.run.over and not (view.leaving and jobs.is_late(since, now)):
        return WeightsPlan(children=(eviction.job,))
    children = (eviction.job,) if eviction.run.job else ()
    return WeightsPlan(children=children, patches=(cache.patch_record(me, folder.place, None, view.claim),))


def waits_for_readers(view: ModelView) -> bool:
    """Whether the removal of directories waits for pods that still read them."""
    return any(_is_idle(view, one) and not _marked(view, one) and is_read(view, one) for one in view.held)


def is_read(view: ModelView, folder: Folder) -> bool:
    """Whether pods need the content of a directory. Incomplete content is not needed."""
    complete = folder.record is not None and folder.record.complete
    return complete and cache.is_read(view.world, folder.place.claim.namespace, folder.key)


def _observed(world: World, job: Object) -> ObservedJob:
    return ObservedJob(job, jobs.observe_run(world, key(job), jobs.arguments_of(job)))
