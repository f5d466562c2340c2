"""Rules that derive readiness, rejection and failure from the status of each OME kind."""

from __future__ import annotations

from slipway.serving.contract.readiness import (
    ANSWERING,
    COMPLETE,
    IN_PLACE,
    REACHED,
    UNREACHED,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Readiness,
)

ACCEPTED = Condition("Accepted")
REFUSED = Condition("Accepted", "False")

MODEL = Readiness(
    ready=AllOf((Field("status.state", ("Ready",)), ACCEPTED)),
    answering=AllOf((Field("status.state", ("Ready",)), IN_PLACE)),
    failed=AnyOf((Field("status.state", ("Failed",)), REFUSED)),
    refused=REFUSED,
    telling=(ACCEPTED, Condition("Available")),
)

RUNTIME = Readiness(ready=ACCEPTED, failed=REFUSED, refused=REFUSED, telling=(ACCEPTED,))

INFERENCE_SERVICE = Readiness(
    ready=AllOf((ACCEPTED, Condition("Available", excused=("ScaledToZero",)), COMPLETE, REACHED)),
    answering=ANSWERING,
    failed=AnyOf((UNREACHED, Condition("Progressing", "False", other_than=("Complete",)), REFUSED)),
    refused=REFUSED,
    telling=(ACCEPTED, Condition("Available"), REACHED, COMPLETE),
)

BENCHMARK_JOB = Readiness(
    ready=Field("status.state", ("Completed",)),
    failed=AnyOf((Field("status.state", ("Failed",)), REFUSED)),
    refused=REFUSED,
    telling=(ACCEPTED, Condition("Available")),
)
