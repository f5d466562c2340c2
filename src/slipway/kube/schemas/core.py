"""Schemas of parts of Kubernetes' own objects in our custom resources, such as a probe, a toleration or a volume.

In a Struct, such a part is a plain object. :func:`core` names its type and gives it Kubernetes' schema. The schemas are
data in ``core_schemas.json``, which ``scripts/core_schemas.py`` generates from Kubernetes' OpenAPI documents.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Meta

from slipway.kube.objects import Object


def core(name: str, *, optional: tuple[str, ...] = ()) -> Meta:
    """Return the annotation that marks a field as a part of a Kubernetes object: ``Annotated[Object, core("Probe")]``.

    ``name`` is the part's name in Kubernetes' API documents. ``optional`` contains paths of fields that Kubernetes
    requires but that may be omitted, as for :func:`inlined`. Raise KeyError for an unknown part.
    """
    if name not in _definitions():
        raise KeyError(f"core_schemas.json has no {name}")
    return Meta(extra={"core": name, "optional": optional})


def core_schema(name: str) -> Object:
    """Return the structural schema of a part, without references and descriptions. The result is a copy. Raise KeyError
    for an unknown part."""
    resolved: Object = _resolved(_definitions()[name])
    return resolved


def definition(name: str) -> Object:
    """Return the schema of a part, in which ``{"$ref": name}`` refers to other parts. The schema is shared and must not
    be changed. Raise KeyError for an unknown part."""
    return _definitions()[name]


@cache
def inlined(name: str, optional: tuple[str, ...] = ()) -> Object:
    """Return the structural schema of a part for a Struct that inlines the part's fields, as its ``inlined:
    ClassVar[Object]``.

    ``optional`` contains paths of required fields that may be omitted, such as ``containers`` or
    ``containers[].image``. The schema is shared and must not be changed. Raise KeyError for an unknown part or path.
    """
    schema = core_schema(name)
    for path in optional:
        *places, field = path.split(".")
        below = schema
        for place in places:
            below = below["properties"][place.removesuffix("[]")]
            below = below["items"] if place.endswith("[]") else below
        if field not in below.get("required", ()):
            raise KeyError(f"{name} does not require {path}")
        below["required"] = [required for required in below["required"] if required != field]
        if not below["required"]:
            del below["required"]
    return schema


@cache
def _definitions() -> dict[str, Object]:
    """Return all schemas by part name, in which ``{"$ref": name}`` refers to other parts."""
    text = files("slipway.kube").joinpath("core_schemas.json").read_text()
    definitions: dict[str, Object] = json.loads(text)
    return definitions


def _resolved(schema: Any) -> Any:
    """Return a copy of a schema in which every reference is replaced by its target."""
    if isinstance(schema, list):
        return [_resolved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if name := schema.get("$ref"):
        return _resolved(_definitions()[name]) | {key: value for key, value in schema.items() if key != "$ref"}
    return {key: _resolved(value) for key, value in schema.items()}
