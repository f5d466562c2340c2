"""The field ``lastUpdated``: when the content of a status last changed. Pure."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import LONGEST_MESSAGE, timestamp
from slipway.serving.contract.api import StatusResult


def last_updated(before: Object, status: Object, types: Container[str], now: float) -> str:
    """Return the time at which a status last changed, in Kubernetes' format.

    ``before`` is the current status, and ``status`` is the status to write. ``types`` are the conditions that count,
    because other writers add their own conditions. ``now`` is Unix time.
    """
    stamp = str(before.get("lastUpdated") or "")
    return stamp if stamp and _timeless(before, types) == _timeless(status, types) else timestamp(now)


def stamped(result: StatusResult, resource: Object, types: Container[str], now: float) -> StatusResult:
    """Return a new status of ``resource`` with the field ``lastUpdated``. ``types`` are the conditions that count as
    changes, and ``now`` is Unix time."""
    stamp = last_updated(resource.get("status") or {}, result.status, types, now)
    return msgspec.structs.replace(result, status=result.status | {"lastUpdated": stamp})


def _timeless(status: Object, types: Container[str]) -> Object:
    own = (one for one in status.get("conditions") or () if one["type"] in types)
    bare = [one | {"lastTransitionTime": "", "message": one.get("message", "")[:LONGEST_MESSAGE]} for one in own]
    return {**status, "conditions": bare, "lastUpdated": ""}
