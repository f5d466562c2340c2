"""A limit on concurrent operations, with a share for each namespace.

Waiting namespaces take turns, so that slow operations of one namespace do not delay those of another.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """A semaphore with a limit for each namespace, for use within one event loop."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """Create the semaphore. ``most`` is the total number of concurrent operations, and ``most_of_one`` the number
        per namespace."""
        self._free, self._share = most, most_of_one
        self._used: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Waiting callers of each namespace. The first namespace has the next turn."""

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Wait until an operation of ``namespace`` may run, and count it until the context ends."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(place)
        self._fill()
        try:
            await place
            yield
        finally:
            self._leave(namespace, place)

    def _leave(self, namespace: str, place: asyncio.Future[None]) -> None:
        if place in self._waiting.get(namespace, ()):
            self._waiting[namespace].remove(place)
            self._forget(namespace)
            return
        self._free += 1
        self._used[namespace] -= 1
        if not self._used[namespace]:
            del self._used[namespace]
        self._fill()

    def _fill(self) -> None:
        """Wake as many waiting callers as the total limit and the limits of their namespaces allow."""
        for namespace in [name for name in self._waiting if self._used[name] < self._share][: self._free]:
            place = self._waiting[namespace].popleft()
            self._waiting.move_to_end(namespace)
            self._forget(namespace)
            self._free -= 1
            self._used[namespace] += 1
            if not place.done():
                place.set_result(None)

    def _forget(self, namespace: str) -> None:
        if not self._waiting[namespace]:
            del self._waiting[namespace]
