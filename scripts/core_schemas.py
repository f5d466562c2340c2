"""Writes src/slipway/kube/core_schemas.json: the schemas of a pod and of its parts, for use in definitions of our own.

usage: core_schemas.py DOCUMENT [--into FILE]

DOCUMENT is api/openapi-spec/v3/api__v1_openapi.json of a release of Kubernetes. Descriptions go, and so does what a
CustomResourceDefinition cannot say: zeros as defaults of fields that are required, and the strategies of patches.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOTS = ("PodSpec",)
SCHEMAS = "#/components/schemas/"
KEPT = {
    "additionalProperties",
    "default",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
}
TEXT = {"type": "string"}
NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
EITHER = {"anyOf": [{"type": "integer"}, TEXT], "x-kubernetes-int-or-string": True}
OURS: dict[str, Any] = {
    "IntOrString": EITHER,
    "ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": {"type": "object", "additionalProperties": TEXT},
            "finalizers": {"type": "array", "items": TEXT},
            "labels": {"type": "object", "additionalProperties": TEXT},
            "name": TEXT,
            "namespace": TEXT,
        },
    },
    "Quantity": EITHER | {"pattern": rf"^(\+|-)?{NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{NUMBER}))?$"},
}
"""Those that a definition says in another way. Of an inner object's metadata it is what a template may set."""


def short(name: str) -> str:
    return name.rpartition(".")[2]


def cleaned(schema: Any) -> Any:
    """A schema in the words of a CustomResourceDefinition; ``{"$ref": name}`` where it names another one."""
    if reference := named(schema):
        return {"$ref": reference}
    definition = {key: value for key, value in schema.items() if key in KEPT}
    required = set(definition.get("required", ()))
    if "properties" in definition:
        definition["properties"] = {
            name: field(value, name in required) for name, value in definition["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if key in definition:
            definition[key] = field(definition[key], required=True)
    return {key: definition[key] for key in sorted(definition)}


def named(schema: Any) -> str:
    """The name that a schema refers to, if it does nothing else."""
    parts = schema.get("allOf") or [schema]
    return short(parts[0].get("$ref", ""))


def field(schema: Any, required: bool) -> Any:
    definition = cleaned(schema)
    if required or definition.get("default") == {}:
        definition.pop("default", None)
    return definition


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)


def closure(document: dict[str, Any]) -> dict[str, Any]:
    """The roots and all that they refer to."""
    preferred = ("io.k8s.api.core.v1.", "io.k8s.apimachinery.")
    schemas = {short(name): value for name, value in document.items() if name.startswith(preferred)}
    definitions: dict[str, Any] = {}
    pending = list(ROOTS)
    while pending:
        name = pending.pop()
        if name not in definitions:
            definitions[name] = OURS.get(name) or cleaned(schemas[name])
            pending += references(definitions[name])
    return definitions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("--into", type=Path, default=Path(__file__).parents[1] / "src/slipway/kube/core_schemas.json")
    args = parser.parse_args()
    definitions = closure(json.loads(args.document.read_text())["components"]["schemas"])
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(definitions[name])}" for name in sorted(definitions))
    args.into.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
