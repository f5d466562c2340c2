"""The accelerators of the cluster's nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.caches.store import Change
from slipway.kube.objects import NODE, Key, Kind, Object
from slipway.serving.contract.api import Listers, Watch
from slipway.serving.contract.watches import all_of, first_or_last

EXTENDED = "extended"
"""Index of nodes: their extended resources, such as ``nvidia.com/gpu``."""


def watch_accelerators(kind: Kind) -> Watch:
    """Return a watch of nodes. All resources of ``kind`` are enqueued when the cluster gets its first node with a
    certain extended resource, or loses its last node with that resource."""
    enqueue_all = all_of(kind)

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        return enqueue_all(change, listers) if first_or_last(change, listers, NODE, EXTENDED, extended) else ()

    return Watch(kind=NODE, enqueue=enqueue, trim=equipment, indexes={EXTENDED: extended})


def equipment(node: Object) -> Object:
    """Return a node with only its identity and, in the field ``extended``, the sorted names of its allocatable extended
    resources, because a thousand nodes may be in memory."""
    allocatable: dict[str, str] = node.get("status", {}).get("allocatable") or {}
    names = sorted(name for name, amount in allocatable.items() if "/" in name and amount != "0")
    metadata = {field: node["metadata"].get(field, "") for field in ("name", "uid", "resourceVersion")}
    return {"kind": NODE.kind, "metadata": metadata, "extended": names}


def extended(node: Object) -> Iterable[str]:
    """Return the values of a node from :func:`equipment` in the index :data:`EXTENDED`: the names of its extended
    resources."""
    names: list[str] = node["extended"]
    return names
