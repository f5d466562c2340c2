"""The time of a status is that of the last change, whatever is written meanwhile."""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube.rules.updated import last_updated
from slipway.kube.schemas.conditions import Condition, merge

TYPES = frozenset({"Available", "Degraded"})


def test_an_unchanged_status_keeps_its_time_although_its_message_was_cut() -> None:
    condition = Condition("Available", "False", "Wrong", "x" * 50_000)
    status = {"conditions": merge([], [condition], 0)}
    stamp = last_updated({}, status, TYPES, 0)
    again = {"conditions": [msgspec.to_builtins(condition)]}
    assert last_updated(status | {"lastUpdated": stamp}, again, TYPES, 1_700_000_000) == stamp
    assert last_updated(status | {"lastUpdated": stamp}, {"conditions": []}, TYPES, 1_700_000_000) != stamp


def test_conditions_of_other_writers_are_no_news() -> None:
    own = [Condition("Available", "True")]
    before = {"conditions": merge([], [*own, Condition("Theirs", "True")], 0), "lastUpdated": "2026-01-01T00:00:00Z"}
    status = {"conditions": [msgspec.to_builtins(one) for one in own]}
    assert last_updated(before, status, TYPES, 60) == "2026-01-01T00:00:00Z"
