"""What the statuses of Models and InferenceServices mean."""

from __future__ import annotations

from slipway.serving.readiness import (
    ANSWERING,
    COMPLETE,
    FAILED,
    REACHED,
    ROLLED_OUT,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Readiness,
)

MODEL = Readiness(
    ready=Field("status.phase", ("Ready",)),
    failed=Field("status.phase", ("Failed",)),
    telling=(Condition("Available"),),
)

INFERENCE_SERVICE = Readiness(
    ready=ROLLED_OUT,
    answering=ANSWERING,
    failed=FAILED,
    # Without replicas because it was asked for none, or computed by a Mac outside of the cluster.
    settled=AnyOf(
        (
            AllOf(
                (
                    Field("status.phase", ("Stopped", "Suspended")),
                    Condition("Accepted"),
                    Condition("Progressing", "False", reasons=("Complete",), excused=("ModelNotReady",)),
                )
            ),
            Condition("Accepted", "False", reasons=("MetalOutOfReach",)),
        )
    ),
    refused=Condition("Accepted", "False"),
    telling=(Condition("Accepted"), Condition("Available"), REACHED, COMPLETE),
)
