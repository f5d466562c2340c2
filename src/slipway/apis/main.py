"""``slipway crds FOLDER``: writes the CustomResourceDefinitions of every API from its types."""

from __future__ import annotations

import argparse
from pathlib import Path

from slipway.apis import APIS
from slipway.kube.crd import to_yaml


def manifests() -> dict[str, str]:
    """File name -> CustomResourceDefinition as YAML."""
    resources = [resource for api in APIS for resource in api.resources]
    return {
        f"{resource.kind.group}_{resource.kind.plural}.yaml": to_yaml(resource.manifest()) for resource in resources
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="slipway crds", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manifests().items():
        (folder / name).write_text(text)
    return 0
