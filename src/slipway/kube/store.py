"""Store: what an informer knows of one kind, with named indexes.

Only informers write to it. It never goes backwards: of two copies of the same object the newer stays, also when a
lagging API server tells the older one later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

from slipway.kube.faults import Faults
from slipway.kube.objects import Key, Object, key, resource_version, uid, version_number

IndexFunction = Callable[[Object], Iterable[str]]


class Change(NamedTuple):
    """What happened to one object. At least one of the two is given; both have the same uid."""

    old: Object | None
    new: Object | None
    faults: tuple[Exception, ...] = ()
    """What index functions raised of ``new``, which has no value in their indexes."""

    @property
    def type(self) -> str:
        """``ADDED``, ``MODIFIED`` or ``DELETED``."""
        if self.old is None:
            return "ADDED"
        return "DELETED" if self.new is None else "MODIFIED"

    @property
    def key(self) -> Key:
        """Of the object that changed."""
        return key(self.new or self.old or {})


def _version(obj: Object) -> int:
    return version_number(resource_version(obj))


class Store:
    """Objects by key and by index.

    Whoever reads gets the stored objects themselves and leaves them as they are.
    """

    def __init__(self, indexes: Mapping[str, IndexFunction] | None = None) -> None:
        self.faults = Faults()
        """Objects that belong here and cannot be taken as they are; those that only lack an index are here too."""
        self._functions = dict(indexes or {})
        self._objects: dict[Key, Object] = {}
        self._values: dict[Key, tuple[tuple[str, ...], ...]] = {}
        """What each index function gave for each object: asked again, it might raise."""
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in self._functions}
        self._waiting: set[asyncio.Future[None]] = set()
        self._revisions: dict[str, int] = {}
        """By namespace that is watched, or the empty one where one watch tells of all."""

    def revision(self, namespace: str) -> int:
        """The newest resource version that the watch of a namespace has told of; of that namespace's objects everything
        up to it is in the store. Empty: of a watch of all namespaces, or of a kind that has none."""
        return max(self._revisions.get(namespace, 0), self._revisions.get("", 0))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, name: Key) -> Object | None:
        """The object with this key."""
        return self._objects.get(name)

    def all(self) -> list[Object]:
        """All objects, in no particular order."""
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[Object]:
        """The objects for which the index function named ``index`` gave ``value``, ordered by key."""
        return [self._objects[name] for name in sorted(self._indexes[index].get(value, ()))]

    def keys(self, index: str, value: str) -> Set[Key]:
        """The keys of the objects that ``by_index`` would give, unordered: however many there are."""
        return self._indexes[index].get(value, frozenset())

    def values(self, index: str) -> frozenset[str]:
        """All that the index function named ``index`` gave for any object."""
        return frozenset(self._indexes[index])

    def count(self, index: str, value: str) -> int:
        """How many objects ``by_index`` would give."""
        return len(self._indexes[index].get(value, ()))

    def put(self, obj: Object) -> list[Change]:
        """Takes a copy of an object. Returns what that changed: nothing when the store knows as much or better."""
        name, old = key(obj), self._objects.get(key(obj))
        if old is None:
            return [self._set(name, None, obj)]
        same, older = uid(old) == uid(obj), 0 < _version(obj) < _version(old)
        if older or (same and resource_version(obj) == resource_version(old)):
            return []
        if same:
            return [self._set(name, old, obj)]
        return [self._set(name, old, None), self._set(name, None, obj)]

    def drop(self, name: Key, gone: str = "", version: str = "") -> list[Change]:
        """Takes note that the object with the uid ``gone`` was deleted (at ``version``); empty: whichever it was.

        The news may be late: an object that was made later under the same name stays.
        """
        old = self._objects.get(name)
        if old is None or (gone and uid(old) != gone and _version(old) > version_number(version)):
            return []
        return [self._set(name, old, None)]

    def replace(self, objects: Iterable[Object], version: str, namespace: str = "") -> list[Change]:
        """Takes a complete list of a namespace, or of all, as of ``version``. Returns the differences, deletions among
        them; what lies in other namespaces stays."""
        listed = {key(obj): obj for obj in objects}
        changes = [change for obj in listed.values() for change in self.put(obj)]
        limit = version_number(version)
        mine = (name for name in self._objects if namespace in ("", name.namespace))
        for name in [name for name in mine if name not in listed]:
            if not limit or _version(self._objects[name]) <= limit:  # newer ones were read after the list
                changes += self.drop(name)
        self.advance(version, namespace)
        return changes

    def advance(self, version: str, namespace: str = "") -> None:
        """Takes note that the watch of a namespace, or of all, has told everything up to ``version``, and wakes who
        waits for that."""
        self._revisions[namespace] = max(self._revisions.get(namespace, 0), version_number(version))
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def until(self, test: Callable[[], bool], seconds: float) -> bool:
        """Waits until ``test`` holds, which is asked again at each news of the watch. False after ``seconds``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not test():
            waiting = loop.create_future()
            self._waiting.add(waiting)
            done, _unused = await asyncio.wait({waiting}, timeout=max(0.0, deadline - loop.time()))
            if not done:
                self._waiting.discard(waiting)
                return test()
        return True

    def _set(self, name: Key, old: Object | None, new: Object | None) -> Change:
        nothing: tuple[tuple[str, ...], ...] = ((),) * len(self._functions)
        faults: tuple[Exception, ...] = ()
        before, after = self._values.pop(name, nothing), nothing
        if new is None:
            del self._objects[name]
        else:
            after, faults = self._indexed(new)
            self._objects[name], self._values[name] = new, after
        for entries, old_values, new_values in zip(self._indexes.values(), before, after, strict=True):
            if old_values == new_values:
                continue
            for value in set(old_values) - set(new_values):
                entries[value].discard(name)
                if not entries[value]:
                    del entries[value]
            for value in new_values:
                entries.setdefault(value, set()).add(name)
        return Change(old, new, faults)

    def _indexed(self, obj: Object) -> tuple[tuple[tuple[str, ...], ...], tuple[Exception, ...]]:
        """What each index function gives for an object, and what they raise: strangers wrote it, and it must not cost
        the others their store."""
        values: list[tuple[str, ...]] = []
        faults: list[Exception] = []
        for function in self._functions.values():
            try:
                values.append(tuple(dict.fromkeys(function(obj))))
            except Exception as error:  # noqa: BLE001  # told as the object's fault
                values.append(())
                faults.append(error)
        return tuple(values), tuple(faults)
