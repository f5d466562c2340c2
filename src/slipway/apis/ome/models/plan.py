"""Plan: the loads of files onto nodes and their removal, each by a Job that is pinned to its node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.models import folders, storage
from slipway.apis.ome.models.jobs import (
    LoaderTask,
    build_job,
    donor_of,
    eviction_task,
    inspection_task,
    is_bound,
    job_replaces_folder,
    load_task,
    may_replace_folders,
    name_of,
    observe_job,
)
from slipway.apis.ome.models.resolve import REPOSITORY, ModelView, repository_of
from slipway.apis.ome.models.storage import KINDS, Stored
from slipway.apis.ome.models.turns import Desired, has_turn
from slipway.apis.ome.models.volumes import build_volume, is_usable, path_of
from slipway.apis.ome.types.model import PARAMETER_SIZE, QUANTIZATIONS
from slipway.artifacts.facts.config import PYTORCH, SAFETENSORS, SAFETENSORS_VERSION, VersionedName
from slipway.kube.objects import (
    PERSISTENT_VOLUME_CLAIM,
    Object,
    annotations_of,
    deleting,
    key,
    uid,
)
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference
from slipway.weights import nodes
from slipway.weights.jobs.loads import Run
from slipway.weights.nodes import Node, Record, State

MOST_TOKENS = 2**31 - 1
MOST_DONORS = 32
"""Maximum number of models that are checked for reusable files."""
Stage = Literal["there", "loading", "waiting", "full", "failed", "leaving", "in use"]


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned step of a model on one node."""

    node: Node
    stage: Stage
    record: Record | None
    """The record to write to the node. None removes the existing record."""
    is_selectable: bool = True
    """Whether pods may select the node."""
    loader_task: LoaderTask | None = None
    run: Run = Run(name="")
    """State of the Job that loads or removes the files on the node."""


def plan(view: ModelView) -> Plan:
    """Return the plan with the model's child objects. For a model that lost its directory, return the plan that
    withdraws it, until nothing remains to be done. Raise InvalidSpecError if the model cannot be loaded."""
    if withdrawn := _plan_withdrawal(view):
        return withdrawn
    stored, done = view.valid(), plan_nodes(view)
    runs = [one.run for one in done]
    inspected: tuple[Object, ...] = ()
    if loader_task := inspection_task(view, stored):
        runs.append(run := observe_job(view, loader_task))
        inspected = run.children(build_job(view, loader_task), view.world.now) if is_bound(view, stored) else ()
    base = _build_plan(view, done)
    return msgspec.structs.replace(
        base,
        children=(*inspected, *base.children),
        self_patch=_fill_spec(view, runs),
        finalizer=names.MODEL_FINALIZERS[view.resource["kind"]],
    )


def finalize(view: ModelView) -> Plan | None:
    """Return the plan of a model that is being deleted, or None if the model can be removed. Objects that the garbage
    collector does not handle are deleted first. A lost node or a node without progress delays the deletion only for a
    limited time, so the deletion always completes."""
    elsewhere = view.jobs if key(view.resource).namespace and not view.is_overdue else ()
    return _build_plan(view, plan_nodes(view)) if view.nodes or view.held_volumes or elsewhere else None


def _build_plan(view: ModelView, node_plans: Sequence[NodePlan]) -> Plan:
    """Return a plan with the Jobs, volumes and records that the nodes need for the model, and the claims to delete."""
    jobs = (build_job(view, node_plan.loader_task) for node_plan in node_plans if node_plan.loader_task)
    return Plan(
        children=(*_build_volumes(view, node_plans), *jobs),
        discarded=_find_discarded_claims(view),
        metadata_patches=tuple(
            nodes.build_patch(one.node, view.label, one.record, selectable=one.is_selectable) for one in node_plans
        ),
    )


def _build_volumes(view: ModelView, node_plans: Sequence[NodePlan]) -> Iterator[Object]:
    """Yield the volume for each claim whose directory is in the model's record on any node, unless the existing volume
    is unusable. The claims of a deleted model keep their volumes, because pods may still use them."""
    recorded = {path for one in node_plans if one.record for path in one.record.readable_paths}
    there = {key(one).name: one for one in view.volumes}
    for one in view.claims:
        if one.path in recorded and is_usable(there.get(one.name), one.claim):
            yield build_volume(uid(view.resource), one)


