"""Owners of the model directories on nodes. Pure.

Cluster-scoped models, which belong to the operator, take precedence. Next are models below their namespace's directory,
or below a directory that the operator shares with all namespaces. Last are models whose files an earlier version loaded
into other directories. Node records contain these paths, and only the controller writes the records.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from typing import NamedTuple

import msgspec

from slipway.apis.ome.models import storage
from slipway.apis.ome.models.storage import KINDS, Mount, Stored, mount_of
from slipway.apis.ome.models.volumes import path_of
from slipway.kube.caches.store import IndexFunction
from slipway.kube.objects import NODE, PERSISTENT_VOLUME, Kind, Object, controller_owner, deleting, key, uid
from slipway.serving.contract.api import InvalidSpecError, Listers, Watch, World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import enqueue_nothing
from slipway.weights import nodes
from slipway.weights.jobs.turns import age
from slipway.weights.nodes import Node

PATH, FORMER = "path", "former"
"""Indexes of models by directory. PATH contains the directory of a model's files and all its parents, and the directory
alone with the prefix EXACTLY. FORMER has the same values, for models that may use the directory only if a node record
contains it."""
EXACTLY = "="
FOLDER = "folder"
"""Index of PersistentVolumes by directory, with the same values as PATH."""
TAKEN = "PathTaken"
CLUSTER_KINDS = tuple(kind for kind in KINDS.values() if not kind.namespaced)


class _Anything(Container[str]):
    def __contains__(self, _path: object) -> bool:
        return True


ANY_PATH = _Anything()


class Rank(NamedTuple):
    """Sort key for models that claim the same directory; the lowest rank takes precedence. ``group`` is 0 for
    cluster-scoped models, 2 for models whose directory only a node record allows, and otherwise 1. Within a group,
    models whose files are loaded come before new models, and otherwise older models come first."""

    group: int
    is_new: bool
    age: tuple[str, ...]


class Claim(msgspec.Struct, frozen=True):
    """A model that has or requests a node directory."""

    model: Object
    stored: Stored
    former: bool = False
    """Whether the model may use the directory only because nodes already have its files there."""

    @property
    def owner(self) -> str:
        """Namespace of the model's authors. Empty for the operator's cluster-scoped models."""
        return key(self.model).namespace

    @property
    def group(self) -> int:
        return 2 if self.former else int(bool(self.owner))


def resolve_storage(world: World, model: Object) -> Stored:
    """Return the model's storage. Raise InvalidSpecError if the storage cannot be served, or if its directory belongs
    to another model."""
    recorded = recorded_paths(world, model) if _may_be_former(model, world.settings) else frozenset[str]()
    stored = storage.parse_storage(model, world.settings, recorded)
    if stored.root:
        mine = Claim(model, stored, not storage.is_placed(stored.path, key(model).namespace, world.settings))
        if rival := next(_find_rivals(world, mine), None):
            raise InvalidSpecError(TAKEN, _describe_conflict(mine, rival))
    return stored


def resolve_mount(world: World, model: Object) -> Mount:
    """Return the mount with which pods read a model. Raise InvalidSpecError if the storage cannot be served, or if its
    directory belongs to another model."""
    return mount_of(model, world.settings, resolve_storage(world, model))


def possible_paths(model: Object, settings: Settings) -> frozenset[str]:
    """Return the directories that a model could have in this version or an earlier one, regardless of other models.
    Empty if the model's storage is invalid, or its files are not on nodes."""
    return frozenset(path for path in (_path(model, settings), _path(model, settings, ANY_PATH)) if path)


def _path(model: Object, settings: Settings, allowed: Container[str] = ()) -> str:
    try:
        stored = storage.parse_storage(model, settings, allowed)
    except InvalidSpecError:
        return ""
    return stored.path if stored.root else ""


def recorded_paths(world: World, model: Object) -> frozenset[str]:
    """Return the directories of a model in the records of nodes. Directories that earlier versions shared between all
    models without a path are left out, because they belong to no single model."""
    paths = {_record_path(nodes.parse_node(node), model) for node in world.list(NODE)} - {""}
    shared = {f"{storage.root_of(path, world.settings)}/{scheme}" for path in paths for scheme in storage.FETCHED}
    return frozenset(paths - shared)


def may_use_folder(listers: Listers, settings: Settings, model: Object, path: str) -> bool:
    """Whether a model may use a directory, either by the placement rules or because a node record shows that its files
    are there."""
    placed = storage.is_placed(path, key(model).namespace, settings)
    return placed or any(_record_path(nodes.parse_node(node), model) == path for node in listers.list(NODE))


def is_folder_in_use(world: World, node: Node, path: str) -> bool:
    """Whether a directory must stay on a node although the world's model gives it up. It must stay if it overlaps with
    a directory that the node has for a model of another owner, or with the directory of any cluster-scoped model, or if
    another model of the same owner, which is not being deleted, uses it or a directory inside it."""
    mine, settings = world.resource, world.settings
    group = 0 if not key(mine).namespace else 1 if storage.is_placed(path, key(mine).namespace, settings) else 2
    for one in find_overlapping(world.listers, settings, path):
        if uid(one.model) == uid(mine):
            continue
        there = _record_path(node, one.model) == one.stored.path
        if one.owner != key(mine).namespace:
            if there or (one.group <= group and not one.owner):
                return True
        elif (there or not one.former) and not deleting(one.model) and _is_within(one.stored.path, path):
            return True
    return False


def is_loaded_by_others(world: World, node: Node, path: str) -> bool:
    """Whether a node's records show that files of another model of the same owner were loaded into a directory."""
    mine = world.resource
    for one in find_overlapping(world.listers, world.settings, path):
        if one.owner != key(mine).namespace or uid(one.model) == uid(mine) or one.stored.path != path:
            continue
        record = nodes.find_record(node, nodes.mark(storage.node_label(one.model)), uid(one.model))
        if record and record.seal_of(path):
            return True
    return False


