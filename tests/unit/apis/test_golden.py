"""Every example below ``golden/`` is planned and judged as its files say."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slipway.apis import APIS
from slipway.kube.objects import key
from slipway.serving.agent import AgentReport
from slipway.serving.plan import Api, Invalid, Plan, Refusal, World
from slipway.serving.route import ROUTE, routed_service
from slipway.serving.settings import Authors, Settings

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = sorted(path for path in GOLDEN.glob("*/*.yaml") if "." not in path.stem)
SYSTEM = "slipway-system"
CONTROLLER_KEY = "the-key-by-which-loaders-know-the-controllr"
NOW = datetime.fromisoformat("2026-11-21T09:05:00Z").timestamp()


KINDS: dict[tuple[str, str], Api] = {(api.name, resource.kind.kind): api for api in APIS for resource in api.resources}


def api_of(path: Path) -> Api:
    """That of the folder, and of the resource's kind where it says one."""
    resource = yaml.safe_load(path.read_text())["resource"]
    return KINDS[path.parent.name, resource.get("kind", "Model")]


def world_of(path: Path) -> World:
    example = yaml.safe_load(path.read_text())
    resource, observed = example["resource"], example.get("observed", [])
    mine = [obj for obj in observed if key(obj) == key(resource)] + example.get("children", [])
    settings = Settings(system_namespace=SYSTEM, authors=Authors.as_upstream())
    known = {(obj["kind"], *key(obj)): obj for obj in [*observed, *_configuration(example)]}
    references = api_of(path).references(resource, settings)
    return World(
        resource=resource,
        children={(obj["kind"], obj["metadata"]["name"]): obj for obj in mine if obj["kind"] != "Pod"},
        pods=[obj for obj in observed if obj["kind"] == "Pod"],
        routed=[routed_service(obj) for obj in observed if ROUTE in obj["metadata"].get("labels", {})],
        settings=settings,
        controller_key=CONTROLLER_KEY,
        now=NOW,
        referenced={
            reference: known[place]
            for reference in references
            if (place := (reference.kind.kind, reference.namespace, reference.name)) in known
        },
        agents={pod: msgspec.convert(report, AgentReport) for pod, report in example.get("agents", {}).items()},
        kin=[resource, *example.get("kin", [])],
    )


def _configuration(example: dict[str, Any]) -> list[dict[str, Any]]:
    """KubeAI's system configuration, which an example gives as it is written."""
    if "config" not in example:
        return []
    metadata = {"name": "slipway-kubeai", "namespace": SYSTEM}
    return [{"kind": "ConfigMap", "metadata": metadata, "data": {"system.yaml": yaml.safe_dump(example["config"])}}]


def planned(api: Api, world: World) -> tuple[Plan | None, Refusal | None]:
    try:
        leaving = "deletionTimestamp" in world.resource["metadata"]
        return (api.finish(world) if leaving else api.plan(world)), None
    except Invalid as error:
        return None, Refusal(error.reason, error.message)


def beside_children(plan: Plan | None) -> dict[str, Any]:
    """What a plan wants beyond its children, those that are still to come among them, as far as it does."""
    told = msgspec.to_builtins(plan) if plan else {}
    return {field: value for field, value in told.items() if field not in ("children", "awaited") and value}


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
    api, world = api_of(path), world_of(path)
    plan, refusal = planned(api, world)
    agrees(path.with_suffix(".children.yaml"), list(plan.children) if plan else [])
    agrees(path.with_suffix(".status.yaml"), api.status(world, refusal).status)
    wanted = path.with_suffix(".plan.yaml")
    if beside_children(plan) or wanted.exists():
        agrees(wanted, beside_children(plan))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_planning_twice_gives_the_same(path: Path) -> None:
    api, world = api_of(path), world_of(path)
    assert planned(api, world) == planned(api, world)
