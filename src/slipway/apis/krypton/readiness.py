"""Rules that determine a Model's readiness from its status."""

from __future__ import annotations

from slipway.serving.contract.readiness import ANSWERING, COMPLETE, FAILED, REACHED, ROLLED_OUT, Condition, Readiness

READINESS = Readiness(
    ready=ROLLED_OUT,
    answering=ANSWERING,
    failed=FAILED,
    telling=(Condition("Accepted"), Condition("Available"), REACHED, COMPLETE),
)
