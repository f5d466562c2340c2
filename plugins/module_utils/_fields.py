# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Fields that a resource definition does not have: those that the API server names, and suggestions for each. All
functions are pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._spelling import did_you_mean

# .spec.containers[0].imge: field not declared in schema
_UNDECLARED = re.compile(r"(\.[^\s:]{1,500}): field not declared in schema")
_STEP = re.compile(r"\.([^.\[\]]+)|\[[^\]]*\]")
# Number of fields for which a message contains suggestions.
_TOLD = 5


def undeclared(message: str) -> list[str]:
    """Return the paths of the undeclared fields that an error message names, such as ``.spec.minReplica``, up to a
    limit."""
    return list(dict.fromkeys(_UNDECLARED.findall(message)))[:_TOLD]


def meant(paths: list[str], document: Mapping[str, Any], kind: Kind) -> str:
    """Return a sentence for each path that is similar to a field of the kind. ``document`` is the OpenAPI document of
    the kind's group."""
    schemas = _mapping(_mapping(document, "components"), "schemas")
    whole = next((one for one in schemas.values() if _is_of(one, kind)), {})
    sentences = []
    for path in paths:
        parent, _dot, name = path.rpartition(".")
        guess = did_you_mean(name, _mapping(_below(whole, parent, schemas), "properties"))
        sentences.append(guess.replace("Did you mean", f"Instead of {name}, did you mean") if len(paths) > 1 else guess)
    return " ".join(filter(None, sentences))


def _is_of(schema: Any, kind: Kind) -> bool:
    gvk = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    return isinstance(schema, Mapping) and gvk in (schema.get("x-kubernetes-group-version-kind") or ())


def _below(schema: Mapping[str, Any], path: str, schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema at a path below ``schema``. The result is empty if the path is unknown."""
    for step in _STEP.finditer(path):
        schema = _resolved(schema, schemas)
        schema = _mapping(schema, "items") if step[1] is None else _mapping(_mapping(schema, "properties"), step[1])
    return _resolved(schema, schemas)


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    named = schema.get("$ref") or next((one.get("$ref") for one in schema.get("allOf") or () if one.get("$ref")), "")
    return _mapping(schemas, named.rpartition("/")[2]) if named else schema


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    child = value.get(key)
    return child if isinstance(child, Mapping) else {}
