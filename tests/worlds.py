"""Worlds for tests of plans: what the caches would have, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from slipway.controller.inputs.pods import workload_of
from slipway.kube.caches.store import Store, Stores
from slipway.kube.objects import POD, Key, Kind, Object
from slipway.serving.contract.api import Api, Plan, Reference, Rejection, StatusResult, World
from slipway.serving.contract.settings import Authors, Settings
from slipway.serving.routing.scaling import Scaling

UPSTREAM = Authors(
    service_accounts=("*",),
    privileged=True,
    any_volume=True,
    node_ports=True,
    priority_classes=("*", "system-cluster-critical", "system-node-critical"),
    preemption=True,
    system_namespace=True,
    prometheus_servers=("*",),
    trigger_authentications=("*",),
    privileged_models=("*",),
)
"""What the original systems let everybody do."""


def at(kind: Kind, name: str, namespace: str = "models") -> tuple[Kind, Key]:
    """Where a World has a child."""
    return kind, Key(namespace, name)


class Known(Stores):
    """Objects by their references, trimmed and indexed as an API's watches say. All pods are trusted."""

    def __init__(self, api: Api[Any], settings: Settings, objects: Mapping[Reference, Object]) -> None:
        self.api, self.settings, self.objects = api, settings, dict(objects)
        watches = [watch for watch in api.watches(settings) if watch.listed and (watch.indexes or not watch.owned)]
        indexes: dict[Kind, dict[str, Any]] = {api.resource.kind: {}}
        for watch in watches:
            indexes.setdefault(watch.kind, {}).update(watch.indexes)
        trims = {watch.kind: watch.trim for watch in watches if watch.trim}
        stores = {kind: Store(index) for kind, index in indexes.items()}
        for reference, obj in self.objects.items():
            trimmed = trims.get(reference.kind, lambda one: one)(_named(reference, obj))
            changes = stores[reference.kind].put(trimmed) if trimmed is not None else []
            # Some tests leave out what their plans do not look at.
            assert "spec" not in obj or [change.faults for change in changes if change.faults] == []
        super().__init__(stores)

    def pods_of(self, _owner: Kind, index: str, value: str) -> list[Object]:
        return list(self.list(POD, index, value))

    def pods_of_workload(self, workload: Kind, name: Key) -> list[Object]:
        return [pod for pod in self.list(POD) if workload_of(pod) == (workload, name)]


def _named(reference: Reference, obj: Object) -> Object:
    metadata = {"name": reference.name, "namespace": reference.namespace, **obj.get("metadata", {})}
    return {**obj, "metadata": metadata}


def known_world(
    api: Api[Any],
    settings: Settings | None = None,
    objects: Mapping[Reference, Object] | None = None,
    others: Iterable[Object] = (),
) -> Known:
    """``others``: of kinds that the API watches, found by their word; its own kind where they say none."""
    settings = settings or Settings(system_namespace="system")
    resources = dict(objects or {})
    watched = [watch.kind for watch in api.watches(settings) if watch.listed and (watch.indexes or not watch.owned)]
    kinds = {kind.kind: kind for kind in (*watched, api.resource.kind)}
    for obj in others:
        kind = kinds[obj["kind"]] if "kind" in obj else api.resource.kind
        metadata = obj["metadata"]
        resources[Reference(kind, metadata.get("namespace", ""), metadata["name"])] = obj
    return Known(api, settings, resources)


def with_objects(world: World, objects: Mapping[Reference, Object]) -> World:
    """The world where these objects are there as well."""
    had: Any = world.listers
    return msgspec.structs.replace(world, listers=Known(had.api, had.settings, {**had.objects, **objects}))


def without(world: World, *kinds: Kind) -> World:
    """The world without any objects of these kinds; without kinds where there is none at all."""
    had: Any = world.listers
    kept = {reference: obj for reference, obj in had.objects.items() if kinds and reference.kind not in kinds}
    return msgspec.structs.replace(world, listers=Known(had.api, had.settings, kept))


def referenced(world: World, kinds: Collection[Kind]) -> list[Object]:
    """The objects of these kinds."""
    had: Any = world.listers
    return [obj for reference, obj in had.objects.items() if reference.kind in kinds]


def plan(api: Api[Any], world: World) -> Plan:
    return api.plan(api.resolve(world))


def finalize(api: Api[Any], world: World) -> Plan | None:
    return api.finalize(api.resolve(world))


def scaling(api: Api[Any], world: World) -> Scaling | None:
    return api.scaling(api.resolve(world))


def status(api: Api[Any], world: World, rejection: Rejection | None = None) -> StatusResult:
    return api.status(api.resolve(world), rejection)
