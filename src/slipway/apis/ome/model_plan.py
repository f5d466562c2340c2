"""Plan: files come onto nodes and go from them, each by a Job that is pinned to its node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Literal

import msgspec

from slipway.apis.ome import folders, names, storage
from slipway.apis.ome.model_jobs import Errand, donor_of, evict, inspection, is_bound, load, made, observed
from slipway.apis.ome.model_resolve import MOUNTED, PINNED, REPOSITORY, Desired, View, desired_of, repository_of
from slipway.apis.ome.model_types import PARAMETER_SIZE, QUANTIZATIONS
from slipway.apis.ome.settings import ome
from slipway.apis.ome.storage import KINDS, Stored
from slipway.artifacts.config import PYTORCH, SAFETENSORS, SAFETENSORS_VERSION, Named
from slipway.kube.objects import (
    JOB,
    Object,
    OwnerReference,
    annotations_of,
    as_object,
    controller_owner,
    deleting,
    key,
    uid,
)
from slipway.serving.api import InvalidSpecError, Plan
from slipway.serving.diagnosis import remains
from slipway.serving.job import ended, works
from slipway.weights import nodes
from slipway.weights.jobs import Run, in_place, is_late, words_of
from slipway.weights.nodes import Node, Record, State
from slipway.weights.turns import age

MOST_TOKENS = 2**31 - 1
MOST_DONORS = 32
"""Models that are looked at for files that need not be loaded again."""
Stage = Literal["there", "loading", "waiting", "full", "failed", "leaving", "in use"]


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a model on a node just now."""

    node: Node
    stage: Stage
    says: Record | None
    """What the node is to say."""
    offered: bool = True
    """Whether pods may select the node."""
    errand: Errand | None = None
    run: Run = Run(name="")
    """Of the Job that brings the files, or takes them away."""


def plan(view: View) -> Plan:
    """Raises InvalidSpecError."""
    if withdrawn := _withdrawn(view):
        return withdrawn
    stored, done = view.valid(), visits(view)
    runs = [one.run for one in done]
    inspected: tuple[Object, ...] = ()
    if asked := inspection(view, stored):
        runs.append(run := observed(view, asked))
        inspected = run.children(made(view, asked), view.world.now) if is_bound(view, stored) else ()
    wanted = _visiting(view, done)
    return msgspec.structs.replace(
        wanted,
        children=(*inspected, *wanted.children),
        self_patch=_filled(view, runs),
        finalizer=names.MODEL_FINALIZERS[view.resource["kind"]],
    )


def finalize(view: View) -> Plan | None:
    """Ends in any case: a node that is lost, or that nothing works on, is waited for only so long."""
    return _visiting(view, visits(view)) if view.nodes else None


def _visiting(view: View, done: Sequence[Visit]) -> Plan:
    """What the nodes need for the model, and are to say of it."""
    return Plan(
        children=tuple(made(view, visit.errand) for visit in done if visit.errand),
        metadata_patches=tuple(nodes.noted(one.node, view.label, one.says, offered=one.offered) for one in done),
    )


def visits(view: View) -> tuple[Visit, ...]:
    """For all nodes that have to do with the model, in the order of their names."""
    errand = load(view, view.stored) if isinstance(view.stored, Stored) and view.stored.root else None
    ahead = cache(lambda: older(view))
    return tuple(_there(view, node, errand, ahead) if view.is_for(node) else _gone(view, node) for node in view.nodes)


# Onto a node


