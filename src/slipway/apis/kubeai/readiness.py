"""What the status of a Model means."""

from __future__ import annotations

from slipway.serving.contract.readiness import (
    ANSWERING,
    COMPLETE,
    REACHED,
    UNREACHED,
    AllOf,
    AnyOf,
    Condition,
    Readiness,
)

AVAILABLE = Condition("Available", excused=("ScaledToZero",))
"""A Model that nobody asks has no replica, and that is as it should be."""
CACHE_LOADED = Condition("CacheLoaded", optional=True)
"""Of Models with a cache only."""
ADAPTERS_LOADED = Condition("AdaptersLoaded", excused=("ScaledToZero",), optional=True)
"""Of Models with adapters only."""

READINESS = Readiness(
    ready=AllOf((Condition("Accepted"), AVAILABLE, COMPLETE, CACHE_LOADED, ADAPTERS_LOADED, REACHED)),
    answering=ANSWERING,
    failed=AnyOf(
        (
            UNREACHED,
            Condition("Accepted", "False"),
            Condition("Progressing", "False", other_than=("Complete",)),
            Condition("CacheLoaded", "False", other_than=("LoadingCache",)),
            Condition("AdaptersLoaded", "False", reasons=("AdapterFailed",)),
        )
    ),
    telling=(Condition("Accepted"), CACHE_LOADED, AVAILABLE, REACHED, ADAPTERS_LOADED, COMPLETE),
)