def overlap(one: str, other: str) -> bool:
    """Whether two directories are equal, or one is inside the other."""
    return _is_within(one, other) or _is_within(other, one)


def find_overlapping(
    listers: Listers,
    settings: Settings,
    path: str,
    kinds: Collection[Kind] = tuple(KINDS.values()),
    among: Collection[str] = (PATH, FORMER),
) -> Iterator[Claim]:
    """Yield the models that may have a directory that overlaps with ``path``. ``kinds``: the kinds of these models;
    ``among``: the indexes to search, PATH or FORMER."""
    values = (path, *(f"{EXACTLY}{above}" for above in _with_parents(path)[:-1]))
    for kind in kinds:
        for index in among if kind.namespaced else [one for one in among if one == PATH]:
            former = index == FORMER
            for model in (one for value in values for one in listers.list(kind, index, value)):
                yield Claim(model, storage.parse_storage(model, settings, ANY_PATH if former else ()), former)


def by_folder(volume: Object) -> Iterable[str]:
    """Return the values of a volume in the index :data:`FOLDER`. Empty for a volume without a local path."""
    path = path_of(volume)
    return (*_with_parents(path), f"{EXACTLY}{path}") if path else ()


def is_mounted_by_others(listers: Listers, model: Object, path: str) -> bool:
    """Whether pods of other namespaces may still mount a directory that overlaps with ``path``: there is a
    PersistentVolume for it that belongs to neither the model nor another model of its namespace. Always False for a
    cluster-scoped model, because pods in all namespaces may read its files."""
    namespace = key(model).namespace
    if not namespace:
        return False
    values = (path, *(f"{EXACTLY}{above}" for above in _with_parents(path)[:-1]))
    volumes = (one for value in values for one in listers.list(PERSISTENT_VOLUME, FOLDER, value))
    owners = (controller_owner(one) for one in volumes)
    return any(one is None or (one.uid != uid(model) and one.namespace != namespace) for one in owners)


# Precedence


def _find_rivals(world: World, mine: Claim) -> Iterator[Claim]:
    """Yield the models that prevent a model from using its directory. Empty if the model may use it."""
    kinds = tuple(KINDS.values()) if mine.owner else CLUSTER_KINDS
    rank: Rank | None = None
    among = (PATH, FORMER) if mine.former else (PATH,)  # FORMER models may be many, and all come later
    for other in find_overlapping(world.listers, world.settings, mine.stored.path, kinds, among):
        same_owner = other.owner == mine.owner
        if uid(other.model) == uid(mine.model) or other.group > mine.group or (same_owner and _may_share(mine, other)):
            continue
        rank = rank or _rank(world, mine)
        theirs = _rank(world, other) if other.group == mine.group else Rank(other.group, True, ())
        if other.former and theirs.is_new:  # no node has its files, so it cannot claim the directory
            continue
        nested = other.stored.path != mine.stored.path
        if theirs < rank and not (same_owner and nested and not rank.is_new):
            yield other


def _may_share(one: Claim, other: Claim) -> bool:
    """Whether two models of one owner may share a directory. Models only conflict if both load files, the files or
    paths differ, and ``other`` is not being deleted."""
    if deleting(other.model) or not one.stored.url or not other.stored.url:
        return True
    return one.stored.path == other.stored.path and one.stored.identity == other.stored.identity


def _rank(world: World, claim: Claim) -> Rank:
    return Rank(claim.group, claim.stored.path not in recorded_paths(world, claim.model), age(claim.model))


def _describe_conflict(mine: Claim, rival: Claim) -> str:
    mine_path, path = mine.stored.path, rival.stored.path
    other = f"The {rival.model['kind']} {key(rival.model)}"
    if rival.owner not in ("", mine.owner):  # authors must not learn about models in other namespaces
        text = f"The directory {mine_path} overlaps with the directory of another namespace's model"
    elif path != mine_path:
        text = f"{other} already uses the directory {path}, and {mine_path} overlaps with it"
    else:
        text = f"{other} already uses the directory {path}" + (", for other files" if rival.owner == mine.owner else "")
    return f"{text}. Use another path."


# Indexes and watches


NODES = Watch(kind=NODE, enqueue=enqueue_nothing, trim=nodes.trim_node)
"""Watch for nodes, for kinds that read node records to determine a model's directory."""


def indexes(settings: Settings) -> dict[str, IndexFunction]:
    return {PATH: _ByPath(settings, former=False), FORMER: _ByPath(settings, former=True)}


class _ByPath(msgspec.Struct, frozen=True):
    """Index function for :data:`PATH`, or for :data:`FORMER` if ``former`` is set. Two instances with equal settings
    are equal."""

    settings: Settings
    former: bool

    def __call__(self, model: Object) -> Iterable[str]:
        if self.former and not _may_be_former(model, self.settings):
            return ()
        path = _path(model, self.settings, ANY_PATH if self.former else ())
        return (*_with_parents(path), f"{EXACTLY}{path}") if path else ()


def _may_be_former(model: Object, settings: Settings) -> bool:
    """Whether an earlier version may have loaded the files into a directory that the current placement rules do not
    allow."""
    namespace = key(model).namespace
    path = _path(model, settings, ANY_PATH) if namespace else ""
    return bool(path) and not storage.is_placed(path, namespace, settings)


def _record_path(node: Node, model: Object) -> str:
    record = nodes.find_record(node, nodes.mark(storage.node_label(model)), uid(model))
    return record.path if record else ""


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
