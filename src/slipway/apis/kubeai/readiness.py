"""Rules for the readiness of a Model, from its status."""

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
"""A Model without requests has no replica, which is normal."""
CACHE_LOADED = Condition("CacheLoaded", optional=True)
"""Only Models with a cache have it."""
ADAPTERS_LOADED = Condition("AdaptersLoaded", excused=("ScaledToZero",), optional=True)
"""Only Models with adapters have it."""

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
