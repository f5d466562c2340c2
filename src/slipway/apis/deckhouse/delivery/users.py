"""Users: the workloads that read models, the fields of workloads that are watched, and the index by which a model finds
them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.deckhouse import names
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, annotations_of, key
from slipway.serving.contract.api import Listers, Watch, World
from slipway.serving.contract.delivery import OBSERVED

USERS = "models"
"""Index of workloads by the models that they request or have, as ``namespace/name`` for Models and ``/name`` for
ClusterModels."""
DELIVERED = "slipway.inference/delivered"
"""Annotation of a workload with delivered models. It contains the models in the format of the index USERS, separated by
commas."""
KEPT = (
    names.USES_MODEL,
    names.USES_CLUSTER_MODEL,
    names.BLOCKED_REASON,
    names.BLOCKED_MESSAGE,
    DELIVERED,
)
MOST_BYTES = 8192
"""Maximum number of characters in an annotation with model names. A longer annotation is cached with one more
character, which shows that it is too long."""


def split(text: str) -> list[str]:
    """Split an annotation into model names, which may be invalid or empty."""
    return [one.strip() for one in text.split(",")]


def trim_workload(workload: Object) -> Object | None:
    """Return the metadata of a workload to cache, or None if the workload has none of the annotations in KEPT."""
    metadata = workload["metadata"]
    annotations = metadata.get("annotations") or {}
    annotations_left = {name: annotations[name][: MOST_BYTES + 1] for name in KEPT if name in annotations}
    if not annotations_left:
        return None
    fields = ("namespace", "name", "uid", "resourceVersion", "generation", "deletionTimestamp")
    identity = {field: metadata[field] for field in fields if field in metadata}
    return {"kind": workload["kind"], "metadata": {**identity, "annotations": annotations_left}}


def by_model(workload: Object) -> Iterable[str]:
    """Return the values of a workload in the index :data:`USERS`.

    Any client that can write a workload can also set the annotation :data:`DELIVERED`. Models of other namespaces in
    that annotation are therefore ignored, so that their deletion does not wait for the workload.
    """
    annotations, namespace = annotations_of(workload), key(workload).namespace
    references = [f"{namespace}/{name}" for name in split(annotations.get(names.USES_MODEL, "")) if name]
    references += [f"/{name}" for name in split(annotations.get(names.USES_CLUSTER_MODEL, "")) if name]
    models = (one for one in split(annotations.get(DELIVERED, "")) if one.partition("/")[0] in ("", namespace))
    return (*references, *(one for one in models if one))


def watches(model: Kind) -> tuple[Watch, ...]:
    """Return the watches for workloads. They enqueue models of the given kind whose readers change."""

    def enqueue(change: Change, _listers: Listers) -> Iterable[Key]:
        before, after = (set(by_model(obj)) if obj else set() for obj in change[:2])
        places = (Key(*value.split("/", 1)) for value in before ^ after if value.count("/") == 1)
        return [place for place in places if bool(place.namespace) == model.namespaced]

    return tuple(Watch(kind=kind, enqueue=enqueue, trim=trim_workload, indexes={USERS: by_model}) for kind in OBSERVED)


def users(world: World) -> tuple[str, ...]:
    """Return ``Kind namespace/name`` of each workload that has the world's model or waits for it, in index order."""
    namespace, name = key(world.resource)
    workloads = (obj for kind in OBSERVED for obj in world.list(kind, USERS, f"{namespace}/{name}"))
    return tuple(f"{obj['kind']} {key(obj)}" for obj in workloads)
