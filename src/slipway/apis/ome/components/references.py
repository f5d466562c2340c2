"""References: the models that services name. Pure.

A model is looked up in the namespace first, and then in the cluster. Except for FineTunedWeights, the kind in a
reference is ignored, because authors rarely change the default kind on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slipway.apis.ome import names
from slipway.kube.objects import Kind, Object
from slipway.serving.contract.api import Reference, World

MODELS = (names.BASE_MODEL, names.CLUSTER_BASE_MODEL)
BASE = "base"
"""Index of FineTunedWeights by the name of their base model."""


def name_of(reference: object) -> str:
    """Return the name in a reference, or an empty string if the reference is invalid."""
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""


def places(kinds: Sequence[Kind], namespace: str, name: str) -> tuple[Reference, ...]:
    """Return the possible references for a name, in the order of ``kinds``. Callers list the namespaced kind first, so
    that it takes precedence."""
    return tuple(Reference(kind, namespace if kind.namespaced else "", name) for kind in kinds)


def find_model(world: World, namespace: str, name: str) -> Object | None:
    """Return the model with this name for services of a namespace, or None if there is none."""
    return next((model for place in places(MODELS, namespace, name) if (model := world.get(place)) is not None), None)


def find_weight(world: World, name: str) -> Object | None:
    """Return the FineTunedWeight with this name, or None if there is none."""
    return world.get(Reference(names.FINE_TUNED_WEIGHT, "", name))


def base_name_of(weight: Object) -> str:
    """Return the name of a FineTunedWeight's base model, or an empty string if it names none."""
    return name_of((weight.get("spec") or {}).get("baseModelRef"))


def by_base(weight: Object) -> Iterable[str]:
    """Return the values of a FineTunedWeight in the index :data:`BASE`."""
    return (base_name_of(weight),)
