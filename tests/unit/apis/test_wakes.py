"""Every object that a resource reads by its name wakes the resource when it appears or goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, key
from slipway.serving.contract.api import Api, InvalidSpecError, World
from tests.tables import each

from .llmkube import test_models
from .test_golden import EXAMPLES, KINDS, api_of, world_of


class Recorder:
    """Listers that remember what was read by name."""

    def __init__(self, listers: Any) -> None:
        self._listers = listers
        self.read: set[tuple[Kind, Key]] = set()

    def get(self, kind: Kind, name: Key) -> Object | None:
        self.read.add((kind, name))
        resource: Object | None = self._listers.get(kind, name)
        return resource

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listers, name)


def examples() -> Iterator[tuple[str, Api[Any], World]]:
    for path in EXAMPLES:
        yield f"{path.parent.name}/{path.stem}", api_of(path), world_of(path)
    for path in test_models.EXAMPLES:
        yield f"models/{path.stem}", KINDS["llmkube", "Model"], test_models.example(path)


def read(api: Api[Any], world: World) -> set[tuple[Kind, Key]]:
    """The other objects that are read by name, existing or not."""
    recorder: Any = Recorder(world.listers)
    view = api.resolve(msgspec.structs.replace(world, listers=recorder))
    with contextlib.suppress(InvalidSpecError):
        api.plan(view)
    api.status(view, None)
    own = (api.resource.kind, key(world.resource))
    return {(kind, name) for kind, name in recorder.read if name.name and (kind, name) != own}


@each(examples(), ids=lambda row: row[0])
def test_an_object_that_is_read_wakes_its_readers(name: str, api: Api[Any], world: World) -> None:
    silent = {
        f"{kind.kind} {place}"
        for kind, place in read(api, world)
        if key(world.resource) not in woken(api, world, kind, place)
    }
    assert silent == set(), name


def woken(api: Api[Any], world: World, kind: Kind, place: Key) -> set[Key]:
    """The resources that are reconciled when an object appears and when it goes."""
    metadata = {"name": place.name, "namespace": place.namespace, "uid": "u", "generation": 1}
    bare = {"metadata": metadata | {"creationTimestamp": "2026-11-21T08:00:00Z"}, "spec": {}, "status": {}}
    resource = world.listers.get(kind, place) or bare
    watches = [watch for watch in api.watches(world.settings) if watch.kind == kind and watch.listed]
    each_way = [
        {one for watch in watches for one in watch.enqueue(change, world.listers)}
        for change in (Change(None, resource), Change(resource, None))
    ]
    return each_way[0] & each_way[1]
