"""The Deckhouse kinds: Model and ClusterModel, which are published, and ModelCatalogSource, which is read."""

from __future__ import annotations

from functools import partial

from slipway.apis.deckhouse import names, readiness
from slipway.apis.deckhouse.catalogs import choice as catalog_choice
from slipway.apis.deckhouse.catalogs import source as catalog
from slipway.apis.deckhouse.delivery import users
from slipway.apis.deckhouse.delivery import workloads as delivery
from slipway.apis.deckhouse.models import plan as models
from slipway.apis.deckhouse.models import status as model_status
from slipway.apis.deckhouse.settings import deckhouse
from slipway.apis.deckhouse.types import CATALOG_SOURCE, CLUSTER_MODEL, MODEL
from slipway.kube.objects import MANAGED_BY, Kind
from slipway.kube.schemas.conditions import READY
from slipway.serving.contract.api import Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table, all_granted
from slipway.weights.jobs import turns
from slipway.weights.jobs.loads import INSTANCE_LABEL, NAME_LABEL


def watches(kind: Kind, settings: Settings) -> tuple[Watch, ...]:
    """Return the watches for models of a kind: their Jobs, the models that wait for a turn, catalogs, the workloads
    that read models, and, for image volumes, nodes and namespaces."""
    at_once = deckhouse(settings).publications_at_once
    read = (*users.watches(kind), *delivery.watches(settings))
    return (*turns.watches(kind, models.KINDS, at_once), *catalog_choice.watches(kind), *read)


MODELS = tuple(
    Table(
        name="deckhouse",
        resource=resource,
        finalizers=frozenset({names.FINALIZER}),
        condition_types=model_status.CONDITIONS,
        pod_labels=frozenset({NAME_LABEL, INSTANCE_LABEL, MANAGED_BY, names.MODEL_LABEL}),
        readiness=readiness.MODEL,
        watches=partial(watches, resource.kind),
        resolve=models.resolve,
        plan=models.plan,
        granted=all_granted,
        finalize=models.finalize,
        status=model_status.status,
    )
    for resource in (MODEL, CLUSTER_MODEL)
)
CATALOG_SOURCES = Table(
    name="deckhouse",
    resource=CATALOG_SOURCE,
    condition_types=frozenset({READY}),
    readiness=readiness.CATALOG_SOURCE,
    watches=lambda _settings: (),
    resolve=lambda world: world,
    plan=catalog.plan,
    status=catalog.status,
)
APIS = (*MODELS, CATALOG_SOURCES)