def _there(view: View, node: Node, errand: Errand | None, ahead: Callable[[], Sequence[Object]]) -> Visit:
    """``ahead``: the models that go first."""
    stored, record = view.valid(), view.record(node)
    if record is not None and record.has(stored.wanted, node):
        return _left_behind(view, node, record)
    if Desired(stored, record).lacks_room(view.resource, node):
        return Visit(node=node, stage="full", says=record and msgspec.structs.replace(record, state="Updating"))
    said = Record(state="Updating", of=uid(view.resource), wanted=stored.wanted, boot=node.boot)
    if errand is None or stored.scheme == "vendor":
        return Visit(node=node, stage="loading", says=msgspec.structs.replace(said, state="Ready"))
    seal = record.seal_of(stored.path) if record and stored.url else ""
    said = msgspec.structs.replace(
        said, path=stored.path if stored.url else "", seal=seal, former=record.moved(stored.path) if record else ()
    )
    errand = errand.to(node)
    errand = errand.knowing(seal, _donor(view, stored, node, errand))
    run = observed(view, errand)
    report, again = run.report, None if run.outlived(view.world.now) else errand
    if report is not None and report.fault:
        unsound = msgspec.structs.replace(said, state="Failed", message=report.fault)
        return Visit(node=node, stage="failed", says=unsound, errand=again, run=run)
    if report is not None:
        ready = msgspec.structs.replace(
            said, state="Ready", size=report.size, revision=report.revision, seal=report.seal
        )
        return Visit(node=node, stage="loading", says=ready, errand=errand, run=run)
    if run.failed_since is not None:
        failed = msgspec.structs.replace(said, state="Failed", message=run.fault[1])
        return Visit(node=node, stage="failed", says=failed, errand=again, run=run)
    if run.made is not None or (
        not _is_written(view, node, view.resource, stored.path) and _has_turn(view, node, ahead())
    ):
        return Visit(node=node, stage="loading", says=said, errand=again, run=run)
    kept = record if record is None or record.state == "Failed" else said
    return Visit(node=node, stage="waiting", says=kept)


def _donor(view: View, stored: Stored, node: Node, errand: Errand) -> str:
    """The folder whose files a load may reuse; empty: none. A load that has begun goes on with what it has, as long as
    it may have it."""
    candidates = list(_donors(view, stored, node))
    begun = donor_of(view, errand)
    if begun is not None and (not begun or begun in {path for path, _state in candidates}):
        return begun
    return next((path for path, state in candidates if state == "Ready"), "")


def _donors(view: View, stored: Stored, node: Node) -> Iterator[tuple[str, State]]:
    """The folders that the node has of the same repository, of other models of the cluster or of the same namespace,
    and how far they are. None, unless the policy asks for them."""
    if not stored.url or stored.spec.download_policy != "ReuseIfExists":
        return
    world, namespace = view.world, key(view.resource).namespace
    owners = dict.fromkeys(("", namespace))
    values = [repository_of(owner, stored.url) for owner in owners]
    found = (one for kind in KINDS.values() for value in values for one in world.list(kind, REPOSITORY, value))
    for model in islice(found, MOST_DONORS):
        record = nodes.recorded(node, nodes.mark(storage.node_label(model)), uid(model))
        if uid(model) == uid(view.resource) or deleting(model) or record is None:
            continue
        if record.path in folders.wished_paths(model, world.settings) and record.path != stored.path:
            yield record.path, record.state


def _is_written(view: View, node: Node, model: Object, path: str) -> bool:
    """Whether the load of another model than this one, from before it had the folder, may still write there or around.
    Which folder that is, the node's record says: anybody can forge a Job."""
    pinned = view.world.list(JOB, PINNED, node.name)
    return any(
        owner.uid != uid(model) and folders.overlap(record.path, path)
        for job in _in_place(view, pinned)
        if _may_write(view, job) and (owner := controller_owner(job)) and (record := _record_of(node, job, owner))
    )


def _in_place(view: View, jobs: Iterable[Object]) -> list[Object]:
    own = ome(view.world.settings)
    return [one for one in jobs if in_place(one, KINDS.values(), own.namespace)]


def _may_write(view: View, job: Object) -> bool:
    """One that is deleted and does not go is waited for only so long: its author may have given it a finalizer."""
    return _loads(job) and not is_late(job["metadata"].get("deletionTimestamp"), view.world.now)


