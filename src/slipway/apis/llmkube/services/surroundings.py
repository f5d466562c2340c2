"""The objects that an InferenceService depends on, as last observed: Models, a PriorityClass and a ModelPool. Pure."""

from __future__ import annotations

from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.rules import pools
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.kube.objects import DEPLOYMENT, PRIORITY_CLASS, Object, key
from slipway.kube.values.names import label_value
from slipway.serving.contract.api import Reference, World
from slipway.serving.contract.watches import NAMESPACE
from slipway.spelling import NAMES, did_you_mean


def references(resource: Object) -> tuple[Reference, ...]:
    """Return references to the Models that a service names and, if it names one, to its PriorityClass."""
    spec, namespace = resource["spec"], resource["metadata"]["namespace"]
    models = tuple(Reference(MODEL, namespace, name) for name in usage.model_names(resource))
    priority_class = spec.get("priorityClassName")
    return (*models, Reference(PRIORITY_CLASS, "", priority_class)) if priority_class else models


def model_of(world: World, name: str) -> Object | None:
    """Return a Model in the namespace of the service as last observed, or None if it does not exist."""
    return world.get(Reference(MODEL, world.resource["metadata"]["namespace"], name))


def suggestion(world: World, name: str) -> str:
    """Return the end of a message about a missing Model, with the names of similar Models in its namespace. Return only
    a period if no name is similar, or if the namespace has many Models."""
    namespace = world.resource["metadata"]["namespace"]
    if world.listers.count(MODEL, NAMESPACE, namespace) > NAMES:
        return "."
    models = (key(model).name for model in world.list(MODEL, NAMESPACE, namespace))
    return did_you_mean(name, models) or "."


def draft_of(world: World) -> Object | None:
    return model_of(world, usage.draft_name(world.resource["spec"]))


def pool_of(world: World) -> Object | None:
    """Return the oldest ModelPool that names the service, or None."""
    return pools.pool_of(world.listers, key(world.resource))


def runs(world: World) -> bool:
    """Whether the service's Deployment has a positive number of replicas."""
    deployment = world.child(DEPLOYMENT, label_value(key(world.resource).name))
    return bool(deployment and deployment["spec"].get("replicas", 1))
