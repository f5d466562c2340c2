"""Budget: the maximum disk space of all adapters of a pod."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from slipway.loader.agent.plan import Version
from slipway.loader.agent.store import Store
from slipway.loader.disk.progress import human
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Body, Entry, Listing, Retry, Source


class Budget:
    """Admits a version before its first byte is downloaded, if it fits in addition to the versions on the disk
    and in progress.

    Can be used from several threads at once.
    """

    def __init__(self, store: Store, most: int) -> None:
        """``most``: the limit in bytes."""
        self._store, self._most = store, most
        self._lock = threading.Lock()
        self._promised: dict[Version, int] = {}

    @contextmanager
    def within(self, version: Version, source: Source) -> Iterator[Source]:
        """Yields the source, whose listing raises LoadError if there is no room for it. Until the context ends, its
        announced size is reserved; after that, its size on the disk counts."""
        try:
            yield _Bounded(source, self, version)
        finally:
            with self._lock:
                self._promised.pop(version, None)

    def admit(self, version: Version, size: int) -> None:
        """Reserves ``size`` bytes. Raises LoadError if they exceed the limit."""
        with self._lock:
            others = (other for other in {*self._store.versions(), *self._promised} if other != version)
            used = sum(max(self._store.size(other), self._promised.get(other, 0)) for other in others)
            if used + size > self._most:
                raise LoadError(
                    f"the adapter has {human(size)} and the other adapters of the pod have {human(used)}, of"
                    f" {human(self._most)} in total: use fewer, or ask the operator to raise controller_adapters_size"
                )
            self._promised[version] = size


class _Bounded:
    """A source that checks the limit; see :class:`slipway.loader.transport.source.Source`."""

    def __init__(self, source: Source, budget: Budget, version: Version) -> None:
        self._source, self._budget, self._version = source, budget, version

    def listing(self, retry: Retry) -> Listing:
        """Lists the source's files. Raises LoadError if there is no room for them."""
        listing = self._source.listing(retry)
        self._budget.admit(self._version, sum(max(entry.size or 0, 0) for entry in listing.entries))
        return listing

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Reads from the source."""
        return self._source.read(entry, start)
