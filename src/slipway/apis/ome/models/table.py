"""The functions that turn BaseModels, ClusterBaseModels and FineTunedWeights into child objects and a status."""

from __future__ import annotations

from functools import partial

from slipway.apis.ome import names, readiness
from slipway.apis.ome.models import jobs as model_jobs
from slipway.apis.ome.models import plan as model_plan
from slipway.apis.ome.models import resolve as model_resolve
from slipway.apis.ome.models import status as model_status
from slipway.apis.ome.types.model import BASE_MODEL, CLUSTER_BASE_MODEL, FINE_TUNED_WEIGHT
from slipway.serving.contract.table import Table, all_granted

MODELS = tuple(
    Table(
        name="ome",
        resource=resource,
        finalizers=frozenset({names.MODEL_FINALIZERS[resource.kind.kind]}),
        condition_types=model_status.CONDITIONS,
        pod_labels=model_jobs.OWN_LABELS,
        readiness=readiness.MODEL,
        watches=partial(model_resolve.watches, resource.kind),
        resolve=model_resolve.resolve,
        plan=model_plan.plan,
        granted=all_granted,
        finalize=model_plan.finalize,
        status=model_status.status,
    )
    for resource in (BASE_MODEL, CLUSTER_BASE_MODEL, FINE_TUNED_WEIGHT)
)
