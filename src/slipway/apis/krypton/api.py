"""The table of Krypton's kind: its watches, and the functions that turn a Model into children and a status."""

from __future__ import annotations

from slipway.apis.krypton import plan, resolve, status
from slipway.apis.krypton.readiness import READINESS
from slipway.apis.krypton.types import MODEL
from slipway.kube.objects import DEPLOYMENT, NETWORK_POLICY, POD_DISRUPTION_BUDGET, SERVICE, SERVICE_ACCOUNT
from slipway.serving.contract.api import Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table
from slipway.serving.contract.watches import owned_by
from slipway.serving.status.report import REPORTED


def watches(_settings: Settings) -> tuple[Watch, ...]:
    return owned_by(MODEL.kind, SERVICE_ACCOUNT, SERVICE, DEPLOYMENT, POD_DISRUPTION_BUDGET, NETWORK_POLICY)


KRYPTON = Table(
    name="krypton",
    resource=MODEL,
    finalizers=frozenset({"krypton.ai/cleanup"}),
    condition_types=REPORTED | {"FieldsIgnored"},
    pod_labels=frozenset({plan.MODEL_LABEL}),
    readiness=READINESS,
    watches=watches,
    resolve=resolve.resolve,
    plan=plan.plan,
    granted=plan.granted,
    status=status.status,
)
