"""Index functions that find an owner's children in the stores, including children in other namespaces. Pure.

Kubernetes does not allow owner references across namespaces; its garbage collector deletes objects that have one.
Therefore an annotation of such a child names its owner. The annotation is trusted only in namespaces in which only the
operator can write. The informer adds the owner reference to its copy of the object, with the owner's namespace, a field
that the API server would drop.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.objects import Kind, Object, annotations_of, controller_owner, key, uid

OWNER = "owner"
"""Name of the index of children by owner."""
OWNER_ELSEWHERE = "slipway.inference/owner"
"""Annotation of a child with the API version, kind, namespace/name and UID of its owner, separated by spaces."""
ORIGIN = "origin"
"""Name of the index of children in other namespaces by their owner's group, kind, namespace and name."""


def by_owner(obj: Object) -> Iterable[str]:
    """Return the index values for :data:`OWNER`: the UID of the object's controller, with and without the controller's
    namespace. The result is empty if the object has no controller.

    A UID is arbitrary text from its author and may contain slashes. A namespace has no slash, so the values of two
    namespaces never collide.
    """
    owner = controller_owner(obj)
    return (f"{owner.namespace}/{owner.uid}", f"/{owner.uid}") if owner else ()


def children_of(owner: Object) -> str:
    """Return the index value for :data:`OWNER` of the owner's children in its own namespace.

    An object in another namespace that names the owner's UID is not a child, unless that namespace is the operator's.
    An owner without a namespace may have children in any namespace.
    """
    return f"{key(owner).namespace}/{uid(owner)}"


def owner_text(owner_kind: Kind, owner: Object) -> str:
    """Return the value of the annotation :data:`OWNER_ELSEWHERE` for children of ``owner``."""
    return f"{owner_kind.api_version} {owner_kind.kind} {key(owner)} {uid(owner)}"


def with_owner(child: Object) -> Object:
    """Return the child with the owner reference from its annotation :data:`OWNER_ELSEWHERE`. Return it unchanged if the
    annotation is missing or malformed, or if the child has a controller."""
    words = annotations_of(child).get(OWNER_ELSEWHERE, "").split(" ")
    if len(words) != 4 or controller_owner(child) is not None:
        return child
    api_version, kind, place, owner_uid = words
    namespace, _slash, name = place.rpartition("/")
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": owner_uid, "controller": True}
    references = [*(child["metadata"].get("ownerReferences") or ()), {**reference, "namespace": namespace}]
    return {**child, "metadata": {**child["metadata"], "ownerReferences": references}}


def by_origin(child: Object) -> Iterable[str]:
    """Yield the index value for :data:`ORIGIN`, or nothing if no annotation named the child's owner. ``child`` must be
    a result of :func:`with_owner`."""
    for reference in child["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and "namespace" in reference:
            group = reference["apiVersion"].rpartition("/")[0]
            yield _origin(group, reference["kind"], f"{reference['namespace']}/{reference['name']}")


def origin_of(owner_kind: Kind, place: object) -> str:
    """Return the index value for :data:`ORIGIN` of the children of an owner. ``place`` is the owner's namespace and
    name."""
    return _origin(owner_kind.group, owner_kind.kind, str(place))


def _origin(group: str, kind: str, place: str) -> str:
    return f"{group} {kind} {place}"