def _record_of(node: Node, job: Object, owner: OwnerReference) -> Record | None:
    """What a node says of the folder of a Job's model; None: nothing."""
    kind = KINDS[owner.kind]
    label = names.node_label(kind, key(job).namespace if kind.namespaced else "", owner.name)
    record = nodes.recorded(node, nodes.mark(label), owner.uid)
    return record if record and record.path else None


def _has_turn(view: View, node: Node, ahead: Sequence[Object]) -> bool:
    """Whether a load may begin on a node: the oldest of the waiting models go first. A namespace leaves one
    turn to the others, as its authors may create endless loads, and Jobs that look like loads."""
    world = view.world
    own, pinned = ome(world.settings), _in_place(view, world.list(JOB, PINNED, node.name))
    most = max(own.loads_at_once - 1, 1)
    held = Counter(_author(one) for one in pinned if works(one, world.now))
    free = own.loads_at_once - sum(min(count, most) if author else count for author, count in held.items())
    busy = {owner.uid for one in pinned if (owner := controller_owner(one))}
    full = {author for author, count in held.items() if author and count >= most}
    waiting = (one for one in ahead if uid(one) not in busy and key(one).namespace not in full)
    first = islice((one for one in waiting if _could_load(view, node, one)), max(free, 0))
    return key(view.resource).namespace not in full and sum(1 for _one in first) < free


def _could_load(view: View, node: Node, model: Object) -> bool:
    """Whether another model waits for nothing but its turn on a node."""
    desired = desired_of(model, node, view.world.settings)
    return desired is not None and not (
        desired.lacks_room(model, node) or _is_written(view, node, model, desired.stored.path)
    )


def _author(job: Object) -> str:
    """The namespace whose authors may have created a Job; empty: the operator did, for a model of the cluster."""
    owner = controller_owner(job)
    kind = KINDS.get(owner.kind) if owner else None
    return key(job).namespace if kind is None or kind.namespaced else ""


def older(view: View) -> Sequence[Object]:
    """The models of all kinds that are older than this one, the oldest first."""
    found = (one for kind in KINDS.values() for one in view.world.list(kind))
    mine = age(view.resource)
    return sorted((one for one in found if age(one) < mine), key=age)


def _left_behind(view: View, node: Node, record: Record) -> Visit:
    """A model whose files are there, and the folders that it had before."""
    former = next(iter(record.former), "")
    if not former:
        return Visit(node=node, stage="there", says=record)
    leaving = _without(view, node, former)
    kept = tuple(one for one in record.former if one != former)
    says = msgspec.structs.replace(record, former=kept) if leaving is None else record
    return Visit(node=node, stage="there", says=says, errand=leaving.errand if leaving else None)


# Off a node


def _withdrawn(view: View) -> Plan | None:
    """What is left of a model whose folder is that of a model which comes first, or one that an earlier version let it
    have and this one does not: its loads stop, and no pod selects its nodes any more. The files stay for other models,
    which keep what they can verify. None: there is nothing left."""
    if not isinstance(view.stored, InvalidSpecError) or view.leaving:
        return None
    if view.stored.reason not in (folders.TAKEN, storage.NOT_ALLOWED):
        return None
    busy = {nodes.node_of(job) for job in view.jobs}
    lost = folders.wished_paths(view.resource, view.world.settings)
    notes = []
    for node in view.nodes:
        record = view.record(node)
        if record is None or record.path not in lost:
            continue
        former = record.moved(record.path)
        rest = msgspec.structs.replace(record, state="Failed", path="", former=former) if former else None
        notes.append(nodes.noted(node, view.label, record if node.name in busy else rest, offered=False))
    finalizer = names.MODEL_FINALIZERS[view.resource["kind"]]
    return Plan(children=(), metadata_patches=tuple(notes), finalizer=finalizer) if notes or busy else None