def _find_discarded_claims(view: ModelView) -> tuple[Reference, ...]:
    """Return the claims to delete: all claims if the model is being deleted or is rejected, otherwise the claims for
    former directories that no pod reads. Kubernetes keeps a deleted claim as long as a pod uses the claim."""
    stays = isinstance(view.stored, Stored) and not view.is_deleted
    going = (
        one for one in view.claims if not stays or not (_is_current_folder(view, one.path) or view.is_read(one.path))
    )
    return tuple(Reference(PERSISTENT_VOLUME_CLAIM, *key(one.claim)) for one in going)


def _is_current_folder(view: ModelView, path: str) -> bool:
    """Whether ``path`` is the directory that the spec requests. Always False for a deleted or rejected model."""
    return isinstance(view.stored, Stored) and not view.is_deleted and view.stored.path == path


def plan_nodes(view: ModelView) -> tuple[NodePlan, ...]:
    """Return a plan for each node that has, or should have, the model, sorted by node name."""
    loader_task = load_task(view, view.stored) if isinstance(view.stored, Stored) and view.stored.root else None
    return tuple(
        _plan_node(view, node, loader_task) if view.is_for(node) else _plan_removal(view, node) for node in view.nodes
    )


# Loading


def _plan_node(view: ModelView, node: Node, loader_task: LoaderTask | None) -> NodePlan:
    stored, record = view.valid(), view.record(node)
    reads = "" if stored.url else stored.path
    before = record.paths_still_read(reads, view.is_read) if record is not None else ()
    if record is not None and record.has(stored.identity, node):
        record = msgspec.structs.replace(record, reads=reads, read_before=before)
        return _plan_loaded_node(view, node, record)
    desired = Desired(stored, record)
    if desired.lacks_room(view.resource, node):
        return NodePlan(node=node, stage="full", record=record and msgspec.structs.replace(record, state="Updating"))
    update = Record(
        state="Updating",
        of=uid(view.resource),
        digest=stored.identity,
        boot=node.boot,
        reads=reads,
        read_before=before,
    )
    if loader_task is None or stored.scheme == "vendor":
        return NodePlan(node=node, stage="loading", record=msgspec.structs.replace(update, state="Ready"))
    seal = record.seal_of(stored.path) if record and stored.url else ""
    update = msgspec.structs.replace(
        update,
        path=stored.path if stored.url else "",
        seal=seal,
        former=record.former_paths(stored.path) if record else (),
    )
    loader_task = loader_task.on_node(node)
    replaces = bool(stored.url) and _replaces_folder(view, stored, node, loader_task, seal)
    loader_task = loader_task.with_seal(seal, _choose_donor(view, stored, node, loader_task), replaces)
    run = observe_job(view, loader_task)
    report, again = run.report, None if run.outlived(view.world.now) else loader_task
    if report is not None and report.fault:
        unsound = msgspec.structs.replace(update, state="Failed", message=report.fault)
        return NodePlan(node=node, stage="failed", record=unsound, loader_task=again, run=run)
    if report is not None:
        ready = msgspec.structs.replace(
            update, state="Ready", size=report.size, revision=report.revision, seal=report.seal
        )
        return NodePlan(node=node, stage="loading", record=ready, loader_task=loader_task, run=run)
    if run.failed_since is not None:
        failed = msgspec.structs.replace(update, state="Failed", message=run.fault[1])
        return NodePlan(node=node, stage="failed", record=failed, loader_task=again, run=run)
    if run.job is not None or (not _is_still_written(view, node, loader_task) and has_turn(view.world, node, desired)):
        return NodePlan(node=node, stage="loading", record=update, loader_task=again, run=run)
    new_record = record if record is None or record.state == "Failed" else update
    return NodePlan(node=node, stage="waiting", record=new_record)


