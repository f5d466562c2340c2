"""Merging of one Kubernetes object over another, like a strategic merge patch. Pure.

Fields of the patch take precedence. Objects are merged field by field, and lists item by item if Kubernetes' schemas
define merge keys: containers, environment variables and volumes by name, mounts by path, ports by number and protocol.
Other lists are replaced. ``null`` removes a field, and ``$patch: delete`` removes an object or an item. An object with
``$patch: replace`` replaces the whole object, and a list with the item ``$patch: replace`` replaces the whole list.

If the API server accepts only one of several fields, such as ``value`` or ``valueFrom`` of an environment variable, the
patch's field replaces the other field, which a plain merge would keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.kube.objects import Object
from slipway.kube.schemas.core import definition

ANYTHING: Object = {}
"""Schema of a value that is not part of a Kubernetes object. Objects are merged, and lists are replaced."""
DIRECTIVE, REPLACE, DELETE = "$patch", "replace", "delete"
ONE_OF = {
    "EnvVar": frozenset(("value", "valueFrom")),
    "EnvVarSource": frozenset(definition("EnvVarSource")["properties"]),
    "LifecycleHandler": frozenset(definition("LifecycleHandler")["properties"]),
    "Probe": frozenset(("exec", "grpc", "httpGet", "tcpSocket")),
    "Volume": frozenset(definition("Volume")["properties"]) - {"name"},
}
"""Mutually exclusive fields, by the name of the part that has them."""
ItemKey = tuple[str, ...]


def merged(base: Object, patch: Object, part: str = "") -> Object:
    """Merge ``patch`` over ``base`` and return the result. Neither is changed, and the result may share their content.

    ``part`` is their type in Kubernetes' API documents, such as ``PodSpec`` or ``Container``, or empty if they have
    none. Raise KeyError for an unknown part.
    """
    return _merged_objects(base, patch, {"$ref": part} if part else ANYTHING)


def _merged(base: Any, patch: Any, schema: Object) -> Any:
    if isinstance(patch, dict):
        return _merged_objects(base if isinstance(base, dict) else {}, patch, schema)
    keys = schema.get("x-kubernetes-list-map-keys")
    if isinstance(patch, list) and keys:
        return _merged_lists(base if isinstance(base, list) else [], patch, keys, schema["items"])
    return patch


def _merged_objects(base: Object, patch: Object, schema: Object) -> Object:
    part = schema.get("$ref", "")
    schema = definition(part) if part else schema
    changes = {field: value for field, value in patch.items() if field != DIRECTIVE}
    rivals = ONE_OF.get(part, frozenset())
    if patch.get(DIRECTIVE) == REPLACE:
        base = {}
    elif any(field in rivals and not _removes(value) for field, value in changes.items()):
        base = {field: value for field, value in base.items() if field not in rivals or field in changes}
    fields, rest = schema.get("properties", {}), schema.get("additionalProperties")
    combined = dict(base)
    for field, value in changes.items():
        if _removes(value):
            combined.pop(field, None)
        else:
            below = fields.get(field, rest if isinstance(rest, dict) else ANYTHING)
            combined[field] = _merged(base.get(field), value, below)
    return combined


def _removes(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and value.get(DIRECTIVE) == DELETE)


def _merged_lists(base: Sequence[Any], patch: Sequence[Any], keys: Sequence[str], schema: Object) -> list[Any]:
    if {DIRECTIVE: REPLACE} in patch:
        base, patch = (), [item for item in patch if item != {DIRECTIVE: REPLACE}]
    fields = definition(schema["$ref"]).get("properties", {}) if "$ref" in schema else schema.get("properties", {})
    before = {_key(item, keys, fields, place): item for place, item in enumerate(base)}
    after = dict(before)
    patched: dict[ItemKey, None] = {}
    for place, item in enumerate(patch, len(base)):
        key = _key(item, keys, fields, place)
        if _removes(item):
            after.pop(key, None)
            patched.pop(key, None)
        else:
            after[key] = _merged(after.get(key), item, schema)
            patched[key] = None
    remaining = [key for key in before if key in after and key not in patched]
    rank = {key: place for place, key in enumerate(before)}
    return [after[key] for key in _in_order(remaining, list(patched), rank)]


def _key(item: Any, keys: Sequence[str], fields: Mapping[str, Object], place: int) -> ItemKey:
    """Return an item's merge key. If the item lacks a key field, return its position instead, so that it matches no
    other item."""
    if not isinstance(item, dict):
        return ("", str(place))
    values = [item.get(key, fields.get(key, {}).get("default")) for key in keys]
    return tuple(str(value) for value in values) if None not in values else ("", str(place))


def _in_order(remaining: Sequence[ItemKey], patched: Sequence[ItemKey], rank: Mapping[ItemKey, int]) -> list[ItemKey]:
    """Return the keys of a merged list in order. The patch's items keep their own order. An item that only the base has
    comes before the first patch item that follows it in the base, or at the end."""
    ordered: list[ItemKey] = []
    waiting = list(reversed(remaining))
    for key in patched:
        while waiting and key in rank and rank[waiting[-1]] < rank[key]:
            ordered.append(waiting.pop())
        ordered.append(key)
    return [*ordered, *reversed(waiting)]
