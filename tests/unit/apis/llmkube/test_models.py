"""Every example in ``models/`` becomes the children, the plan and the status of its golden files.

An example has the ``resource``, the other Models of its namespace (``kin``), claims that are ``observed``, the
operator's ``settings``, and ``jobs``: of those that the Model wants, what became of them and of their pods.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slipway.apis.llmkube import names
from slipway.apis.llmkube.model import Models
from slipway.apis.llmkube.model_types import ModelStatus
from slipway.kube.conditions import timestamp
from slipway.kube.objects import deleting, key
from slipway.serving.agent import AgentReport
from slipway.serving.plan import Invalid, Plan, Refusal, World
from slipway.serving.settings import Settings

from ..test_golden import NOW, agrees, beside_children

EXAMPLES = sorted(path for path in (Path(__file__).parent / "models").glob("*.yaml") if "." not in path.stem)


def example(path: Path) -> World:
    written = yaml.safe_load(path.read_text())
    resource, settings = written["resource"], msgspec.convert(written.get("settings", {}), Settings)
    known = {(obj["kind"], *key(obj)): obj for obj in written.get("observed", [])}
    world = World(
        resource=resource,
        children={},
        pods=[],
        routed=[],
        settings=settings,
        now=NOW,
        referenced={
            reference: known[place]
            for reference in Models().references(resource, settings)
            if (place := (reference.kind.kind, reference.namespace, reference.name)) in known
        },
        kin=[resource, *written.get("kin", [])],
        agents={pod: msgspec.convert(report, AgentReport) for pod, report in written.get("agents", {}).items()},
    )
    return with_jobs(world, written.get("jobs", {}))


def with_jobs(world: World, told: dict[str, Any]) -> World:
    """The Jobs that the Model wants, as the cluster has them a while later."""
    children, pods = {}, []
    plan, _refusal = planned(world)
    wanted = {child["metadata"]["name"]: child for child in plan.children} if plan else {}
    for what, found in told.items():
        name = names.job_name(world.resource["metadata"]["name"], what)
        job = copy.deepcopy(wanted[name])
        job["metadata"] |= {"uid": f"uid-of-{what}", "creationTimestamp": found.get("created", "2026-11-21T09:00:00Z")}
        if "ended" in found:
            at = {"status": "True", "lastTransitionTime": found.get("at", "2026-11-21T09:04:00Z")}
            job["status"] = {"conditions": [{"type": found["ended"], **at}]}
        children["Job", name] = job
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-of-{what}", "controller": True}
        pods += [_pod(number, one, owner) for number, one in enumerate(found.get("pods", []))]
    return msgspec.structs.replace(world, children=children, pods=pods)


def _pod(number: int, status: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": f"loader-{number}",
        "namespace": "models",
        "uid": f"uid-of-pod-{number}",
        "creationTimestamp": timestamp(NOW - 200 + number),
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "status": status}


def planned(world: World) -> tuple[Plan | None, Refusal | None]:
    try:
        return (Models().finish(world) if deleting(world.resource) else Models().plan(world)), None
    except Invalid as error:
        return None, Refusal(error.reason, error.message)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_becomes_what_its_golden_files_say(path: Path) -> None:
    world = example(path)
    plan, refusal = planned(world)
    verdict = Models().status(world, refusal)
    agrees(path.with_suffix(".children.yaml"), list(plan.children) if plan else [])
    agrees(path.with_suffix(".plan.yaml"), beside_children(plan) if plan else "nothing")
    agrees(path.with_suffix(".status.yaml"), {"status": verdict.status, "recheckSeconds": verdict.recheck_seconds})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_status_has_fields_of_its_schema_only(path: Path) -> None:
    world = example(path)
    status = Models().status(world, planned(world)[1]).status
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(status, ModelStatus))) == status
    assert all(condition["reason"] and condition["message"] for condition in status["conditions"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_planning_twice_gives_the_same(path: Path) -> None:
    world = example(path)
    assert planned(world) == planned(world)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_status_that_says_the_same_keeps_its_time(path: Path) -> None:
    world = example(path)
    refusal = planned(world)[1]
    first = Models().status(world, refusal).status
    later = msgspec.structs.replace(world, resource=world.resource | {"status": first}, now=NOW + 0.5)
    assert Models().status(later, refusal).status == first
