"""Intents: children in the form that the API server receives, with the label, owner and digest that Slipway adds.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slipway.kube.objects import MANAGED_BY, Key, Kind, Object, annotations_of, key, owner_reference
from slipway.kube.values.compare import digest, includes
from slipway.kube.writes.owners import OWNER_ELSEWHERE, owner_text


class Intent(NamedTuple):
    """One object in the form that the API server receives."""

    kind: Kind
    name: Key
    object: Object
    desired: bytes
    """Digest of the object, without the annotation that contains the digest. For a shared object, our label is not part
    of it either."""


class IntentBuilder:
    """A builder of intents for the children of one kind of owner, and for shared objects without an owner."""

    def __init__(
        self, owner_kind: Kind, kinds: Iterable[Kind], *, manager: str, elsewhere: frozenset[Kind], mark: str
    ) -> None:
        """Create a builder.

        ``manager`` is the value of the managed-by label. ``elsewhere`` are kinds of children that may be in other
        namespaces than their owner. ``mark`` is the annotation with the digest; empty means no annotation.
        """
        self._owner_kind, self._manager, self._elsewhere, self._mark = owner_kind, manager, elsewhere, mark
        self._kinds = {(kind.api_version, kind.kind): kind for kind in kinds}

    def kind_of(self, child: Object) -> Kind:
        return self._kinds[child["apiVersion"], child["kind"]]

    def build(self, owner: Object, child: Object) -> Intent:
        """Return the intent of a child with its owner and its digest. Raise ValueError as :meth:`add_owner` does."""
        child = self.add_owner(owner, child)
        desired = digest(child)
        return Intent(self.kind_of(child), key(child), self._add_mark(child, desired), desired)

    def build_shared(self, obj: Object) -> Intent:
        """Return the intent of an object with our label but without an owner."""
        return Intent(self.kind_of(obj), key(obj), self._add_label(obj), digest(obj))

    def add_owner(self, owner: Object, child: Object) -> Object:
        """Return a copy of the child with our label and the owner: an owner reference, or the annotation
        :data:`OWNER_ELSEWHERE` if the child is in another namespace.

        Raise ValueError if the child is in another namespace than its owner, where the garbage collector would delete
        it, unless its kind is in ``elsewhere``.
        """
        child = self._add_label(child)
        if key(owner).namespace not in ("", key(child).namespace):
            if self.kind_of(child) not in self._elsewhere:
                raise ValueError(f"{child['kind']} {key(child)} cannot be a child of {key(owner)}")
            annotations = {**annotations_of(child), OWNER_ELSEWHERE: owner_text(self._owner_kind, owner)}
            child["metadata"]["annotations"] = annotations
            return child
        child["metadata"]["ownerReferences"] = [owner_reference(self._owner_kind, owner)]
        return child

    def matches_mark(self, obj: Object, intent: Intent) -> bool:
        """Whether the object's annotation contains the digest of the intent and the object has not changed since it was
        sent."""
        mark = annotations_of(obj).get(self._mark)
        return bool(self._mark) and mark == intent.desired.hex() and includes(obj, intent.object)

    def _add_label(self, obj: Object) -> Object:
        metadata = dict(obj["metadata"])
        metadata["labels"] = {**(metadata.get("labels") or {}), MANAGED_BY: self._manager}
        return {**obj, "metadata": metadata}

    def _add_mark(self, child: Object, desired: bytes) -> Object:
        if not self._mark:
            return child
        metadata = child["metadata"]
        annotations = {**(metadata.get("annotations") or {}), self._mark: desired.hex()}
        return {**child, "metadata": {**metadata, "annotations": annotations}}
