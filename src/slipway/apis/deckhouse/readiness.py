"""Rules that derive readiness, rejection and failure from the status of each Deckhouse kind."""

from __future__ import annotations

from slipway.serving.contract.readiness import Condition, Field, Readiness

MODEL = Readiness(
    ready=Field("status.phase", ("Ready",)),
    failed=Field("status.phase", ("Failed",)),
    telling=(Condition("Ready"),),
)

CATALOG_SOURCE = Readiness(
    ready=Condition("Ready"),
    failed=Condition("Ready", "False", other_than=("Pending", "Unreachable", "Refused", "Retrying")),
    refused=Condition("Ready", "False", reasons=("InvalidSpec", "InvalidRefreshInterval")),
    telling=(Condition("Ready"),),
)
