"""Common functions that map a change of an object to the affected resources, and common indexes. Pure.

In controller-runtime, they are Owns, EnqueueRequestsFromMapFunc and IndexField.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from slipway.kube.caches.store import Change, IndexFunction
from slipway.kube.objects import Key, Kind, Object, key
from slipway.kube.runtime.controller import owner_keys
from slipway.serving.containers.diagnosis import ended
from slipway.serving.contract.api import Enqueue, Listers, Reference, Watch

NAMESPACE = "namespace"
"""Name of the index of objects by namespace."""
REFERENCES = "references"
"""Name of the index of resources by the objects that they refer to."""


def owned_by(
    owner: Kind, *kinds: Kind, listed: bool = True, optional: str = "", elsewhere: str | None = None
) -> tuple[Watch, ...]:
    """Return watches for ``kinds``, whose objects are children of resources of the kind ``owner``. A change of a child
    enqueues its owner. The other arguments are fields of Watch."""
    enqueue = of_owner(owner)
    return tuple(
        Watch(kind=kind, enqueue=enqueue, owned=True, listed=listed, optional=optional, elsewhere=elsewhere)
        for kind in kinds
    )


def of_owner(owner: Kind) -> Enqueue:
    """Return a function that enqueues the controlling owner that a changed object had before and has after the change,
    if it is of the kind ``owner``."""
    keys = owner_keys(owner)

    def enqueue(change: Change, _listers: Listers) -> Iterable[Key]:
        try:
            if change.old is not None:
                yield from keys(change.old)
        finally:  # an unreadable state does not lose the keys of the other state
            if change.new is not None:
                yield from keys(change.new)

    return enqueue


def referenced_by(owner: Kind, kind: Kind, index: str = REFERENCES) -> Enqueue:
    """Return a function that enqueues the resources of the kind ``owner`` that refer to a changed object of ``kind``.
    ``index`` is the name of an index whose function comes from :func:`by_reference`."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        return [key(resource) for resource in listers.list(owner, index, _place(kind, change.key))]

    return enqueue


def all_of(kind: Kind) -> Enqueue:
    """Return a function that enqueues all resources of a kind."""

    def enqueue(_change: Change, listers: Listers) -> Iterable[Key]:
        return [key(resource) for resource in listers.list(kind)]

    return enqueue


def enqueue_nothing(_change: Change, _listers: Listers) -> Iterable[Key]:
    """Return no key. Use this function for kinds whose objects are read, but whose changes need no reconciliation."""
    return ()


def stops(change: Change) -> bool:
    """Whether this change ended or removed a pod, so that a resource that waits for the pod's volumes may continue."""
    return change.old is not None and (change.new is None or ended(change.new) != ended(change.old))


def first_or_last(change: Change, listers: Listers, kind: Kind, index: str, values: IndexFunction) -> bool:
    """Whether this change adds the first object of ``kind`` with some index value, or removes the last one. ``values``
    is the function of ``index``."""
    before, after = (set(values(obj)) if obj else set() for obj in (change.old, change.new))
    return any(listers.count(kind, index, value) == (value in after) for value in before ^ after)


def by_namespace(obj: Object) -> Iterable[str]:
    """Return the index value of an object for :data:`NAMESPACE`."""
    return (key(obj).namespace,)


def by_reference(references: Callable[[Object], Iterable[Reference]]) -> IndexFunction:
    """Return the index function for :data:`REFERENCES`. ``references`` returns the objects that a resource refers
    to."""
    return lambda resource: [_place(one.kind, Key(one.namespace, one.name)) for one in references(resource)]


def _place(kind: Kind, name: Key) -> str:
    return f"{kind.api_version} {kind.kind} {name}"
