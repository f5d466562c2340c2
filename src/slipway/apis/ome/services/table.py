"""The API of InferenceServices: its watches, and a table of the functions that turn a service into child objects and
a status. Pure."""

from __future__ import annotations

from functools import partial

from slipway.apis.ome import names, readiness
from slipway.apis.ome.components import keda, pods, references
from slipway.apis.ome.models import folders, volumes
from slipway.apis.ome.services import plan as service_plan
from slipway.apis.ome.services import resolve as service_resolve
from slipway.apis.ome.services import status as service_status
from slipway.apis.ome.services import watches as service_watches
from slipway.apis.ome.types.service import SERVICE as RESOURCE
from slipway.kube.objects import (
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SCALED_OBJECT,
    SERVICE,
    SERVICE_ACCOUNT,
)
from slipway.serving.contract.api import Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table
from slipway.serving.contract.watches import (
    NAMESPACE,
    REFERENCES,
    by_namespace,
    by_reference,
    enqueue_nothing,
    owned_by,
)
from slipway.serving.pods import groups

OWNED = (
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    NETWORK_POLICY,
)


def watches(settings: Settings) -> tuple[Watch, ...]:
    """Return the watches for InferenceServices: their child objects, and the runtimes, models, claims and nodes that
    they read."""
    kind, runtime = names.INFERENCE_SERVICE, service_watches.enqueue_services_of_runtime
    indexes = {
        REFERENCES: by_reference(service_watches.references),
        service_watches.CHOOSES: service_watches.by_choice,
        NAMESPACE: by_namespace,
    }
    of_model, weight, folder_indexes = (
        service_watches.enqueue_services_of_model,
        names.FINE_TUNED_WEIGHT,
        folders.indexes(settings),
    )
    return (
        *owned_by(kind, *OWNED),
        *owned_by(kind, groups.LEADER_WORKER_SET, optional=groups.INSTALLED_BY),
        *owned_by(kind, SCALED_OBJECT, optional=keda.INSTALLED_BY),
        Watch(kind=kind, enqueue=enqueue_nothing, indexes=indexes),
        Watch(kind=names.SERVING_RUNTIME, enqueue=runtime, indexes={NAMESPACE: by_namespace}),
        Watch(kind=names.CLUSTER_SERVING_RUNTIME, enqueue=runtime),
        *(Watch(kind=model, enqueue=of_model(model), indexes=folder_indexes) for model in references.MODELS),
        Watch(
            kind=weight,
            enqueue=of_model(weight),
            indexes={references.BASE: references.by_base, **folder_indexes},
        ),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=partial(volumes.enqueue_users_of_claim, kind=kind)),
        folders.NODES,
    )


SERVICES = Table(
    name="ome",
    resource=RESOURCE,
    finalizers=frozenset({names.SERVICE_FINALIZER}),
    condition_types=service_status.CONDITIONS,
    pod_labels=pods.OWN_LABELS,
    readiness=readiness.INFERENCE_SERVICE,
    watches=watches,
    resolve=service_resolve.resolve,
    plan=service_plan.plan,
    granted=service_plan.granted_freedoms,
    remedy=service_plan.remedy,
    scaling=service_plan.scaling_of,
    status=service_status.status,
)