def _is_still_written(view: ModelView, node: Node, loader_task: LoaderTask) -> bool:
    """Whether another Job of the model may still write to a node. Such a Job was created before the node's restart or
    by an earlier version. It is no longer part of the plan, so it is deleted."""
    return any(nodes.node_of(job) == node.name and key(job) != name_of(view, loader_task) for job in view.writers)


def _choose_donor(view: ModelView, stored: Stored, node: Node, loader_task: LoaderTask) -> str:
    """Return the directory whose files a load may reuse, or an empty string if there is none. A running load keeps its
    donor as long as it may still use the donor's files."""
    candidates = list(_find_donors(view, stored, node))
    begun_donor = donor_of(view, loader_task)
    if begun_donor is not None and (not begun_donor or begun_donor in {path for path, _state in candidates}):
        return begun_donor
    return next((path for path, state in candidates if state == "Ready"), "")


def _replaces_folder(view: ModelView, stored: Stored, node: Node, loader_task: LoaderTask, seal: str) -> bool:
    """Whether a load replaces a directory that is not marked with the model's namespace. It keeps the directory if a
    node record shows that files were loaded into it for the namespace, for example by an earlier version. A running
    load is not changed."""
    is_replacing = job_replaces_folder(view, loader_task)
    if is_replacing is not None or not may_replace_folders(view):
        return bool(is_replacing)
    return not seal and not folders.is_loaded_by_others(view.world, node, stored.path)


def _find_donors(view: ModelView, stored: Stored, node: Node) -> Iterator[tuple[str, State]]:
    """Yield the path and state of each directory on the node with files from the same repository that belongs to
    another model, either cluster-scoped or in the same namespace. Yield nothing unless the download policy is
    ReuseIfExists."""
    if not stored.url or stored.spec.download_policy != "ReuseIfExists":
        return
    world, namespace = view.world, key(view.resource).namespace
    owners = dict.fromkeys(("", namespace))
    values = [repository_of(owner, stored.url) for owner in owners]
    models = (one for kind in KINDS.values() for value in values for one in world.list(kind, REPOSITORY, value))
    for model in islice(models, MOST_DONORS):
        record = nodes.find_record(node, nodes.mark(storage.node_label(model)), uid(model))
        if uid(model) == uid(view.resource) or deleting(model) or record is None:
            continue
        if record.path in folders.possible_paths(model, world.settings) and record.path != stored.path:
            yield record.path, record.state


def _plan_loaded_node(view: ModelView, node: Node, record: Record) -> NodePlan:
    """Return the plan for a node that has the model's files. The plan removes the model's former directories, one after
    another."""
    former = next(iter(record.former), "")
    if not former:
        return NodePlan(node=node, stage="there", record=record)
    leaving = _plan_eviction(view, node, former)
    later = tuple(one for one in record.former if one != former)
    says = msgspec.structs.replace(record, former=later) if leaving is None else record
    return NodePlan(node=node, stage="there", record=says, loader_task=leaving.loader_task if leaving else None)


# Removal


def _plan_withdrawal(view: ModelView) -> Plan | None:
    """Return the plan of a model that lost its directory, because the directory belongs to a model that takes
    precedence or was only allowed by an earlier version. Return None for other models, or if nothing remains to be
    done. The plan stops the model's loads, and removes the labels with which pods select its nodes. The files stay for
    other models. Records keep the directory while Jobs may still write to it."""
    if not isinstance(view.stored, InvalidSpecError) or view.is_deleted:
        return None
    if view.stored.reason not in (folders.TAKEN, storage.NOT_ALLOWED):
        return None
    busy = {nodes.node_of(job) for job in (*view.jobs, *view.writers)}
    possible = folders.possible_paths(view.resource, view.world.settings)
    notes = []
    for node in view.nodes:
        record = view.record(node)
        if record is None or record.path not in possible:
            continue
        former = record.former_paths(record.path)
        rest = msgspec.structs.replace(record, state="Failed", path="", former=former) if former else None
        note = record if node.name in busy else rest
        notes.append(nodes.build_patch(node, view.label, note, selectable=False, mountable=False))
    finalizer, discarded = names.MODEL_FINALIZERS[view.resource["kind"]], _find_discarded_claims(view)
    if not (notes or busy or discarded or view.volumes):
        return None
    return Plan(children=(), discarded=discarded, metadata_patches=tuple(notes), finalizer=finalizer)


