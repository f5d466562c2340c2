"""Resources whose number of replicas depends on the number of their requests. Reconcilers register them, and the
autoscaler reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Key, Kind
from slipway.serving.routing.scaling import Scaling


class Subject(NamedTuple):
    """Kind and key of a resource whose replicas are scaled."""

    kind: Kind
    name: Key

    @property
    def kind_name(self) -> str:
        """The kind's name in metrics and stored averages, such as ``models.example.com``."""
        return f"{self.kind.plural}.{self.kind.group}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values of the metrics labels ``kind``, ``namespace`` and ``name``."""
        return self.kind_name, *self.name


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """How the autoscaler scales a resource, as of the resource's last reconciliation."""

    scaling: Scaling
    target: Subject
    """The object whose number of replicas is written."""
    generation: int
    """Generation of the target when it had the number of replicas in ``scaling``."""
    services: Sequence[Key]
    """The Services whose requests count."""


class ScaledResources:
    """A registry of scaled resources that the reconcilers of all kinds share."""

    def __init__(self) -> None:
        self._scaled: dict[Subject, Scaled] = {}

    def put(self, subject: Subject, scaled: Scaled) -> None:
        """Register a resource, or change how it is scaled."""
        self._scaled[subject] = scaled

    def drop(self, subject: Subject) -> None:
        """Remove a resource from the registry, which ends its scaling."""
        self._scaled.pop(subject, None)

    def get(self, subject: Subject) -> Scaled | None:
        """Return how a resource is scaled, or None if it is not scaled."""
        return self._scaled.get(subject)

    def items(self) -> Iterator[tuple[Subject, Scaled]]:
        """Return an iterator over a copy of all scaled resources."""
        return iter(list(self._scaled.items()))
