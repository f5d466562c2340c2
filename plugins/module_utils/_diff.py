# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""What of an object is ours, and what changes of it. Pure.

The API server records in ``metadata.managedFields`` which manager owns which field. Only fields that our manager owns,
before or after, are compared and shown: neither status nor what others set makes a task "changed".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._secrets import mask

Fields = Mapping[str, Any]


def owned_fields(resource: Mapping[str, Any] | None, manager: str, api_version: str) -> Fields | None:
    """The fieldsV1 tree that a manager owns by server-side apply at this version; None where it owns nothing."""
    for entry in ((resource or {}).get("metadata") or {}).get("managedFields") or ():
        mine = entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        if mine and entry.get("apiVersion") == api_version:
            fields: Fields = entry.get("fieldsV1") or {}
            return fields
    return None


def project(value: Any, fields: Fields) -> Any:
    """The part of a value that a fieldsV1 tree names. A leaf of the tree names all that is there."""
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
    """Whether ``k:{"name":"x"}`` or ``v:"x"`` means this item of a list."""
    try:
        wanted = json.loads(key[2:])
    except ValueError:
        return False
    if key.startswith("k:") and isinstance(item, Mapping):
        return all(item.get(name) == value for name, value in wanted.items())
    return key.startswith("v:") and bool(item == wanted)


def union(one: Fields, other: Fields) -> Fields:
    """The fields that either tree names."""
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
    """What a manifest says about its object, apart from which one it is."""
    named = ("name", "namespace")
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in named and value}
    said = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**said, **({"metadata": metadata} if metadata else {})}


def compare(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, manager: str, api_version: str
) -> tuple[Any, Any]:
    """What our manager owns, before and after. Both have what either owns of the object as it was."""
    owned_before = owned_fields(before, manager, api_version)
    owned_after = owned_fields(after, manager, api_version)
    owned = owned_after or {}
    reach = union(owned_before, owned) if owned_before is not None and owned_after is not None else owned
    return (
        project(before, reach) if before and (reach or owned_before is not None) else {},
        project(after, owned) if after and owned_after is not None else {},
    )


def entry(key: str, before: Any, after: Any) -> dict[str, Any]:
    """An entry of a task's diff."""
    return {"before_header": key, "after_header": key, "before": mask(before), "after": mask(after)}
