"""Owners: how the stores find an owner's children, including children in another namespace or without one. Pure.

Kubernetes does not allow owner references across namespaces; its garbage collector deletes objects that have one. So an
annotation of the child names its owner. It is trusted only in namespaces where only the operator can write. The
informer adds the owner reference to its copy of the object, with the owner's namespace, a field that the API server
would drop.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.objects import Kind, Object, annotations_of, controller_owner, key, uid

OWNER = "owner"
"""Name of the index that finds an owner's objects in the informers of children."""
OWNER_ELSEWHERE = "slipway.inference/owner"
"""Annotation of a child: API version, kind, namespace/name and uid of its owner."""
ORIGIN = "origin"
"""Index of children in other namespaces: kind and name of the owner."""


def by_owner(obj: Object) -> Iterable[str]:
    """Index function for :data:`OWNER`: the uid of the object's controller, with and without its namespace.

    A uid is arbitrary text from its author, slashes included. A namespace has no slash, so values of two namespaces
    never collide.
    """
    owner = controller_owner(obj)
    return (f"{owner.namespace}/{owner.uid}", f"/{owner.uid}") if owner else ()


def children_of(owner: Object) -> str:
    """Returns the value under which :data:`OWNER` lists the owner's children: objects of its own namespace.

    An object in another namespace that names the owner's uid is not a child, unless that namespace is the operator's.
    An owner without a namespace may have children in any.
    """
    return f"{key(owner).namespace}/{uid(owner)}"


def owner_text(owner_kind: Kind, owner: Object) -> str:
    """Returns the value of :data:`OWNER_ELSEWHERE`."""
    return f"{owner_kind.api_version} {owner_kind.kind} {key(owner)} {uid(owner)}"


def with_owner(child: Object) -> Object:
    """Returns the child with the owner reference from its annotation, unless it has another controller."""
    words = annotations_of(child).get(OWNER_ELSEWHERE, "").split(" ")
    if len(words) != 4 or controller_owner(child) is not None:
        return child
    api_version, kind, place, owner_uid = words
    namespace, _slash, name = place.rpartition("/")
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": owner_uid, "controller": True}
    references = [*(child["metadata"].get("ownerReferences") or ()), {**reference, "namespace": namespace}]
    return {**child, "metadata": {**child["metadata"], "ownerReferences": references}}


def by_origin(child: Object) -> Iterable[str]:
    """Index function for :data:`ORIGIN`; expects the result of :func:`with_owner`."""
    for reference in child["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and "namespace" in reference:
            group = reference["apiVersion"].rpartition("/")[0]
            yield _origin(group, reference["kind"], f"{reference['namespace']}/{reference['name']}")


def origin_of(owner_kind: Kind, place: object) -> str:
    """Returns the value under which :data:`ORIGIN` lists the children of an owner. ``place``: its namespace and
    name."""
    return _origin(owner_kind.group, owner_kind.kind, str(place))


def _origin(group: str, kind: str, place: str) -> str:
    return f"{group} {kind} {place}"
