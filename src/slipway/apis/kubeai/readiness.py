"""Rules that derive readiness and failure from the status of a Model."""

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
"""Condition that the Model is available. A Model that is scaled to zero counts as available, because the next request
starts a replica."""
CACHE_LOADED = Condition("CacheLoaded", optional=True)
"""Condition that the cache is loaded. Only Models with a cache have it."""
ADAPTERS_LOADED = Condition("AdaptersLoaded", excused=("ScaledToZero",), optional=True)
"""Condition that the adapters are loaded, or that the Model is scaled to zero. Only Models with adapters have it."""

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