def _plan_removal(view: ModelView, node: Node) -> NodePlan:
    record = view.record(node)
    if any(nodes.node_of(job) == node.name for job in view.writers):
        return NodePlan(node=node, stage="leaving", record=record, is_selectable=False)
    path = next(iter(record.paths), "") if record else ""
    leaving = _plan_eviction(view, node, path) if path else None
    if leaving is not None:
        return msgspec.structs.replace(leaving, record=record)
    rest = record.former_paths(path) if record else ()
    if record is None or not rest:
        return NodePlan(node=node, stage="leaving", record=None)
    last = msgspec.structs.replace(record, path="", former=rest)
    return NodePlan(node=node, stage="leaving", record=last, is_selectable=False)


def _plan_eviction(view: ModelView, node: Node, path: str) -> NodePlan | None:
    """Return the plan that removes a directory from a node, or None if nothing remains to be done: the directory is
    removed, stays on the node, or the model's deletion has reached its time limit. While pods may use the directory,
    the plan only has the stage ``in use``."""
    world = view.world
    root = storage.root_of(path, world.settings)
    if (
        not root
        or (view.is_deleted and storage.keeps_files(view.resource))
        or folders.is_folder_in_use(world, node, path)
    ):
        return None
    if view.is_read(path) or _may_mount(view, path):
        return NodePlan(node=node, stage="in use", record=None, is_selectable=False)
    loader_task = eviction_task(node, path, root)
    run = observe_job(view, loader_task)
    if run.complete_since is not None or (view.is_overdue and view.is_deleted):
        return None
    again = None if run.outlived(world.now) else loader_task
    return NodePlan(node=node, stage="leaving", record=None, is_selectable=False, loader_task=again, run=run)


def _may_mount(view: ModelView, path: str) -> bool:
    """Whether pods may still mount a former directory of the model, which could next belong to another model."""
    return not _is_current_folder(view, path) and any(path_of(one) == path for one in view.held_volumes)


# Metadata from the files


def _fill_spec(view: ModelView, runs: Iterable[Run]) -> Object:
    """Return the patch of the spec with the fields that it omits, from the loader's report on the files. Return an
    empty object if there is nothing to add.

    The values are those of the original OME, because runtimes are written for them: the size is the number of stored
    values, PyTorch weights count as safetensors, and quantizations that OME does not know are omitted. With other
    values, no runtime would match the model. The number of parameters of a quantized model is added to
    additionalMetadata, for runtimes with limits for that number.
    """
    spec, annotations = view.resource["spec"], annotations_of(view.resource)
    facts = next((report.model for run in runs if (report := run.report) and report.model), None)
    fixed = annotations.get(names.SKIP_CONFIG) == "true" or view.resource["kind"] == names.FINE_TUNED_WEIGHT.kind
    if facts is None or fixed:
        return {}
    format_ = (
        VersionedName(SAFETENSORS, SAFETENSORS_VERSION) if facts.format == VersionedName(PYTORCH) else facts.format
    )
    fields = {
        "modelType": facts.model_type,
        "modelArchitecture": facts.architecture,
        "modelFormat": format_ and msgspec.to_builtins(format_),
        "modelFramework": facts.framework and msgspec.to_builtins(facts.framework),
        "modelParameterSize": facts.stored_size or facts.parameter_size,
        "modelCapabilities": list(facts.capabilities),
        "quantization": facts.quantization if facts.quantization in QUANTIZATIONS else "",
        "maxTokens": min(facts.max_tokens, MOST_TOKENS),
        "diffusionPipeline": facts.diffusion_pipeline,
    }
    unset = {field: value for field, value in fields.items() if value and not spec.get(field)}
    differs = facts.stored_size not in ("", facts.parameter_size)
    if differs and "modelParameterSize" in unset and PARAMETER_SIZE not in (spec.get("additionalMetadata") or {}):
        unset["additionalMetadata"] = {PARAMETER_SIZE: facts.parameter_size}
    return {"spec": unset} if unset else {}
