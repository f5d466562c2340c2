"""Rules that determine the readiness of LLMKube's resources from their status."""

from __future__ import annotations

from slipway.serving.contract.readiness import (
    ANSWERING,
    COMPLETE,
    FAILED,
    IN_PLACE,
    REACHED,
    RETRYING,
    ROLLED_OUT,
    UNREACHED,
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
    # No replicas, because none are requested or because a Mac outside of the cluster serves it.
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

MODEL_ROUTER = Readiness(
    ready=AllOf((Condition("Accepted"), Condition("Available"), REACHED)),
    answering=AllOf((IN_PLACE, Condition("Available"), REACHED)),
    failed=AnyOf((UNREACHED, Condition("Accepted", "False"))),
    refused=Condition("Accepted", "False"),
    telling=(Condition("Accepted"), Condition("Available"), REACHED),
)

LOADED = Condition("Loaded", excused=("ScaledToZero",))
LORA_ADAPTER = Readiness(
    ready=AllOf((Condition("Available"), LOADED, REACHED)),
    answering=AllOf((Condition("Available", excused=(RETRYING,)), LOADED, REACHED)),
    failed=AnyOf((UNREACHED, Condition("Error"))),
    refused=Condition("Available", "False"),
    telling=(Condition("Available"), LOADED, REACHED),
)

MODEL_POOL = Readiness(
    ready=AllOf((Condition("Accepted"), Condition("MembersValid"))),
    answering=AllOf((IN_PLACE, Condition("MembersValid"))),
    failed=AnyOf((Condition("Accepted", "False"), Condition("MembersValid", "False"))),
    refused=Condition("Accepted", "False"),
    telling=(Condition("Accepted"), Condition("MembersValid"), Condition("SlotAllocated")),
)

GPU_QUOTA = Readiness(
    ready=Condition("Accepted"),
    failed=Condition("Accepted", "False"),
    refused=Condition("Accepted", "False"),
    telling=(Condition("Accepted"),),
)
