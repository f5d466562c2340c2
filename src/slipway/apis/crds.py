"""``slipway crds FOLDER``: writes the CustomResourceDefinitions of every API from its types."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from slipway.apis import APIS
from slipway.kube.crd import Column, CustomResource, to_yaml
from slipway.kube.objects import Object

CATEGORY = "slipway"
"""``kubectl get slipway`` lists the resources of all kinds."""
STATE = Column("State", "string", '.status.conditions[?(@.type=="Ready")].reason', priority=1)
"""Ready, or why not, of whatever kind: the reason of the condition that matters most."""
LABELS: Object = {"labels": {"app.kubernetes.io/part-of": "slipway"}}
"""By which the role crds tells our definitions from those of another installation."""


def manifests() -> dict[str, str]:
    """File name -> CustomResourceDefinition as YAML."""
    return {f"{api.resource.kind.group}_{api.resource.kind.plural}.yaml": _text(api.resource) for api in APIS}


def _text(resource: CustomResource) -> str:
    columns = resource.columns if STATE.name in (one.name for one in resource.columns) else (*resource.columns, STATE)
    shown = msgspec.structs.replace(resource, categories=(*resource.categories, CATEGORY), columns=columns)
    manifest = shown.manifest()
    return to_yaml(manifest | {"metadata": manifest["metadata"] | LABELS})


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="slipway crds", description="Write all CustomResourceDefinitions.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder for the files, one for each kind")
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manifests().items():
        (folder / name).write_text(text)
    return 0
