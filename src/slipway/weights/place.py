"""Places: directories with weights on a claim that several resources share, and the records about them. Pure.

A record is an annotation. Its name consists of a prefix and the entry of the place, and its value is in the API's own
format, which existing annotations of users' claims already have. A record outlives the Job that loaded the weights, so
it describes the directory without referring to the Job.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import PERSISTENT_VOLUME_CLAIM, Object, annotations_of, deleting
from slipway.serving.containers import volumes
from slipway.serving.contract.api import MetadataPatch, Reference
from slipway.weights.sources.credentials import Access, mounted


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A directory with weights on a claim."""

    claim: Reference
    prefix: str
    """Prefix of the annotations that record the content of the claim."""
    root: str
    """Absolute path, in a container, of the directory that contains all places of the claim."""
    folder: str
    """Name of the place's directory, relative to the root."""
    entry: str = ""
    """Name of the place's annotation after the prefix; empty: the name of the directory."""
    inside: str = ""
    """Path of the root on the claim; empty: the root is the claim's top directory."""

    @property
    def path(self) -> str:
        """Absolute path of the place's directory in a container."""
        return f"{self.root}/{self.folder}"

    @property
    def annotation(self) -> str:
        return f"{self.prefix}{self.entry or self.folder}"

    def record(self, carrier: Object | None) -> str | None:
        """Return the record of the place on the object ``carrier``, or None if there is no record or the object is
        being deleted."""
        if carrier is None or deleting(carrier):
            return None
        text: str | None = annotations_of(carrier).get(self.annotation)
        return text

    def recorded(self, carrier: Reference, text: str | None) -> MetadataPatch:
        """Return the patch that sets the record of the place on the object ``carrier``, or removes the record if
        ``text`` is None."""
        return MetadataPatch(carrier, {self.annotation: text})

    def access(self, volume: str, *, read_only: bool = False) -> Access:
        """Return the access for a container that reads or fills the directory. If ``inside`` is set, the container sees
        no other directory of the claim, and otherwise the whole claim."""
        claim = volumes.claim(volume, self.claim.name)
        if not self.inside:
            return mounted(claim, self.root, read_only=read_only)
        return mounted(claim, self.path, sub_path=f"{self.inside}/{self.folder}", read_only=read_only)

    def access_to_all(self, volume: str) -> Access:
        """Return the access for a container that removes the directory, so the container mounts the root."""
        return mounted(volumes.claim(volume, self.claim.name), self.root, sub_path=self.inside)


def records(carrier: Object | None, prefix: str) -> dict[str, str]:
    """Return the records of all places on an object, by entry; empty if the object is None."""
    notes = annotations_of(carrier) if carrier else {}
    return {name.removeprefix(prefix): text for name, text in notes.items() if name.startswith(prefix)}


def changed(old: Object, new: Object, prefix: str) -> set[str]:
    """Return the entries whose records differ between the two states of an object."""
    before, after = records(old, prefix), records(new, prefix)
    return {entry for entry in before.keys() | after.keys() if before.get(entry) != after.get(entry)}


def claim_reference(namespace: str, name: str) -> Reference:
    return Reference(PERSISTENT_VOLUME_CLAIM, namespace, name)


def claim(reference: Reference, spec: Object, labels: Mapping[str, str] | None = None) -> Object:
    """Return the manifest of a claim that does not exist yet."""
    metadata: Object = {"name": reference.name, "namespace": reference.namespace}
    metadata |= {"labels": dict(labels)} if labels else {}
    return {
        "apiVersion": reference.kind.api_version,
        "kind": reference.kind.kind,
        "metadata": metadata,
        "spec": spec,
    }
