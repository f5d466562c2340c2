# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Which fields of an object we own, and how they change. All functions are pure.

The API server records in ``metadata.managedFields`` which manager owns which field. Only fields that our manager owns,
before or after, are compared and shown. A change of the status or of other managers' fields does not make a task
"changed".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.slipway.inference.plugins.module_utils._secrets import mask

Fields = Mapping[str, Any]

_IDENTITY = ("name", "namespace")


def owned_fields(resource: Mapping[str, Any] | None, manager: str, api_version: str) -> Fields | None:
    """Return the fieldsV1 tree that a manager owns by server-side apply at this API version, or None if it owns
    nothing."""
    for entry in ((resource or {}).get("metadata") or {}).get("managedFields") or ():
        if _is_of(entry, manager) and entry.get("apiVersion") == api_version:
            fields: Fields = entry.get("fieldsV1") or {}
            return fields
    return None


def _is_of(entry: Mapping[str, Any], manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def project(value: Any, fields: Fields) -> Any:
    """Return the part of a value that a fieldsV1 tree names. A leaf of the tree stands for the whole value."""
    parts = {key: below for key, below in fields.items() if key != "."}
    if not fields:
        return value
    if isinstance(value, Mapping):
        return {
            key[2:]: project(value[key[2:]], below)
            for key, below in sorted(parts.items())
            if key.startswith("f:") and key[2:] in value
        }
    if isinstance(value, list):
        return [project(item, below) for key, below in parts.items() for item in value if _names(key, item)]
    return value


def _names(key: str, item: Any) -> bool:
    """Whether a key of a fieldsV1 tree, such as ``k:{"name":"x"}`` or ``v:"x"``, names this item of a list."""
    try:
        expected = json.loads(key[2:])
    except ValueError:
        return False
    if key.startswith("k:") and isinstance(item, Mapping):
        return all(item.get(name) == value for name, value in expected.items())
    return key.startswith("v:") and bool(item == expected)


def union(one: Fields, other: Fields) -> Fields:
    """Return a fieldsV1 tree with the fields of both trees."""
    if not one or not other:
        return {}
    return {
        key: union(one[key], other[key]) if key in one and key in other else one.get(key, other.get(key))
        for key in [*one, *(key for key in other if key not in one)]
    }


def unchanged(live: Mapping[str, Any] | None, manifest: Mapping[str, Any], manager: str) -> bool:
    """Whether applying the manifest would change nothing, so that it need not be sent."""
    owned = owned_fields(live, manager, manifest["apiVersion"])
    if live is None or owned is None:
        return False
    return bool(project(live, owned) == content(manifest))


def content(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a manifest without those that identify its object."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in _IDENTITY and value}
    fields = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**fields, **({"metadata": metadata} if metadata else {})}


def patched(live: Mapping[str, Any], patch: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """Return the manifest by which a manager sets the fields of a patch and keeps its other fields.

    Dictionaries in the patch are merged, lists are replaced, and None releases a field.
    """
    owned = owned_fields(live, manager, patch["apiVersion"])
    mine = project(live, owned) if owned else {}
    fields = {key: value for key, value in content(patch).items() if value is not None}
    merged: dict[str, Any] = _merged(mine, fields)
    metadata = {**merged.get("metadata", {}), **_named(patch["metadata"])}
    return {**merged, "apiVersion": patch["apiVersion"], "kind": patch["kind"], "metadata": metadata}


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    before = value if isinstance(value, Mapping) else {}
    parts = {key: _merged(before.get(key), part) for key, part in patch.items() if part is not None}
    return {**{key: part for key, part in before.items() if key not in patch}, **parts}


def _named(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in _IDENTITY if key in metadata}


def drift(live: Mapping[str, Any] | None, manifest: Mapping[str, Any], manager: str) -> list[dict[str, Any]]:
    """Return the fields in which an object differs from a manifest because another manager has set them.

    Each entry has the ``path``, the values ``ours`` and ``theirs`` with secrets masked, and the ``manager``. A field
    that was removed has no owner and cannot be distinguished from a new field in the manifest, so it is not included.
    """
    if live is None:
        return []
    fields = content(manifest)
    there = {key: live.get(key) for key in fields}
    differences: dict[str, dict[str, Any]] = {}
    for entry in sorted(live["metadata"].get("managedFields") or (), key=lambda entry: str(entry.get("time") or "")):
        if not _is_of(entry, manager):
            sides = _Side(fields, mask(fields)), _Side(there, mask(there))
            for path, ours, theirs in _differences(entry.get("fieldsV1") or {}, *sides, ""):
                differences[path] = {"path": path, "ours": ours, "theirs": theirs, "manager": entry.get("manager", "")}
    return [*differences.values()]


class _Side(NamedTuple):
    """A value, and a copy in which secrets are masked."""

    value: Any
    shown: Any

    def part(self, key: Any) -> _Side:
        return _Side(self.value[key], self.shown[key])


def _differences(fields: Fields, ours: _Side, theirs: _Side, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both masked values of each field that a fieldsV1 tree names and whose values differ."""
    if not fields:
        if ours.value != theirs.value:
            yield path, ours.shown, theirs.shown
        return
    for key, below in fields.items():
        mine, its = _found(key, ours.value), _found(key, theirs.value)
        if mine is not None and its is not None:
            yield from _differences(below, ours.part(mine), theirs.part(its), path + _step(key))


def _found(key: str, value: Any) -> Any:
    """Return the key or index of the part of a value that a key of a fieldsV1 tree names, or None if there is no such
    part."""
    if isinstance(value, Mapping):
        return key[2:] if key.startswith("f:") and key[2:] in value else None
    if isinstance(value, list) and key.startswith("k:"):
        return next((index for index, item in enumerate(value) if _names(key, item)), None)
    return None


def _step(key: str) -> str:
    """Return a part of a path as the API server writes it: ``.port`` or ``[name="x"]``."""
    if key.startswith("f:"):
        return f".{key[2:]}"
    return f"[{','.join(f'{name}={json.dumps(value)}' for name, value in json.loads(key[2:]).items())}]"


def compare(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, manager: str, api_version: str
) -> tuple[Any, Any]:
    """Return our manager's fields of an object before and after a change. The first value also has the fields that we
    own only after the change."""
    owned_before = owned_fields(before, manager, api_version)
    owned_after = owned_fields(after, manager, api_version)
    owned = owned_after or {}
    reach = union(owned_before, owned) if owned_before is not None and owned_after is not None else owned
    return (
        project(before, reach) if before and (reach or owned_before is not None) else {},
        project(after, owned) if after and owned_after is not None else {},
    )


def entry(key: str, before: Any, after: Any) -> dict[str, Any]:
    """Return an entry of a task's diff, with secrets masked."""
    return {"before_header": key, "after_header": key, "before": mask(before), "after": mask(after)}
