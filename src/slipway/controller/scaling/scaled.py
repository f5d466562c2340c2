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
        """such as ``models.example.com``, as metrics and the kept averages name the kind."""
        return f"{self.kind.plural}.{self.kind.group}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values of the metrics' labels."""
        return self.kind_name, *self.name


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """How a resource scales, as of its last reconciliation."""

    scaling: Scaling
    target: Subject
    """Whose scale subresource is written."""
    generation: int
    """Of the target, when it had the replicas that ``scaling`` says."""
    services: Sequence[Key]
    """Whose requests count."""


class ScaledResources:
    """One registry for the controllers of all kinds."""

    def __init__(self) -> None:
        self._scaled: dict[Subject, Scaled] = {}

    def put(self, subject: Subject, scaled: Scaled) -> None:
        """From now on the resource's replicas follow its requests like this."""
        self._scaled[subject] = scaled

    def drop(self, subject: Subject) -> None:
        """The resource's replicas follow nothing any more."""
        self._scaled.pop(subject, None)

    def get(self, subject: Subject) -> Scaled | None:
        """Returns how a resource scales; None: it does not."""
        return self._scaled.get(subject)

    def items(self) -> Iterator[tuple[Subject, Scaled]]:
        """All that there are now."""
        return iter(list(self._scaled.items()))
