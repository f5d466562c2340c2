"""Parts of Kubernetes' own objects inside ours: a probe, a toleration, a volume.

In a Struct such a part is a plain object; :func:`core` says which one, and its schema is Kubernetes' own. The schemas
are data, ``core_schemas.json``, which ``scripts/core_schemas.py`` makes from Kubernetes' OpenAPI documents.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Meta

from slipway.kube.objects import Object


def core(name: str) -> Meta:
    """``Annotated[Object, core("Probe")]``: a part of this kind, as Kubernetes' documents call it."""
    if name not in _definitions():
        raise KeyError(f"core_schemas.json has no {name}")
    return Meta(extra={"core": name})


def core_schema(name: str) -> Object:
    """The structural schema of a kind of part, complete in itself and without descriptions."""
    resolved: Object = _resolved(_definitions()[name])
    return resolved


@cache
def _definitions() -> dict[str, Object]:
    """Name -> schema; ``{"$ref": name}`` in place of another one."""
    text = files("slipway.kube").joinpath("core_schemas.json").read_text()
    definitions: dict[str, Object] = json.loads(text)
    return definitions


def _resolved(schema: Any) -> Any:
    """A copy with every reference replaced by what it names."""
    if isinstance(schema, list):
        return [_resolved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if name := schema.get("$ref"):
        return _resolved(_definitions()[name]) | {key: value for key, value in schema.items() if key != "$ref"}
    return {key: _resolved(value) for key, value in schema.items()}
