"""Every example in ``golden/`` becomes the children, the plan and the status that its expected.txt says."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slipway.apis import APIS
from slipway.kube.objects import key
from slipway.serving.contract.api import Api, InvalidSpecError, Plan, Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.route import ROUTE, routed_service
from slipway.serving.wire.agent import AgentReport
from tests import documents, goldens, worlds
from tests.tables import each

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = goldens.examples(*GOLDEN.iterdir())
SYSTEM = "slipway-system"
CONTROLLER_KEY = "the-key-by-which-loaders-know-the-controllr"
NOW = datetime.fromisoformat("2026-11-21T09:05:00Z").timestamp()
WRITTEN = {"metadata_patches": "notes", "self_patch": "own"}
"""Fields of a Plan that golden files call otherwise."""


KINDS: dict[tuple[str, str], Api] = {(api.name, api.resource.kind.kind): api for api in APIS}


def api_of(path: Path) -> Api:
    """That of the folder, and of the resource's kind where it says one."""
    resource = documents.read(path)["resource"]
    return KINDS[path.parent.name, resource.get("kind", "Model")]


def world_of(path: Path) -> World:
    example = documents.read(path)
    resource, observed = example["resource"], example.get("observed", [])
    mine = [obj for obj in observed if key(obj) == key(resource)] + example.get("children", [])
    api, own = api_of(path), example.get("settings", {})
    settings = Settings(apis={path.parent.name: own}, system_namespace=SYSTEM, authors=worlds.UPSTREAM)
    watches = [watch for watch in api.watches(settings) if watch.listed]
    kinds = {watch.kind.kind: watch.kind for watch in watches if watch.owned}
    listed_kinds = {watch.kind.kind for watch in watches if not watch.owned}
    others = [
        obj for obj in [*observed, *_configuration(example)] if obj["kind"] in listed_kinds and obj["kind"] != "Pod"
    ]
    others += [resource, *example.get("related", [])]
    return World(
        resource=resource,
        children={(kinds[obj["kind"]], key(obj)): obj for obj in mine if obj["kind"] in kinds},
        pods=[obj for obj in observed if obj["kind"] == "Pod"],
        routed=[routed_service(obj) for obj in observed if ROUTE in obj["metadata"].get("labels", {})],
        settings=settings,
        controller_key=CONTROLLER_KEY,
        now=NOW,
        listers=worlds.known_world(api, settings, others=others),
        file=lambda _path: example.get("key", "").encode(),
        agents={pod: msgspec.convert(report, AgentReport) for pod, report in example.get("agents", {}).items()},
    )


def _configuration(example: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns KubeAI's system configuration, which an example contains as text."""
    if "config" not in example:
        return []
    metadata = {"name": "slipway-kubeai", "namespace": SYSTEM}
    return [{"kind": "ConfigMap", "metadata": metadata, "data": {"system.yaml": yaml.safe_dump(example["config"])}}]


def planned(api: Api, world: World) -> tuple[Plan | None, Rejection | None]:
    try:
        leaving = "deletionTimestamp" in world.resource["metadata"]
        return (worlds.finalize(api, world) if leaving else worlds.plan(api, world)), None
    except InvalidSpecError as error:
        return None, Rejection(error.reason, error.message)


def beside_children(plan: Plan | None) -> dict[str, Any]:
    """What a plan wants beyond its children, those that are still to come among them, as far as it does."""
    fields = _whole_kinds(msgspec.to_builtins(plan)) if plan else {"adapters": {"adapters": ()}}
    fields["adapters"] = fields["adapters"]["adapters"]
    nonempty_fields = {
        field: value for field, value in fields.items() if field not in ("children", "pending") and value
    }
    return {WRITTEN.get(field, field): value for field, value in nonempty_fields.items()}


def _whole_kinds(value: Any) -> Any:
    """Without a word of kinds for that their objects are whole, as nearly all are."""
    match value:
        case dict():
            return {name: _whole_kinds(one) for name, one in value.items() if (name, one) != ("metadata_only", False)}
        case list() | tuple():
            return [_whole_kinds(one) for one in value]
    return value


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_has_the_expected_outcome(path: Path) -> None:
    api, world = api_of(path), world_of(path)
    plan, rejection = planned(api, world)
    outcome = {"children": list(plan.children) if plan else [], "status": worlds.status(api, world, rejection).status}
    goldens.check(path, outcome | ({"plan": rest} if (rest := beside_children(plan)) else {}))


@each(EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_condition_is_of_a_type_that_the_api_calls_its_own(path: Path) -> None:
    """Others would never be removed."""
    written = goldens.expected(path)["status"].get("conditions", [])
    assert {condition["type"] for condition in written} <= api_of(path).condition_types


@each(EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_planning_twice_gives_the_same(path: Path) -> None:
    api, world = api_of(path), world_of(path)
    assert planned(api, world) == planned(api, world)
