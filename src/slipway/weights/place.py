"""Places: the folders of weights on a claim shared by several resources, and their records. Pure.

A record is an annotation whose name is a prefix and the place's entry, with a text in the API's own format, which
users' volumes already contain. It outlives the Job that loaded the weights, so it describes the folder independently of
the Job.
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
    """Prefix of the annotations that record the claim's content."""
    root: str
    """Absolute path, in a container, of the folder with all places of the claim."""
    folder: str
    """Name of the place's folder, below the root."""
    entry: str = ""
    """Rest of its annotation's name after the prefix; empty: the folder's name."""
    inside: str = ""
    """Path of the root on the claim; empty: the whole claim is mounted at the root."""

    @property
    def path(self) -> str:
        """The path of the place's folder in a container."""
        return f"{self.root}/{self.folder}"

    @property
    def annotation(self) -> str:
        return f"{self.prefix}{self.entry or self.folder}"

    def record(self, carrier: Object | None) -> str | None:
        """Returns the record of the place on an object; None: there is none, or the object is being deleted."""
        if carrier is None or deleting(carrier):
            return None
        text: str | None = annotations_of(carrier).get(self.annotation)
        return text

    def recorded(self, carrier: Reference, text: str | None) -> MetadataPatch:
        """Returns the patch that sets the record of the place on an object; None removes it."""
        return MetadataPatch(carrier, {self.annotation: text})

    def access(self, volume: str, *, read_only: bool = False) -> Access:
        """Returns the access for a container that reads or fills the folder. If the root is a folder of the claim, the
        container sees no other folder."""
        claim = volumes.claim(volume, self.claim.name)
        if not self.inside:
            return mounted(claim, self.root, read_only=read_only)
        return mounted(claim, self.path, sub_path=f"{self.inside}/{self.folder}", read_only=read_only)

    def access_to_all(self, volume: str) -> Access:
        """Returns the access for a container that removes the folder from its root."""
        return mounted(volumes.claim(volume, self.claim.name), self.root, sub_path=self.inside)


def records(carrier: Object | None, prefix: str) -> dict[str, str]:
    """Returns entry -> record for all records on an object; empty if there is no object."""
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
