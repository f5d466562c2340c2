"""Writes src/slipway/apis/llmkube/later_fields.json: the spec's fields of later versions of LLMKube that ours lacks.

usage: later_fields.py FOLDER [--into FILE]

FOLDER has the CustomResourceDefinitions of the version to compare with. Of each of our kinds that it has, every field
of the spec is listed that is not among our types, with the schema by which the API server keeps it: its type, and all
that is in it. A field that gets supported falls out of the list. Parts that are Kubernetes' own, such as volumes, are
not compared: scripts/core_schemas.py brings those.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from slipway.apis.llmkube.model_types import MODEL
from slipway.apis.llmkube.service_types import INFERENCE_SERVICE
from slipway.kube.core import core_schema
from slipway.kube.crd import CustomResource, struct_schema

FILE = Path(__file__).parents[1] / "src" / "slipway" / "apis" / "llmkube" / "later_fields.json"
KINDS: tuple[CustomResource, ...] = (MODEL, INFERENCE_SERVICE)
PARTS = ("Volume",)
"""Kubernetes' own parts of which a version of Kubernetes knows more than another one."""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def specs(folder: Path) -> dict[str, Any]:
    """Kind -> schema of its spec."""
    documents = (one for path in sorted(folder.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text()))
    definitions = [one["spec"] for one in documents if one and one["kind"] == "CustomResourceDefinition"]
    return {
        definition["names"]["kind"]: definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for definition in definitions
        if definition["group"] == MODEL.kind.group
    }


def missing(ours: Any, theirs: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Path and schema of each field that only they have, but for what lies below such a field."""
    for name, schema in theirs.get("properties", {}).items():
        path, known = f"{place}{name}", ours.get("properties", {}).get(name)
        if known is None:
            yield path, loose(schema)
        elif known.get("type") == "array":
            yield from missing(known["items"], schema["items"], f"{path}[].") if not own_part(known["items"]) else ()
        else:
            yield from missing(known, schema, f"{path}.")


def own_part(schema: Any) -> bool:
    return any(schema.get("properties") == core_schema(part)["properties"] for part in PARTS)


def loose(schema: Any) -> Any:
    """The type alone: whatever a later version means by it is kept."""
    kind = schema.get("type")
    if kind == "array":
        return {"type": "array", "items": loose(schema["items"])}
    if kind == "object":
        return ANYTHING
    return {"type": kind} if kind else {"x-kubernetes-preserve-unknown-fields": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--into", type=Path, default=FILE)
    options = parser.parse_args()
    later = specs(options.folder)
    found = {
        resource.kind.kind: dict(
            sorted(missing(struct_schema(resource.spec, defaults=True), later[resource.kind.kind]))
        )
        for resource in KINDS
        if resource.kind.kind in later
    }
    options.into.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
