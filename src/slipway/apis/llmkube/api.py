"""LLMKube's two kinds: weights come to where services find them, and services become pods that read them."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.llmkube import (
    cache,
    loading,
    model_plan,
    model_resolve,
    model_status,
    names,
    nodes,
    operation,
    pods,
    readiness,
    scheduling,
    service_plan,
    service_resolve,
    service_status,
    usage,
)
from slipway.apis.llmkube.model_types import MODEL
from slipway.apis.llmkube.service_types import INFERENCE_SERVICE
from slipway.kube.objects import (
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    SERVICE,
    Key,
    deleting,
    generation,
)
from slipway.kube.store import Change
from slipway.serving.api import Listers, Watch
from slipway.serving.settings import Settings
from slipway.serving.table import Table, all_granted
from slipway.serving.watches import (
    NAMESPACE,
    REFERENCES,
    by_namespace,
    by_reference,
    nobody,
    owned_by,
    referenced_by,
    stops,
)
from slipway.weights.place import changed

READ_OF_MODELS = ("spec", "status")
"""What a service reads of its Models, beside whether they are going."""


def _watches_of_models(settings: Settings) -> tuple[Watch, ...]:
    kind = MODEL.kind
    indexes = {
        REFERENCES: by_reference(lambda resource: model_resolve.references(resource, settings)),
        NAMESPACE: by_namespace,
        cache.FOLDER: cache.by_folder,
        cache.RECORDED: cache.by_record,
        cache.UID: cache.by_uid,
    }
    return (
        *owned_by(kind, JOB),
        Watch(kind=kind, enqueue=cache.sharing, indexes=indexes),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=_of_claim),
        Watch(kind=INFERENCE_SERVICE.kind, enqueue=_of_service, indexes={usage.SERVED: usage.by_model}),
        Watch(kind=POD, enqueue=_of_reader, indexes={usage.READ: usage.by_read_folder}),
        nodes.watch(kind),
    )


def _watches_of_services(_settings: Settings) -> tuple[Watch, ...]:
    kind = INFERENCE_SERVICE.kind
    indexes = {
        REFERENCES: by_reference(service_resolve.references),
        scheduling.WAITS_FOR: scheduling.by_resource,
    }
    return (
        *owned_by(kind, SERVICE, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD_DISRUPTION_BUDGET, NETWORK_POLICY),
        *owned_by(kind, operation.OBJECTIVE, optional=operation.INSTALLED_BY),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=nobody),
        Watch(kind=kind, enqueue=scheduling.behind, indexes=indexes),
        Watch(kind=MODEL.kind, enqueue=_of_model),
        Watch(kind=PRIORITY_CLASS, enqueue=referenced_by(kind, PRIORITY_CLASS)),
    )


def _of_model(change: Change, listers: Listers) -> Iterable[Key]:
    """The services that name a Model, whose labels and records are nothing to them."""
    old, new = change.old, change.new
    if old and new and deleting(old) == deleting(new) and all(old.get(one) == new.get(one) for one in READ_OF_MODELS):
        return ()
    return referenced_by(INFERENCE_SERVICE.kind, MODEL.kind)(change, listers)


def _of_claim(change: Change, listers: Listers) -> Iterable[Key]:
    """The Models whose source names a claim. Of the cache of a namespace those whose record on it differs; all of them
    where it comes or goes."""
    namespace, name = change.key
    found = set(referenced_by(MODEL.kind, PERSISTENT_VOLUME_CLAIM)(change, listers))
    if name != names.CLAIM:
        return found
    old, new = change.old, change.new
    if old is None or new is None or deleting(old) != deleting(new):
        return found | set(cache.of_namespace(namespace, listers))
    folders = (usage.place(namespace, entry) for entry in changed(old, new, names.LOADED))
    return found | cache.concerned(folders, listers)


def _of_reader(change: Change, listers: Listers) -> Iterable[Key]:
    """The Models that may wait for a pod which reads their folders no longer."""
    return cache.concerned(usage.by_read_folder(change.old), listers) if change.old and stops(change) else ()


def _of_service(change: Change, listers: Listers) -> Iterable[Key]:
    """The Models that a service names or named, and those that share their folders, as who wants a folder has changed.
    Not from a change of its status."""
    old, new = change.old, change.new
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    named = {name for service in (old, new) if service for name in usage.model_names(service)}
    keys = {Key(change.key.namespace, name) for name in named}
    models = [model for one in keys if (model := listers.get(MODEL.kind, one))]
    folders = {place for model in models for place in (*cache.by_folder(model), *cache.by_record(model))}
    return keys | cache.concerned(folders, listers)


MODELS = Table(
    name="llmkube",
    resource=MODEL,
    finalizers=frozenset({names.FINALIZER}),
    condition_types=model_status.CONDITIONS,
    pod_labels=loading.OWN_LABELS,
    readiness=readiness.MODEL,
    watches=_watches_of_models,
    resolve=model_resolve.resolve,
    plan=model_plan.plan,
    granted=all_granted,
    finalize=model_plan.finalize,
    status=model_status.status,
)
SERVICES = Table(
    name="llmkube",
    resource=INFERENCE_SERVICE,
    condition_types=service_status.CONDITIONS,
    pod_labels=pods.OWN_LABELS,
    readiness=readiness.INFERENCE_SERVICE,
    watches=_watches_of_services,
    resolve=service_resolve.resolve,
    plan=service_plan.plan,
    granted=service_plan.granted,
    status=service_status.status,
)
"""Replicas are left to Kubernetes' own autoscaler, where a service asks for one."""
