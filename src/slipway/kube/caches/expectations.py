"""Expectations, which make each reconciliation observe the writes of the previous one.

Watches lag behind writes. A writer whose store lacks its own last write would create objects twice or undo its writes.
Writers therefore record what they wrote for an owner, and the owner's next reconciliation waits until the stores
contain it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Key, Kind, Object, deleting, key, resource_version, uid, version_number

WAIT_SECONDS = 5.0
"""Seconds that a reconciliation waits for the watch before it reads from the API server."""
_OWNERS = 10_000


class _Expected(NamedTuple):
    informer: Informer
    name: Key
    is_observed: Callable[[], bool]


class Expectations:
    """The writes that stores must contain before an owner, identified by its UID, is reconciled again."""

    def __init__(self) -> None:
        self._expected: OrderedDict[str, dict[tuple[Kind, Key], _Expected]] = OrderedDict()

    def wrote(self, owner: str, informer: Informer, obj: Object) -> None:
        """Record a write for an owner. ``obj`` is the object in the API server's response."""
        version = version_number(resource_version(obj))
        store, name, identity = informer.store, key(obj), uid(obj)

        def is_observed() -> bool:
            if version <= store.revision(name.namespace):
                return True
            stored = store.get(name)
            if stored is None or uid(stored) != identity:
                return False
            return version <= version_number(resource_version(stored))

        self._note(owner, _Expected(informer, name, is_observed))

    def deleted(self, owner: str, informer: Informer, obj: Object) -> None:
        """Record a deletion for an owner. ``obj`` is the object in the store when its deletion was requested."""
        store, name, identity = informer.store, key(obj), uid(obj)

        def is_observed() -> bool:
            stored = store.get(name)
            return stored is None or uid(stored) != identity or deleting(stored)

        self._note(owner, _Expected(informer, name, is_observed))

    async def wait_until_observed(self, owner: str) -> bool:
        """Wait until the stores contain everything that was written for ``owner``. Return whether there were any
        writes.

        If a watch takes longer than WAIT_SECONDS, the object is read from the API server. Raise ApiError if the read
        fails; the caller should then make no decision.
        """
        expected = self._expected.get(owner)
        if not expected:
            return False
        waits = [_wait_or_refresh(one) for one in expected.values() if not one.is_observed()]
        if waits:
            await asyncio.gather(*waits)
        self._expected.pop(owner, None)
        return True

    def _note(self, owner: str, expected: _Expected) -> None:
        entries = self._expected.setdefault(owner, {})
        entries[expected.informer.kind, expected.name] = expected
        self._expected.move_to_end(owner)
        while len(self._expected) > _OWNERS:  # deleted owners are never requested again
            self._expected.popitem(last=False)


async def _wait_or_refresh(expected: _Expected) -> None:
    if not await expected.informer.store.until(expected.is_observed, WAIT_SECONDS):
        await expected.informer.refresh(expected.name)
