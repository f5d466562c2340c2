"""What the status of a Model means."""

from __future__ import annotations

from slipway.serving.readiness import ANSWERING, COMPLETE, REACHED, UNREACHED, AllOf, AnyOf, Condition, Readiness
from slipway.serving.unready import SOURCE_FOUND

AVAILABLE = Condition("Available", excused=("ScaledToZero",))
"""A Model that nobody asks has no replica, and that is as it should be."""
CACHE_LOADED = Condition("CacheLoaded", optional=True)
"""Of Models with a cache only."""
ADAPTERS_LOADED = Condition("AdaptersLoaded", excused=("ScaledToZero",), optional=True)
"""Of Models with adapters only."""
SOURCE = Condition(SOURCE_FOUND, excused=("SourceNotChecked",), optional=True)
"""Of Models that may sleep. A check without a result does not keep a Model from being ready."""
NOT_MISSING = Condition(SOURCE_FOUND, excused=(*SOURCE.excused, "CheckingSource"), optional=True)

READINESS = Readiness(
    ready=AllOf((Condition("Accepted"), AVAILABLE, COMPLETE, CACHE_LOADED, SOURCE, ADAPTERS_LOADED, REACHED)),
    answering=AllOf((ANSWERING, NOT_MISSING)),
    failed=AnyOf(
        (
            UNREACHED,
            Condition("Accepted", "False"),
            Condition("Progressing", "False", other_than=("Complete",)),
            Condition("CacheLoaded", "False", other_than=("LoadingCache",)),
            Condition(SOURCE_FOUND, "False"),
            Condition("AdaptersLoaded", "False", reasons=("AdapterFailed",)),
        )
    ),
    telling=(Condition("Accepted"), CACHE_LOADED, SOURCE, AVAILABLE, REACHED, ADAPTERS_LOADED, COMPLETE),
)
