"""Watches: the services that are affected by a change to another object. Pure.

A change to a runtime affects the services that name the runtime, and services that name no runtime and could select it.
A change to a model affects the services that name the model or one of its FineTunedWeights, unless the change is only
in fields that services do not read, such as the progress of a download.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slipway.apis.ome import names
from slipway.apis.ome.components import predictor
from slipway.apis.ome.components.references import BASE, MODELS, name_of, places
from slipway.apis.ome.services.resolve import RUNTIMES
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key
from slipway.serving.contract.api import Enqueue, Listers, Reference
from slipway.serving.contract.watches import referenced_by

CHOOSES = "chooses"
"""Index of services that name no runtime, by namespace. All of them are also indexed under the empty string."""

of_weight = referenced_by(names.INFERENCE_SERVICE, names.FINE_TUNED_WEIGHT)


def references(resource: Object) -> tuple[Reference, ...]:
    """Return references to a service's model, FineTunedWeights and runtime, for each kind and namespace in which a name
    may exist."""
    spec, namespace = predictor.migrated(resource)["spec"], key(resource).namespace
    model, runtime = (name_of(spec.get(field)) for field in ("model", "runtime"))
    weights = (spec["model"].get("fineTunedWeights") or ()) if model else ()
    return (
        *(places(MODELS, namespace, model) if model else ()),
        *(places(RUNTIMES, namespace, runtime) if runtime else ()),
        *(Reference(names.FINE_TUNED_WEIGHT, "", name) for name in (*weights, model) if name),
    )


def by_choice(resource: Object) -> Iterable[str]:
    """Return the values of a service in the index :data:`CHOOSES`. Empty for a service that names a runtime."""
    named = name_of(predictor.migrated(resource)["spec"].get("runtime"))
    return () if named else ("", key(resource).namespace)


def enqueue_services_of_runtime(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the services that a change of a runtime's spec may affect: services that name the runtime, and services in
    its namespace that name no runtime. A cluster-scoped runtime may affect services in all namespaces."""
    if _is_unchanged(change, ("spec",)):
        return ()
    kind = names.SERVING_RUNTIME if change.key.namespace else names.CLUSTER_SERVING_RUNTIME
    named = referenced_by(names.INFERENCE_SERVICE, kind)(change, listers)
    choosing = listers.list(names.INFERENCE_SERVICE, CHOOSES, change.key.namespace)
    return {*named, *map(key, choosing)}


def enqueue_services_of_model(kind: Kind) -> Enqueue:
    """Return a function that enqueues services when a model of the given ``kind`` changes: services that name the
    model, or a FineTunedWeight of the model. Changes of fields that services do not read, such as the progress of a
    download, are ignored."""
    enqueue = referenced_by(names.INFERENCE_SERVICE, kind)

    def concerned(change: Change, listers: Listers) -> Iterable[Key]:
        if _is_unchanged(change, ("spec",)) and _state(change.old) == _state(change.new):
            return
        yield from enqueue(change, listers)
        for weight in listers.list(names.FINE_TUNED_WEIGHT, BASE, change.key.name) if kind in MODELS else ():
            yield from of_weight(Change(None, weight), listers)

    return concerned


def _is_unchanged(change: Change, fields: Sequence[str]) -> bool:
    old, new = change.old, change.new
    return bool(old and new and deleting(old) == deleting(new) and all(old.get(one) == new.get(one) for one in fields))


def _state(model: Object | None) -> tuple[object, ...]:
    if model is None:
        return ()
    annotations = annotations_of(model)
    return ((model.get("status") or {}).get("state"), annotations.get(names.MODEL_CATEGORY))
