"""The three kinds of weights: they come onto the nodes that they are for, and go with the model."""

from __future__ import annotations

from functools import partial

from slipway.apis.ome import model_jobs, model_plan, model_resolve, model_status, names, readiness
from slipway.apis.ome.model_types import BASE_MODEL, CLUSTER_BASE_MODEL, FINE_TUNED_WEIGHT
from slipway.serving.table import Table, all_granted

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
