"""Line: which namespaces load models onto a node, and which are next. Pure except for a cache."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class OpenFolder(NamedTuple):
    """A folder that a model's load may still write to."""

    of: str
    """uid of the model."""
    path: str


class NodeLoads(msgspec.Struct, frozen=True, kw_only=True):
    """The loads onto a node."""

    loads: Counter[str]
    """Number of loads by namespace; empty: cluster-scoped models."""
    open_folders: Sequence[OpenFolder]
    at_once: int

    def max_turns(self, namespace: str) -> int:
        """Returns the maximum number of turns for a namespace. One is left to the others, because a namespace's authors
        may create any number of loads."""
        return max(self.at_once - 1, 1) if namespace else self.at_once

    @property
    def free_turns(self) -> int:
        return self.at_once - sum(min(count, self.max_turns(namespace)) for namespace, count in self.loads.items())


class QueueHeads:
    """Remembers the queues whose models were next on each node. A waiting model is behind them, so the cost of
    examining it does not grow with the number of queues. They are examined like all others: the order of queues does
    not change the result."""

    def __init__(self, most: int = 16, nodes: int = 5000) -> None:
        """``most``: maximum number of queues per node; ``nodes``: maximum number of nodes that are remembered."""
        self._heads: OrderedDict[str, list[str]] = OrderedDict()
        self._most, self._nodes = most, nodes

    def in_order(self, node: str, queues: Callable[[], Iterable[str]]) -> Iterator[str]:
        """Yields all queues, starting with the remembered heads. ``queues`` is only called if the heads are not
        enough."""
        heads = self._heads.get(node, [])
        yield from heads
        yield from (one for one in queues() if one not in heads)

    def remember(self, node: str, examined: Mapping[str, bool], rank: Callable[[str], Any]) -> None:
        """Remembers the queues that have models ahead. ``examined``: queue -> whether it has any."""
        heads = [one for one in self._heads.pop(node, []) if one not in examined]
        heads += [one for one, is_ahead in examined.items() if is_ahead]
        self._heads[node] = sorted(heads, key=rank)[: self._most]
        if len(self._heads) > self._nodes:
            self._heads.popitem(last=False)
