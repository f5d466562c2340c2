"""The limit on the disk space that all adapters of a pod use in total."""

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
    """The disk space for all adapters of a pod. A download starts only if its version fits in addition to the versions
    on the disk and those in progress.

    Several threads can use a budget at the same time.
    """

    def __init__(self, store: Store, most: int) -> None:
        """Set the limit, ``most``, in bytes."""
        self._store, self._most = store, most
        self._lock = threading.Lock()
        self._promised: dict[Version, int] = {}

    @contextmanager
    def within(self, version: Version, source: Source) -> Iterator[Source]:
        """Yield a wrapper of ``source`` whose ``listing`` raises LoadError if the files do not fit into the budget.
        While the context is open, the listed size is reserved; after that, the version counts with its size on the
        disk."""
        try:
            yield _Bounded(source, self, version)
        finally:
            with self._lock:
                self._promised.pop(version, None)

    def admit(self, version: Version, size: int) -> None:
        """Reserve ``size`` bytes for a version. Raise LoadError if all versions together would exceed the limit."""
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
    """A source whose files must fit into a budget."""

    def __init__(self, source: Source, budget: Budget, version: Version) -> None:
        self._source, self._budget, self._version = source, budget, version

    def listing(self, retry: Retry) -> Listing:
        """List the source's files and reserve their total size. Raise LoadError if they do not fit into the budget."""
        listing = self._source.listing(retry)
        self._budget.admit(self._version, sum(max(entry.size or 0, 0) for entry in listing.entries))
        return listing

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open a file of the wrapped source at offset ``start``."""
        return self._source.read(entry, start)
