"""Room: how much of a node's metadata the records and labels of models use. Pure except for a cache.

Kubernetes allows 256 KiB of annotations for each object, and objects of little more than 1 MiB. BaseModels cost their
authors nothing, so each namespace has a share, and all namespaces together leave room for models of the cluster and for
other programs. A record counts with its largest possible size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from slipway.apis.ome import names
from slipway.weights.nodes import MESSAGE_LENGTH, RECORDS, Node

OF_A_NAMESPACE, OF_ALL_NAMESPACES = 32 << 10, 192 << 10
"""Bytes of records, of what they may say later, and of labels, after which no further model of the namespace, or of
any, is recorded on a node."""
LATER = {"message": MESSAGE_LENGTH, "seal": 80, "revision": 60}
"""Fields that a record may get after the model has its room, and their bytes."""
MOST_NODES = 5000
_BASE_MODEL = names.BASE_MODEL.kind.lower()


class Room:
    """Counts the records of a node once for each version of the node."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, str], Counter[str]]] = {}

    def is_full(self, node: Node, mark: str) -> bool:
        """Whether a node accepts no further record of this BaseModel's namespace. ``mark``: of the model's label."""
        used = self._used(node)
        return used[space_of(mark)] >= OF_A_NAMESPACE or used.total() >= OF_ALL_NAMESPACES

    def _used(self, node: Node) -> Counter[str]:
        """Returns bytes by namespace, for the records of BaseModels and the labels of their folders."""
        records, used = self._known.get(node.name, ({}, Counter()))
        if records is node.records:
            return used
        used = Counter()
        for name, mark in node.labels.items():
            if name.startswith(RECORDS) and (space := space_of(mark)):
                used[space] += len(name) + len(mark)
        for name, text in node.records.items():
            mark = name.removeprefix(RECORDS)
            if space := space_of(mark):
                later = sum(size for field, size in LATER.items() if f'"{field}":' not in text)
                used[space] += len(name) + len(text.encode()) + later
        if len(self._known) >= MOST_NODES:
            self._known.clear()
        self._known[node.name] = node.records, used
        return used


def space_of(mark: str) -> str:
    """Returns the prefix of the marks of a namespace's BaseModels: the namespace, or a digest of a long one. Empty: the
    model is of another kind."""
    space, _dot, rest = mark.partition(".")
    return space if rest.startswith(f"{_BASE_MODEL}.") else ""


ROOM = Room()
