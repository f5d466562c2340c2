"""Places: the folders of weights on a claim that several resources share, and their records. Pure.

A record is an annotation: a prefix, the place's entry, and a text in the API's own format, as users' volumes have them.
It outlives the Job that loaded the weights, and so describes the folder whatever happens to the Job.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import PERSISTENT_VOLUME_CLAIM, Object, annotations_of, deleting
from slipway.serving.containers import volumes
from slipway.serving.contract.api import MetadataPatch, Reference
from slipway.weights.sources.credentials import Access, mounted


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of a claim."""

    claim: Reference
    prefix: str
    """Of the annotations that record what lies on the claim."""
    root: str
    """Where a container finds the folder that all places of the claim are in: an absolute path."""
    folder: str
    """Name of this one's own, below the root."""
    entry: str = ""
    """What follows the prefix in its annotation; empty: the folder."""
    inside: str = ""
    """Path of the root on the claim; empty: the claim as a whole is mounted there."""

    @property
    def path(self) -> str:
        """The path of the folder in a container."""
        return f"{self.root}/{self.folder}"

    @property
    def annotation(self) -> str:
        return f"{self.prefix}{self.entry or self.folder}"

    def record(self, carrier: Object | None) -> str | None:
        """Returns an object's record of the place; None: there is none, or the object is being deleted."""
        if carrier is None or deleting(carrier):
            return None
        text: str | None = annotations_of(carrier).get(self.annotation)
        return text

    def recorded(self, carrier: Reference, text: str | None) -> MetadataPatch:
        """Returns the patch that sets an object's record of the place; None removes it."""
        return MetadataPatch(carrier, {self.annotation: text})

    def access(self, volume: str, *, read_only: bool = False) -> Access:
        """Returns the access of a container that reads or fills the folder. If the root is a folder of the claim, it
        sees no other one."""
        claim = volumes.claim(volume, self.claim.name)
        if not self.inside:
            return mounted(claim, self.root, read_only=read_only)
        return mounted(claim, self.path, sub_path=f"{self.inside}/{self.folder}", read_only=read_only)

    def access_to_all(self, volume: str) -> Access:
        """Returns the access of a container that removes the folder from its root."""
        return mounted(volumes.claim(volume, self.claim.name), self.root, sub_path=self.inside)


def records(carrier: Object | None, prefix: str) -> dict[str, str]:
    """Returns entry -> an object's record of it; empty if there is no object."""
    notes = annotations_of(carrier) if carrier else {}
    return {name.removeprefix(prefix): text for name, text in notes.items() if name.startswith(prefix)}


def changed(old: Object, new: Object, prefix: str) -> set[str]:
    """Returns the entries whose records changed."""
    before, after = records(old, prefix), records(new, prefix)
    return {entry for entry in before.keys() | after.keys() if before.get(entry) != after.get(entry)}


def claim_reference(namespace: str, name: str) -> Reference:
    return Reference(PERSISTENT_VOLUME_CLAIM, namespace, name)


def claim(reference: Reference, spec: Object, labels: Mapping[str, str] | None = None) -> Object:
    """Returns the claim to create if there is none."""
    metadata: Object = {"name": reference.name, "namespace": reference.namespace}
    metadata |= {"labels": dict(labels)} if labels else {}
    return {
        "apiVersion": reference.kind.api_version,
        "kind": reference.kind.kind,
        "metadata": metadata,
        "spec": spec,
    }
