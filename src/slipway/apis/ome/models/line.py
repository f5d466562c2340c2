"""The loads onto each node, and a cache of the namespaces that load next. Pure except for the cache."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class OpenFolder(NamedTuple):
    """A directory to which the load of a model may still write."""

    of: str
    """Uid of the model."""
    path: str


class NodeLoads(msgspec.Struct, frozen=True, kw_only=True):
    """The current loads onto a node."""

    loads: Counter[str]
    """Namespace -> number of its loads. The empty string stands for cluster-scoped models."""
    open_folders: Sequence[OpenFolder]
    at_once: int

    def max_turns(self, namespace: str) -> int:
        """Return the maximum number of concurrent loads for a namespace. Authors can create any number of models, so
        one turn is reserved for other namespaces if the node has more than one. The empty namespace, for cluster-scoped
        models, may use all turns."""
        return max(self.at_once - 1, 1) if namespace else self.at_once

    @property
    def free_turns(self) -> int:
        return self.at_once - sum(min(count, self.max_turns(namespace)) for namespace, count in self.loads.items())


class QueueHeads:
    """Cache of the queues whose models were next on each node. These queues are examined first, so the cost of
    examining a model that must wait does not grow with the number of queues. The order only affects the cost, not the
    result."""

    def __init__(self, most: int = 16, nodes: int = 5000) -> None:
        """Limit the cache to ``most`` queues per node and to ``nodes`` nodes."""
        self._heads: OrderedDict[str, list[str]] = OrderedDict()
        self._most, self._nodes = most, nodes

    def in_order(self, node: str, queues: Callable[[], Iterable[str]]) -> Iterator[str]:
        """Yield the remembered queues, which may no longer exist, and then the others among ``queues()``. ``queues`` is
        called only if the caller needs more than the remembered ones."""
        heads = self._heads.get(node, [])
        yield from heads
        yield from (one for one in queues() if one not in heads)

    def remember(self, node: str, examined: Mapping[str, bool], rank: Callable[[str], Any]) -> None:
        """Remember the queues with models that load first. ``examined``: queue -> whether it has such models; ``rank``:
        sort key of queues, used to keep the first ones."""
        heads = [one for one in self._heads.pop(node, []) if one not in examined]
        heads += [one for one, is_ahead in examined.items() if is_ahead]
        self._heads[node] = sorted(heads, key=rank)[: self._most]
        if len(self._heads) > self._nodes:
            self._heads.popitem(last=False)
