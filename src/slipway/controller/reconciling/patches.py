"""The smallest merge patch that gives an object its desired fields. Pure.

Fields that already have their desired value are omitted. This keeps other writers' changes, and sends nothing if
nothing differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipway.kube.objects import Object
from slipway.serving.contract.api import Plan


def difference(current: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """Return the part of a merge patch (RFC 7386) that changes ``current``. The value None removes a field. The result
    is empty if the patch changes nothing."""
    changes: Object = {}
    for field, value in patch.items():
        if isinstance(value, Mapping):
            before = current.get(field)
            inner = difference(before if isinstance(before, Mapping) else {}, value)
            if inner:
                changes[field] = inner
        elif current.get(field) != value:
            changes[field] = value
    return changes


def own_patch(resource: Object, plan: Plan) -> Object:
    """Return the merge patch that the plan requests for the resource itself, including its finalizer. The result is
    empty if it changes nothing."""
    patch = difference(resource, plan.self_patch)
    finalizers = resource["metadata"].get("finalizers") or []
    if plan.finalizer and plan.finalizer not in finalizers:
        patch["metadata"] = {**patch.get("metadata", {}), "finalizers": [*finalizers, plan.finalizer]}
    return patch
