"""Status conditions according to the Kubernetes API conventions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from slipway.kube.objects import Object
from slipway.kube.schemas.crd import list_map, struct_schema

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
SUMMARY = frozenset({READY, RECONCILING, STALLED})
"""Types of the conditions that are derived from the rest of a status."""


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One aspect of the object's state."""

    type: str
    """Type of the condition in CamelCase."""
    status: str
    """True, False or Unknown."""
    reason: str = ""
    """Reason for the status in CamelCase."""
    message: str = ""
    """Human-readable explanation of the status."""
    last_transition_time: Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})] = ""
    """Time when the status last changed."""
    observed_generation: int = 0
    """The spec generation that this condition describes."""


def _checked() -> Object:
    limits: Object = {
        "type": {
            "maxLength": 316,
            "pattern": rf"^({_LABEL}(\.{_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        },
        "status": {"enum": ["True", "False", "Unknown"]},
        "reason": {"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "message": {"maxLength": LONGEST_MESSAGE},
        "lastTransitionTime": {},
        "observedGeneration": {"format": "int64", "minimum": 0},
    }
    item = struct_schema(Condition, defaults=False)
    properties = {name: schema | limits[name] for name, schema in item["properties"].items()}
    required = sorted(limits.keys() - {"observedGeneration"})
    return {"items": item | {"required": required, "properties": properties}, **list_map("type")}


LONGEST_MESSAGE = 32768
"""Maximum length of a condition's message in characters. The API server rejects a status with a longer message."""
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
CHECKED: Object = _checked()
"""Schema keywords for a list of conditions that the API server validates like the conditions of its own objects."""


def timestamp(unix: float) -> str:
    """Format Unix seconds as Kubernetes does, such as ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(int(unix), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merge(
    old: Iterable[Object], new: Iterable[Condition], now: float, ours: Collection[str] | None = None
) -> list[Object]:
    """Return the conditions to write: those of ``new``, in its order, then those of other writers, unchanged.

    ``ours`` contains the types that we may have written; conditions of other types are kept. None means all types.
    ``lastTransitionTime`` is kept from ``old`` if the status is the same, even if reason or message differ. Otherwise
    it is ``now`` (Unix seconds). Equal input gives equal output, so nothing is written if nothing changed. Messages
    that are too long, because they quote a spec, are cut.
    """
    before, stamp = {condition["type"]: condition for condition in old}, timestamp(now)
    merged: list[Object] = []
    for condition in new:
        previous, fields = before.get(condition.type, {}), msgspec.to_builtins(condition)
        same = previous.get("status") == condition.status and previous.get("lastTransitionTime")
        fields["lastTransitionTime"] = previous["lastTransitionTime"] if same else stamp
        fields["message"] = condition.message[:LONGEST_MESSAGE]
        merged.append(fields)
    types = {condition["type"] for condition in merged}
    others = (name for name in before if ours is not None and name not in types and name not in ours)
    return [*merged, *(before[name] for name in others)]


def find(resource: Object, type_: str) -> Object | None:
    """Return the condition of this type from the resource's status, or None if there is none."""
    conditions: list[Object] = (resource.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == type_), None)
