"""The KubeAI kind Model, with the functions that turn it into child objects and a status."""

from __future__ import annotations

from slipway.apis.kubeai import names
from slipway.apis.kubeai.models import cache, plan, pods, resolve, status
from slipway.apis.kubeai.readiness import READINESS
from slipway.apis.kubeai.types import MODEL
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    SERVICE,
)
from slipway.serving.contract.api import Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table
from slipway.serving.contract.watches import REFERENCES, by_reference, enqueue_nothing, owned_by, referenced_by
from slipway.serving.status.report import REPORTED


def watches(settings: Settings) -> tuple[Watch, ...]:
    """Return the watches for Models. ConfigMaps with a Model's files are not listed but read by name, because other
    users may store private data in ConfigMaps."""
    kind, system = MODEL.kind, settings.system_namespace
    index = by_reference(lambda resource: resolve.references(resource, settings))
    return (
        *owned_by(kind, SERVICE, DEPLOYMENT, JOB, POD_DISRUPTION_BUDGET, NETWORK_POLICY),
        *owned_by(kind, CONFIG_MAP, listed=False),
        Watch(kind=kind, enqueue=enqueue_nothing, indexes={REFERENCES: index}),
        Watch(kind=CONFIG_MAP, enqueue=referenced_by(kind, CONFIG_MAP), namespace=system, trim=resolve.only_config),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=cache.of_claim),
    )


KUBEAI = Table(
    name="kubeai",
    resource=MODEL,
    finalizers=frozenset({names.FINALIZER}),
    condition_types=REPORTED | {status.CACHE_LOADED, status.ADAPTERS_LOADED, "FieldsIgnored"},
    pod_labels=pods.OWN_LABELS,
    readiness=READINESS,
    watches=watches,
    resolve=resolve.resolve,
    plan=plan.plan,
    granted=plan.granted,
    finalize=cache.finalize,
    scaling=plan.scaling,
    status=status.status,
)
