"""Space that the records and labels of models use in the metadata of a node. Pure except for a cache.

Kubernetes limits the annotations of an object to 256 KiB, and an object to little more than 1 MiB. Authors can create
BaseModels at no cost, so the size is limited for each namespace and for all namespaces together. The rest is reserved
for cluster-scoped models and for other programs. A record counts with its maximum size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from slipway.apis.ome import names
from slipway.weights.nodes import MESSAGE_LENGTH, RECORDS, Node

OF_A_NAMESPACE, OF_ALL_NAMESPACES = 32 << 10, 192 << 10
"""Maximum number of bytes of records and labels per node, for one namespace and for all namespaces together. A node
accepts no further models beyond these limits."""
LATER = {"message": MESSAGE_LENGTH, "seal": 80, "revision": 60}
"""Field that may be added to a record later -> its maximum size in bytes."""
MOST_NODES = 5000
_BASE_MODEL = names.BASE_MODEL.kind.lower()


class Room:
    """Cache of the bytes that records and labels use on each node. The bytes are counted once for each version of a
    node."""

    def __init__(self) -> None:
        self._used_bytes: dict[str, tuple[Mapping[str, str], Counter[str]]] = {}

    def is_full(self, node: Node, mark: str) -> bool:
        """Whether a node accepts no further records for a BaseModel's namespace. ``mark``: the model's mark, which
        contains the namespace."""
        used = self._used(node)
        return used[space_of(mark)] >= OF_A_NAMESPACE or used.total() >= OF_ALL_NAMESPACES

    def _used(self, node: Node) -> Counter[str]:
        """Return the number of used bytes by namespace, for the records of BaseModels and the labels of their
        directories."""
        records, used = self._used_bytes.get(node.name, ({}, Counter()))
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
        if len(self._used_bytes) >= MOST_NODES:
            self._used_bytes.clear()
        self._used_bytes[node.name] = node.records, used
        return used


def space_of(mark: str) -> str:
    """Return the namespace at the beginning of a BaseModel's mark. In marks of long names, a long namespace is a
    digest, so such a namespace has two results. Return an empty string for other kinds of models."""
    space, _dot, rest = mark.partition(".")
    return space if rest.startswith(f"{_BASE_MODEL}.") else ""


ROOM = Room()
