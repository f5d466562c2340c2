"""Every example below ``golden/`` is planned and judged as its files say."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.apis import APIS
from slipway.kube.objects import key
from slipway.serving.plan import Api, Invalid, Refusal, World
from slipway.serving.route import ROUTE, routed_service
from slipway.serving.settings import Settings

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = sorted(path for path in GOLDEN.glob("*/*.yaml") if "." not in path.stem)
NOW = datetime.fromisoformat("2026-11-21T09:05:00Z").timestamp()


def api_named(name: str) -> Api:
    return next(api for api in APIS if api.name == name)


def world_of(path: Path) -> World:
    example = yaml.safe_load(path.read_text())
    resource, observed = example["resource"], example.get("observed", [])
    mine = [obj for obj in observed if key(obj) == key(resource)]
    return World(
        resource=resource,
        children={(obj["kind"], obj["metadata"]["name"]): obj for obj in mine if obj["kind"] != "Pod"},
        pods=[obj for obj in observed if obj["kind"] == "Pod"],
        routed=[routed_service(obj) for obj in observed if ROUTE in obj["metadata"].get("labels", {})],
        settings=Settings(),
        now=NOW,
    )


def planned(api: Api, world: World) -> tuple[list[dict[str, Any]], Refusal | None]:
    try:
        return list(api.plan(world).children), None
    except Invalid as error:
        return [], Refusal(error.reason, error.message)


class ReadableDumper(yaml.SafeDumper):
    """Texts of several lines as they are, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


ReadableDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def agrees(path: Path, value: Any) -> None:
    text = yaml.dump(value, Dumper=ReadableDumper, sort_keys=False, width=140, allow_unicode=True)
    if os.environ.get("SLIPWAY_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_example_has_the_children_and_the_status_of_its_golden_files(path: Path) -> None:
    api, world = api_named(path.parent.name), world_of(path)
    children, refusal = planned(api, world)
    agrees(path.with_suffix(".children.yaml"), children)
    agrees(path.with_suffix(".status.yaml"), api.status(world, refusal).status)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_planning_twice_gives_the_same(path: Path) -> None:
    api, world = api_named(path.parent.name), world_of(path)
    assert planned(api, world) == planned(api, world)
