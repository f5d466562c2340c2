"""The command ``slipway crds``, which generates the CustomResourceDefinitions of all APIs from their types."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from slipway.apis import APIS
from slipway.kube.objects import Object
from slipway.kube.schemas.crd import Column, CustomResource, to_yaml

CATEGORY = "slipway"
"""Category of all kinds. ``kubectl get slipway`` lists their resources."""
STATE = Column("State", "string", '.status.conditions[?(@.type=="Ready")].reason')
"""Column of every kind that has no own column State: the reason of the condition Ready, such as ``Ready`` or
``ChangeFailed``."""
MODEL_ID = Column("Model ID", "string", ".status.modelId")
"""Column with the ID that clients send, for kinds that the gateway serves."""
CHANGE = Column("Change", "string", '.status.conditions[?(@.type=="Reconciling")].reason', priority=1)
"""Column of ``-o wide`` for kinds that the gateway serves: ``Complete``, or the reason why the latest spec is not
rolled out. If the rollout has failed and an earlier spec still serves, the column State shows ``ChangeFailed``."""
LABELS: Object = {"labels": {"app.kubernetes.io/part-of": "slipway"}}
"""Labels by which the role ``crds`` distinguishes Slipway's definitions from those of other installations."""


def manifests() -> dict[str, str]:
    """Return the CustomResourceDefinitions as YAML, by file name."""
    return {f"{api.resource.kind.group}_{api.resource.kind.plural}.yaml": _text(api.resource) for api in APIS}


def _text(resource: CustomResource) -> str:
    shown = msgspec.structs.replace(
        resource, categories=(*resource.categories, CATEGORY), columns=(*resource.columns, *_added(resource))
    )
    manifest = shown.manifest()
    return to_yaml(manifest | {"metadata": manifest["metadata"] | LABELS})


def _added(resource: CustomResource) -> Iterator[Column]:
    """Yield the columns that Slipway adds after a kind's own columns."""
    if STATE.name not in (one.name for one in resource.columns):
        yield STATE
    if resource.status and "model_id" in resource.status.__struct_fields__:
        yield MODEL_ID
        yield CHANGE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="slipway crds", description="Write all CustomResourceDefinitions.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory for the files, one for each kind")
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manifests().items():
        (folder / name).write_text(text)
    return 0
