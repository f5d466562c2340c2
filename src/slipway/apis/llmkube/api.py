"""The tables of LLMKube's kinds: their watches, and the functions that turn a resource into children and a status."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.llmkube import names, readiness
from slipway.apis.llmkube.gpu_sharing import pool_status, quota_status
from slipway.apis.llmkube.models import cache, loading, nodes, usage
from slipway.apis.llmkube.models import plan as model_plan
from slipway.apis.llmkube.models import resolve as model_resolve
from slipway.apis.llmkube.models import status as model_status
from slipway.apis.llmkube.routing import lora_plan, lora_status
from slipway.apis.llmkube.rules import loras, pools, quotas, scheduling
from slipway.apis.llmkube.services import operation, pods, surroundings
from slipway.apis.llmkube.services import plan as service_plan
from slipway.apis.llmkube.services import resolve as service_resolve
from slipway.apis.llmkube.services import status as service_status
from slipway.apis.llmkube.types.lora import LORA_ADAPTER
from slipway.apis.llmkube.types.model import MODEL
from slipway.apis.llmkube.types.pool import MODEL_POOL
from slipway.apis.llmkube.types.quota import GPU_QUOTA
from slipway.apis.llmkube.types.service import INFERENCE_SERVICE
from slipway.kube.caches.store import Change
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
    Object,
    deleting,
    generation,
    key,
    labels,
)
from slipway.serving.contract.api import Listers, Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table, all_granted
from slipway.serving.contract.watches import (
    NAMESPACE,
    REFERENCES,
    by_namespace,
    by_reference,
    enqueue_nothing,
    owned_by,
    referenced_by,
    stops,
)
from slipway.weights.place import changed

ADAPTER_INDEXES = {loras.OF_SERVICE: loras.by_service, loras.OF_NAME: loras.by_name}
QUOTA_INDEXES = {
    quotas.TAKEN: quotas.by_taken,
    quotas.WAITING: quotas.by_waiting,
    quotas.DENIED: quotas.by_denied,
    quotas.RESERVED: quotas.by_reserved,
}
POOL_INDEXES = {pools.MEMBERS: pools.by_member, pools.MEMBER_PODS: pools.by_member_pods}
READ_OF_MODELS = ("spec", "status")
"""The fields of Models that a service reads, in addition to whether they are being deleted."""


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
        Watch(kind=kind, enqueue=cache.enqueue_folder_users, indexes=indexes),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=_models_of_claim),
        Watch(kind=INFERENCE_SERVICE.kind, enqueue=_models_of_service, indexes={usage.SERVED: usage.by_model}),
        Watch(kind=POD, enqueue=_models_of_reader, indexes={usage.READ: usage.by_read_folder}),
        nodes.watch_accelerators(kind),
    )


def _watches_of_services(_settings: Settings) -> tuple[Watch, ...]:
    kind = INFERENCE_SERVICE.kind
    indexes = {
        REFERENCES: by_reference(surroundings.references),
        **scheduling.INDEXES,
        NAMESPACE: by_namespace,
    }
    return (
        *owned_by(kind, SERVICE, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD_DISRUPTION_BUDGET, NETWORK_POLICY),
        *owned_by(kind, operation.OBJECTIVE, optional=operation.INSTALLED_BY),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=enqueue_nothing),
        Watch(kind=kind, enqueue=scheduling.enqueue_behind, indexes=indexes),
        Watch(kind=kind, enqueue=quotas.enqueue_next, indexes=QUOTA_INDEXES),
        Watch(kind=GPU_QUOTA.kind, enqueue=_services_of_quota, indexes={quotas.COVERS: quotas.by_namespace_ref}),
        Watch(kind=quotas.NAMESPACES, enqueue=_services_of_namespace, trim=only_labels),
        Watch(kind=MODEL.kind, enqueue=_services_of_model, indexes={NAMESPACE: by_namespace}),
        Watch(kind=LORA_ADAPTER.kind, enqueue=_service_of_adapter, indexes=ADAPTER_INDEXES),
        Watch(kind=MODEL_POOL.kind, enqueue=_members_of_pool, indexes=POOL_INDEXES),
        Watch(kind=PRIORITY_CLASS, enqueue=referenced_by(kind, PRIORITY_CLASS)),
    )


def _watches_of_adapters(_settings: Settings) -> tuple[Watch, ...]:
    kind = LORA_ADAPTER.kind
    return (
        *owned_by(kind, SERVICE),
        Watch(kind=kind, enqueue=_rivals, indexes=ADAPTER_INDEXES),
        Watch(kind=INFERENCE_SERVICE.kind, enqueue=_adapters_of_service),
    )


def _watches_of_quotas(_settings: Settings) -> tuple[Watch, ...]:
    return (Watch(kind=INFERENCE_SERVICE.kind, enqueue=quotas.quotas_of, indexes=QUOTA_INDEXES),)


def _watches_of_pools(_settings: Settings) -> tuple[Watch, ...]:
    return (
        Watch(kind=MODEL_POOL.kind, enqueue=_rival_pools, indexes=POOL_INDEXES),
        Watch(kind=INFERENCE_SERVICE.kind, enqueue=_pool_of_service),
        Watch(kind=POD, enqueue=_pool_of_pod),
    )


def only_labels(namespace: Object) -> Object:
    """Return a namespace with only its identity and labels."""
    fields = ("name", "uid", "resourceVersion", "labels")
    return {"metadata": {field: namespace["metadata"][field] for field in fields if field in namespace["metadata"]}}


def _services_of_quota(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the services that a quota covers or covered, if the quota was created or deleted, or its spec changed. For
    a quota that selects namespaces by labels, return all services."""
    old, new = change.old, change.new
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    named = {state["spec"].get("namespaceRef", "") for state in (old, new) if state}
    if "" in named:
        return [key(one) for one in listers.list(INFERENCE_SERVICE.kind)]
    return [key(one) for name in named for one in listers.list(INFERENCE_SERVICE.kind, NAMESPACE, name)]


