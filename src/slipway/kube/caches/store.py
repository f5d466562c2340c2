"""A store of an informer's objects of one kind, with named indexes.

Only informers write to a store. A store never goes backwards: it keeps the newer of two versions, even if a lagging API
server sends the older one later.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from slipway.kube.caches.faults import Faults
from slipway.kube.objects import Key, Kind, Object, created, key, resource_version, uid, version_number

IndexFunction = Callable[[Object], Iterable[str]]


class Change(NamedTuple):
    """A change of one object. ``old``, ``new`` or both are set. If both are set, they have the same UID."""

    old: Object | None
    new: Object | None
    faults: tuple[Exception, ...] = ()
    """Exceptions of index functions for ``new``. The object has no values in the indexes of these functions."""

    @property
    def type(self) -> str:
        """The type of the change: ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        if self.old is None:
            return "ADDED"
        return "DELETED" if self.new is None else "MODIFIED"

    @property
    def key(self) -> Key:
        """The key of the changed object."""
        return key(self.new or self.old or {})


def _version(obj: Object) -> int:
    return version_number(resource_version(obj))


class Store:
    """Objects of one kind by key and by index.

    Readers get the stored objects themselves and must not change them.
    """

    def __init__(self, indexes: Mapping[str, IndexFunction] | None = None) -> None:
        self.faults = Faults()
        """Objects that could not be processed completely, including those that are stored but missing from an index."""
        self._functions = dict(indexes or {})
        self._objects: dict[Key, Object] = {}
        self._values: dict[Key, tuple[tuple[str, ...], ...]] = {}
        """Values that each index function returned for each object. They are kept because a second call might raise."""
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in self._functions}
        self._oldest: dict[tuple[str, str], list[tuple[str, Key]]] = {}
        """Creation times and keys of objects, in order, by index and index value. Only values whose order was requested
        are present."""
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """Futures of waiting callers, with the conditions for which they wait."""
        self._revisions: dict[str, int] = {}
        """Latest resource version by watched namespace. The namespace is empty if one watch covers all namespaces."""

    def revision(self, namespace: str) -> int:
        """Return the latest resource version that a list or watch of a namespace has reported, or 0 if there is none.
        The store contains all changes of the namespace's objects up to this version.

        An empty name stands for a watch of all namespaces, or of a cluster-scoped kind.
        """
        return max(self._revisions.get(namespace, 0), self._revisions.get("", 0))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, name: Key) -> Object | None:
        """Return the object with this key, or None if it does not exist."""
        return self._objects.get(name)

    def all(self) -> list[Object]:
        """Return all objects, in no particular order."""
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[Object]:
        """Return the objects with ``value`` in the index, ordered by key."""
        keys = self._indexes[index].get(value)
        return [self._objects[name] for name in sorted(keys)] if keys else []

    def keys(self, index: str, value: str) -> Set[Key]:
        """Return the keys of the objects with ``value`` in the index, in no particular order. The result is the index's
        own set and must not be changed."""
        return self._indexes[index].get(value, frozenset())

    def count(self, index: str, value: str) -> int:
        """Return the number of objects with ``value`` in the index."""
        return len(self._indexes[index].get(value, ()))

    def oldest(self, index: str, value: str, most: int, skip: int = 0) -> list[Object]:
        """Return up to ``most`` objects with ``value`` in the index, oldest first, after skipping ``skip`` objects. The
        cost does not depend on the number of other objects."""
        return [self._objects[name] for _created, name in self._by_age(index, value)[skip : skip + most]]

    def older(self, index: str, value: str, obj: Object) -> int:
        """Return the number of objects with ``value`` in the index that are older than ``obj``, or equally old with a
        smaller key. The cost hardly depends on their number."""
        return bisect_left(self._by_age(index, value), (created(obj), key(obj)))

    def _by_age(self, index: str, value: str) -> list[tuple[str, Key]]:
        keys = self._indexes[index].get(value)
        if not keys:
            return []
        if (index, value) not in self._oldest:
            self._oldest[index, value] = sorted((created(self._objects[name]), name) for name in keys)
        return self._oldest[index, value]

    def values(self, index: str) -> Set[str]:
        """Return all values in the index."""
        return self._indexes[index].keys()

    def put(self, obj: Object) -> list[Change]:
        """Add or replace an object. Return the change, or an empty list if the store already contains this version or a
        newer one.

        If the stored object has another UID, return its deletion and the addition.
        """
        name = key(obj)
        old = self._objects.get(name)
        if old is None:
            return [self._set(name, None, obj)]
        same, older = uid(old) == uid(obj), 0 < _version(obj) < _version(old)
        if older or (same and resource_version(obj) == resource_version(old)):
            return []
        if same:
            return [self._set(name, old, obj)]
        return [self._set(name, old, None), self._set(name, None, obj)]

    def drop(self, name: Key, identity: str = "", version: str = "") -> list[Change]:
        """Record that the object with the key ``name`` and the UID ``identity`` (empty for any UID) was deleted at
        ``version``. Return the change, if any.

        The event may be late: an object that was created later under the same name stays.
        """
        old = self._objects.get(name)
        if old is None or (identity and uid(old) != identity and _version(old) > version_number(version)):
            return []
        return [self._set(name, old, None)]

    def replace(self, objects: Iterable[Object], version: str, namespace: str = "") -> Iterator[Change]:
        """Replace the objects of a namespace, or all objects, with a complete list as of ``version``. Yield the
        changes, including deletions.

        The store contains exactly the changes yielded so far, so a caller that counts objects sees every intermediate
        number. Nothing happens before the first change is requested. If the caller stops early, the store makes the
        remaining changes immediately.
        """
        changes = self._replace(objects, version, namespace)
        try:
            for change in changes:  # noqa: UP028  # yield from would close the other generator, too
                yield change
        except GeneratorExit:
            deque(changes, maxlen=0)
            raise

    def _replace(self, objects: Iterable[Object], version: str, namespace: str) -> Iterator[Change]:
        listed = {key(obj): obj for obj in objects}
        for obj in listed.values():
            yield from self.put(obj)
        limit = version_number(version)
        mine = (name for name in self._objects if namespace in ("", name.namespace))
        for name in [name for name in mine if name not in listed]:
            if not limit or _version(self._objects[name]) <= limit:  # newer objects were stored after the list was read
                yield from self.drop(name)
        self.advance(version, namespace)

    def advance(self, version: str, namespace: str = "") -> None:
        """Record that the watch of a namespace, or of all namespaces if empty, has reported all changes up to
        ``version``. Wake waiting callers."""
        self._revisions[namespace] = max(self._revisions.get(namespace, 0), version_number(version))
        for waiting in [waiting for waiting, test in self._waiting.items() if test()]:
            del self._waiting[waiting]
            if not waiting.done():
                waiting.set_result(None)

    async def until(self, test: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``test`` returns True, at most for ``seconds``. Return its last result. ``test`` is called again
        after each watch event."""
        if test():
            return True
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = test
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return test()
        finally:
            self._waiting.pop(waiting, None)
        return True

    def _set(self, name: Key, old: Object | None, new: Object | None) -> Change:
        empty: tuple[tuple[str, ...], ...] = ((),) * len(self._functions)
        faults: tuple[Exception, ...] = ()
        before, after = self._values.pop(name, empty), empty
        if new is None:
            del self._objects[name]
        else:
            after, faults = self._indexed(new)
            self._objects[name], self._values[name] = new, after
        for (index, entries), old_values, new_values in zip(self._indexes.items(), before, after, strict=True):
            if old_values == new_values:
                continue
            for value in set(old_values) - set(new_values):
                entries[value].discard(name)
                self._leave(index, value, old or {})
                if not entries[value]:
                    del entries[value]
                    self._oldest.pop((index, value), None)
            for value in new_values:
                entries.setdefault(value, set()).add(name)
                if value not in old_values and (ordered := self._oldest.get((index, value))) is not None:
                    insort(ordered, (created(new or {}), name))
        return Change(old, new, faults)

    def _leave(self, index: str, value: str, obj: Object) -> None:
        ordered, entry = self._oldest.get((index, value)), (created(obj), key(obj))
        if ordered is not None:
            del ordered[bisect_left(ordered, entry)]

    def _indexed(self, obj: Object) -> tuple[tuple[tuple[str, ...], ...], tuple[Exception, ...]]:
        """Return the values of each index function for an object, and the exceptions. A failing function must not break
        the store, because the objects are untrusted."""
        values: list[tuple[str, ...]] = []
        faults: list[Exception] = []
        for function in self._functions.values():
            try:
                values.append(tuple(dict.fromkeys(function(obj))))
            except Exception as error:  # noqa: BLE001  # reported for the object
                values.append(())
                faults.append(error)
        return tuple(values), tuple(faults)


class Stores:
    """Read access to the stores of several kinds. Methods raise LookupError for a kind that is not watched and for an
    unknown index."""

    def __init__(self, stores: Mapping[Kind, Store]) -> None:
        self._stores = stores

    def store(self, kind: Kind) -> Store:
        """Return the store of a kind. Raise LookupError if the kind is not watched."""
        try:
            return self._stores[kind]
        except KeyError:
            raise LookupError(f"{kind.plural} of {kind.api_version} are not watched") from None

    def get(self, kind: Kind, name: Key) -> Object | None:
        """Return one object, or None if it does not exist. Raise LookupError if the kind is not watched."""
        return self.store(kind).get(name)

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """Return the objects with ``value`` in the index, ordered by key. Without an index, return all objects of the
        kind in no particular order. Raise LookupError for an unknown kind or index."""
        store = self.store(kind)
        return store.by_index(index, value) if index else store.all()

    def count(self, kind: Kind, index: str, value: str) -> int:
        """Return the number of objects that ``list`` would return. Raise LookupError for an unknown kind or index."""
        return self.store(kind).count(index, value)

    def oldest(self, kind: Kind, index: str, value: str, most: int, skip: int = 0) -> Sequence[Object]:
        """Return up to ``most`` of the objects that ``list`` would return, oldest first, after skipping ``skip``
        objects. Raise LookupError for an unknown kind or index."""
        return self.store(kind).oldest(index, value, most, skip)

    def older(self, kind: Kind, index: str, value: str, obj: Object) -> int:
        """Return how many of the objects that ``list`` would return are older than ``obj``, or equally old with a
        smaller key. Raise LookupError for an unknown kind or index."""
        return self.store(kind).older(index, value, obj)

    def values(self, kind: Kind, index: str) -> Set[str]:
        """Return all values in the index. Raise LookupError for an unknown kind or index."""
        return self.store(kind).values(index)