def _gone(view: View, node: Node) -> Visit:
    record = view.record(node)
    if any(nodes.node_of(job) == node.name and _loads(job) for job in view.jobs):
        return Visit(node=node, stage="leaving", says=record, offered=False)
    path = next(iter(record.paths), "") if record else ""
    leaving = _without(view, node, path) if path else None
    if leaving is not None:
        return msgspec.structs.replace(leaving, says=record)
    rest = record.moved(path) if record else ()
    if record is None or not rest:
        return Visit(node=node, stage="leaving", says=None)
    last = msgspec.structs.replace(record, path="", former=rest)
    return Visit(node=node, stage="leaving", says=last, offered=False)


def _without(view: View, node: Node, path: str) -> Visit | None:
    """What takes a folder off a node; None: it is gone, or it stays."""
    world = view.world
    root = storage.root_of(path, world.settings)
    if not root or (view.leaving and storage.reserved(view.resource)) or folders.occupied(world, node, path):
        return None
    readers = world.listers.pods_of(names.INFERENCE_SERVICE, MOUNTED, storage.use_of(path))
    if any(_reads(pod, view, path) and remains(pod, world.now) for pod in readers):
        return Visit(node=node, stage="in use", says=None, offered=False)
    errand = evict(node, path, root)
    run = observed(view, errand)
    if run.complete_since is not None or (view.late and view.leaving):
        return None
    again = None if run.outlived(world.now) else errand
    return Visit(node=node, stage="leaving", says=None, offered=False, errand=again, run=run)


def _reads(pod: Object, view: View, path: str) -> bool:
    """Whether a pod may read the model, and mounts its folder."""
    if key(view.resource).namespace not in ("", key(pod).namespace):
        return False
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    mounted = {str(as_object(one.get("hostPath")).get("path", "")).rstrip("/") for one in volumes}
    return path in mounted


def _loads(job: Object) -> bool:
    """Whether a Job may still write."""
    stages = words_of(job)[1:2] == ["stage"]
    return stages and ended(job, "Complete") is None and ended(job, "Failed") is None


# What the files say


def _filled(view: View, runs: Iterable[Run]) -> Object:
    """The fields that the spec leaves out, by the loader's report on the files.

    Runtimes are written for what OME fills in: the size counts the stored numbers, weights of PyTorch go by the name of
    safetensors, and a quantization that OME has no word for stays out. All else would keep a model from its runtime.
    The real size of a quantized model is in additionalMetadata, for runtimes that are written for that."""
    spec, annotations = view.resource["spec"], annotations_of(view.resource)
    told = next((report.model for run in runs if (report := run.report) and report.model), None)
    fixed = annotations.get(names.SKIP_CONFIG) == "true" or view.resource["kind"] == names.FINE_TUNED_WEIGHT.kind
    if told is None or fixed:
        return {}
    format_ = Named(SAFETENSORS, SAFETENSORS_VERSION) if told.format == Named(PYTORCH) else told.format
    found = {
        "modelType": told.model_type,
        "modelArchitecture": told.architecture,
        "modelFormat": format_ and msgspec.to_builtins(format_),
        "modelFramework": told.framework and msgspec.to_builtins(told.framework),
        "modelParameterSize": told.stored_size or told.parameter_size,
        "modelCapabilities": list(told.capabilities),
        "quantization": told.quantization if told.quantization in QUANTIZATIONS else "",
        "maxTokens": min(told.max_tokens, MOST_TOKENS),
        "diffusionPipeline": told.diffusion_pipeline,
    }
    unset = {field: value for field, value in found.items() if value and not spec.get(field)}
    differs = told.stored_size not in ("", told.parameter_size)
    if differs and "modelParameterSize" in unset and PARAMETER_SIZE not in (spec.get("additionalMetadata") or {}):
        unset["additionalMetadata"] = {PARAMETER_SIZE: told.parameter_size}
    return {"spec": unset} if unset else {}