def _services_of_namespace(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the services of a namespace if the namespace was created or deleted, or its labels changed. The result is
    empty unless a quota selects namespaces by labels."""
    old, new = change.old, change.new
    if (old and new and labels(old) == labels(new)) or not listers.count(GPU_QUOTA.kind, quotas.COVERS, ""):
        return ()
    return [key(one) for one in listers.list(INFERENCE_SERVICE.kind, NAMESPACE, change.key.name)]


def _service_of_adapter(change: Change, _listers: Listers) -> Iterable[Key]:
    """Return the services that an adapter names and named before, if the adapter was created or deleted, or its spec
    changed."""
    old, new = change.old, change.new
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    named = {(key(one).namespace, one["spec"]["inferenceServiceRef"]["name"]) for one in (old, new) if one}
    return [Key(*one) for one in named]


def _rivals(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the other adapters with the service and name that an adapter has or had, because one of them may now get
    the name. The result is empty unless the adapter was created or deleted, or its spec changed."""
    old, new = change.old, change.new
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    return [key(one) for one in loras.rivals_of(change, listers)]


def _members_of_pool(change: Change, _listers: Listers) -> Iterable[Key]:
    """Return the members that a change of a pool affects: all present and former members if the pool was created or
    deleted, its spec changed or it made its first decision, otherwise the members that lose or get the slot."""
    old, new = change.old, change.new
    if not (old and new and _same_spec(old, new) and pools.decided(old) == pools.decided(new)):
        members = {name for state in (old, new) if state for name in pools.member_names(state)}
    else:
        holders = {(slot.resident, slot.pending) for slot in map(pools.slot_of, (old, new))}
        members = {name for pair in holders for name in pair if name} if len(holders) > 1 else set()
    return [Key(change.key.namespace, name) for name in members]


def _rival_pools(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the pools that may gain a member from a changed pool or lose one to it: those of the two oldest pools of
    each member that are not the changed pool. The result is empty unless the pool was created or deleted, or its spec
    changed."""
    old, new = change.old, change.new
    if old and new and _same_spec(old, new):
        return ()
    places = {place for state in (old, new) if state for place in pools.by_member(state)}
    rivals = {key(pool) for place in places for pool in listers.oldest(MODEL_POOL.kind, pools.MEMBERS, place, 2)}
    return rivals - {change.key}


def _pool_of_service(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the pool of a service, if the service was created or deleted, or a field that pools read has changed."""
    old, new = change.old, change.new
    if old and new and pool_status.member_fields(old) == pool_status.member_fields(new):
        return ()
    pool = pools.pool_of(listers, change.key)
    return [key(pool)] if pool else []


def _pool_of_pod(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the pool that may have been waiting for a pod to stop. The result is empty if the pod has not stopped."""
    label = labels(change.old).get(names.SERVICE_LABEL) if change.old and stops(change) else None
    if not label:
        return ()
    place = f"{change.key.namespace}/{label}"
    return [key(pool) for pool in listers.oldest(MODEL_POOL.kind, pools.MEMBER_PODS, place, 1)]


def _same_spec(old: Object, new: Object) -> bool:
    return generation(old) == generation(new) and deleting(old) == deleting(new)


def _adapters_of_service(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the adapters that name a service. If the service was neither created nor deleted and its spec did not
    change, return only the adapters whose entries in its status changed."""
    old, new = change.old, change.new
    same = bool(old and new and generation(old) == generation(new) and deleting(old) == deleting(new))
    before, after = ({one["name"]: one for one in list_adapter_statuses(state)} for state in (old, new))
    if not same:
        return [key(one) for one in listers.list(LORA_ADAPTER.kind, loras.OF_SERVICE, str(change.key))]
    news = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    places = (f"{change.key}:{name}" for name in news)
    return [key(one) for place in places for one in listers.list(LORA_ADAPTER.kind, loras.OF_NAME, place)]


def list_adapter_statuses(service: Object | None) -> Iterable[Object]:
    """Return the entries for adapters in the status of a service. The result is empty if there is no service."""
    return ((service or {}).get("status") or {}).get("adapters") or ()


def _services_of_model(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the services that name a Model, if the Model was created or deleted, or its spec or status changed.
    Changes of its labels and annotations do not affect services."""
    old, new = change.old, change.new
    if old and new and deleting(old) == deleting(new) and all(old.get(one) == new.get(one) for one in READ_OF_MODELS):
        return ()
    return referenced_by(INFERENCE_SERVICE.kind, MODEL.kind)(change, listers)


def _models_of_claim(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the Models whose source names a claim. For the cache claim of a namespace, also return the Models of the
    cache directories whose records on the claim changed, or all Models of the namespace if the claim was created or
    deleted."""
    namespace, name = change.key
    models = set(referenced_by(MODEL.kind, PERSISTENT_VOLUME_CLAIM)(change, listers))
    if name != names.CLAIM:
        return models
    old, new = change.old, change.new
    if old is None or new is None or deleting(old) != deleting(new):
        return models | set(cache.of_namespace(namespace, listers))
    folders = (usage.place(namespace, entry) for entry in changed(old, new, names.LOADED))
    return models | cache.find_models_of(folders, listers)


def _models_of_reader(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the Models that may have been waiting for a pod to stop reading their cache directories. The result is
    empty if the pod has not stopped."""
    return cache.find_models_of(usage.by_read_folder(change.old), listers) if change.old and stops(change) else ()


def _models_of_service(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the Models that a service names or named, and the Models that share cache directories with them, because
    the users of these directories have changed. A change of only the service's status is ignored."""
    old, new = change.old, change.new
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    named = {name for service in (old, new) if service for name in usage.model_names(service)}
    keys = {Key(change.key.namespace, name) for name in named}
    models = [model for one in keys if (model := listers.get(MODEL.kind, one))]
    folders = {place for model in models for place in (*cache.by_folder(model), *cache.by_record(model))}
    return keys | cache.find_models_of(folders, listers)


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
"""The table of InferenceServices. A HorizontalPodAutoscaler, if the service requests one, sets the replicas."""
ADAPTERS = Table(
    name="llmkube",
    resource=LORA_ADAPTER,
    finalizers=frozenset({names.LORA_FINALIZER}),
    condition_types=lora_status.CONDITIONS,
    readiness=readiness.LORA_ADAPTER,
    watches=_watches_of_adapters,
    resolve=lora_plan.resolve,
    plan=lora_plan.plan,
    status=lora_status.status,
)
"""The table of LoRAAdapters. The plan of the InferenceService unloads a deleted adapter."""
QUOTAS = Table(
    name="llmkube",
    resource=GPU_QUOTA,
    condition_types=quota_status.CONDITIONS,
    readiness=readiness.GPU_QUOTA,
    watches=_watches_of_quotas,
    resolve=quota_status.resolve,
    plan=quota_status.plan,
    status=quota_status.status,
)
POOLS = Table(
    name="llmkube",
    resource=MODEL_POOL,
    condition_types=pool_status.CONDITIONS,
    readiness=readiness.MODEL_POOL,
    watches=_watches_of_pools,
    resolve=pool_status.resolve,
    plan=pool_status.plan,
    status=pool_status.status,
)
"""The table of ModelPools. The plans of a pool's members set their replicas."""
