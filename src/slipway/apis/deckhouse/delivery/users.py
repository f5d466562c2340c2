"""Users: the workloads that read models, their watched fields, and how a model finds them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.deckhouse import names
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, annotations_of, key
from slipway.serving.contract.api import Listers, Watch, World
from slipway.serving.contract.delivery import OBSERVED

USERS = "models"
"""Index of workloads: the models that they request or have, as ``namespace/name`` or ``/name``."""
DELIVERED = "slipway.inference/delivered"
"""Annotation of a workload with our additions: the models that it has, in the format of the index."""
KEPT = (
    names.USES_MODEL,
    names.USES_CLUSTER_MODEL,
    names.BLOCKED_REASON,
    names.BLOCKED_MESSAGE,
    DELIVERED,
)
MOST_BYTES = 8192
"""Maximum length of the names in one annotation; a longer one is cut just above it, which shows that it is too long."""


def split(text: str) -> list[str]:
    """Splits an annotation into names, without checking them."""
    return [one.strip() for one in text.split(",")]


def trim_workload(workload: Object) -> Object | None:
    """Returns the metadata to cache of a workload, or None if it requests no model and has none."""
    metadata = workload["metadata"]
    annotations = metadata.get("annotations") or {}
    annotations_left = {name: annotations[name][: MOST_BYTES + 1] for name in KEPT if name in annotations}
    if not annotations_left:
        return None
    fields = ("namespace", "name", "uid", "resourceVersion", "generation", "deletionTimestamp")
    identity = {field: metadata[field] for field in fields if field in metadata}
    return {"kind": workload["kind"], "metadata": {**identity, "annotations": annotations_left}}


def by_model(workload: Object) -> Iterable[str]:
    """Index function for :data:`USERS`.

    Anyone who may write a workload may also set the annotation :data:`DELIVERED`, so models of other namespaces do not
    wait for it.
    """
    annotations, namespace = annotations_of(workload), key(workload).namespace
    references = [f"{namespace}/{name}" for name in split(annotations.get(names.USES_MODEL, "")) if name]
    references += [f"/{name}" for name in split(annotations.get(names.USES_CLUSTER_MODEL, "")) if name]
    models = (one for one in split(annotations.get(DELIVERED, "")) if one.partition("/")[0] in ("", namespace))
    return (*references, *(one for one in models if one))


def watches(model: Kind) -> tuple[Watch, ...]:
    """Returns the watches of an API whose models of this kind wait for their readers."""

    def enqueue(change: Change, _listers: Listers) -> Iterable[Key]:
        before, after = (set(by_model(obj)) if obj else set() for obj in change[:2])
        places = (Key(*value.split("/", 1)) for value in before ^ after if value.count("/") == 1)
        return [place for place in places if bool(place.namespace) == model.namespaced]

    return tuple(Watch(kind=kind, enqueue=enqueue, trim=trim_workload, indexes={USERS: by_model}) for kind in OBSERVED)


def users(world: World) -> tuple[str, ...]:
    """Returns ``Kind namespace/name`` of each workload that has this model or waits for it, in index order."""
    namespace, name = key(world.resource)
    workloads = (obj for kind in OBSERVED for obj in world.list(kind, USERS, f"{namespace}/{name}"))
    return tuple(f"{obj['kind']} {key(obj)}" for obj in workloads)
