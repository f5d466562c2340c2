"""Scaled: the resources whose replicas follow their requests. Reconcilers write it, the autoscaler reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Key, Kind
from slipway.serving.routing.scaling import Scaling


class Subject(NamedTuple):
    """A resource whose replicas are scaled."""

    kind: Kind
    name: Key

    @property
    def kind_name(self) -> str:
        """The kind as metrics and the stored averages name it, such as ``models.example.com``."""
        return f"{self.kind.plural}.{self.kind.group}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values of the metrics' labels."""
        return self.kind_name, *self.name


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """How a resource scales, as of its last reconciliation."""

    scaling: Scaling
    target: Subject
    """The object whose scale subresource is written."""
    generation: int
    """Generation of the target when it had the replicas in ``scaling``."""
    services: Sequence[Key]
    """The Services whose requests count."""


class ScaledResources:
    """One registry for the controllers of all kinds."""

    def __init__(self) -> None:
        self._scaled: dict[Subject, Scaled] = {}

    def put(self, subject: Subject, scaled: Scaled) -> None:
        """Starts or changes the scaling of a resource."""
        self._scaled[subject] = scaled

    def drop(self, subject: Subject) -> None:
        """Stops the scaling of a resource."""
        self._scaled.pop(subject, None)

    def get(self, subject: Subject) -> Scaled | None:
        """Returns how a resource scales; None: it is not scaled."""
        return self._scaled.get(subject)

    def items(self) -> Iterator[tuple[Subject, Scaled]]:
        """Returns all scaled resources."""
        return iter(list(self._scaled.items()))
