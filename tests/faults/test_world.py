"""What other people and programs do to the objects: edits, deletions, taken names, refusals, bad specs.

Rows 24, 27, 30-32, 34, 35 and 45 of the table in README.md.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from .harness import Run, model
from .proxy import Exchange, Fault

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive, pytest.mark.full]

POISON = """
import sys
import msgspec
from slipway.apis.krypton.api import KRYPTON
from slipway.controller.main import main
plan = KRYPTON.plan
def poisoned(view):
    if view.world.resource["metadata"]["name"] == "poison":
        raise RuntimeError("a bug in plan")
    return plan(view)
msgspec.structs.force_setattr(KRYPTON, "plan", poisoned)
sys.exit(main(sys.argv[2:]))
"""


async def condition(run: Run, kind: str = "Accepted", name: str = "m") -> dict[str, str]:
    resource = await run.get("Model", name)
    conditions = (resource or {}).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


async def test_nothing_is_written_for_10_seconds_after_everything_settled(idle: Run) -> None:
    """I3."""
    await idle.started_with("m")
    await idle.rests()
    written = len(idle.proxy.writes)
    await asyncio.sleep(10)
    assert len(idle.proxy.writes) == written


async def test_a_restart_writes_nothing(idle: Run) -> None:
    await idle.started_with("m")
    await idle.rests()
    resource = await idle.get("Model")
    assert resource is not None
    uid = resource["metadata"]["uid"]
    before = {role: one["metadata"]["resourceVersion"] for role, one in (await idle.owned(uid)).items()}
    written = len(idle.proxy.writes)
    leases = len([one for one in idle.proxy.log if one.resource == "leases"])
    idle.controller.signal(9)
    await idle.until(idle.always(lambda: len([one for one in idle.proxy.log if one.resource == "leases"]) > leases + 2))
    await idle.settled()
    assert {role: one["metadata"]["resourceVersion"] for role, one in (await idle.owned(uid)).items()} == before
    assert len(idle.proxy.writes) == written


async def test_row_24_an_exceeded_quota_is_reported_with_its_message_and_causes_no_hot_loop(idle: Run) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/services": "0"}}}
    await idle.create("ResourceQuota", quota)
    await idle.until(lambda: _in_force(idle))
    await idle.controller.start()
    await idle.create("Model", model())

    async def is_reported() -> bool:
        return "exceeded quota" in (await condition(idle)).get("message", "")

    await idle.until(is_reported)
    assert await idle.get("Deployment") is not None
    await asyncio.sleep(2)
    assert [write.status for write in idle.proxy.writes if write.resource == "services"] == [403], "a hot loop"
    await idle.api.call("DELETE", idle.path("ResourceQuota", "none"))
    await idle.patch("Model", "m", {"spec": {"port": 9090}})
    await idle.settled()


async def _in_force(run: Run) -> bool:
    quota = await run.get("ResourceQuota", "none")
    return bool(quota and quota.get("status", {}).get("hard"))


async def test_row_24_a_selector_that_cannot_change_recreates_the_deployment(idle: Run) -> None:
    resource = await idle.create("Model", model())
    labels = {"made-by": "original"}
    owner = {
        "apiVersion": resource["apiVersion"],
        "kind": "Model",
        "name": "m",
        "uid": resource["metadata"]["uid"],
        "controller": True,
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    former = await idle.create(
        "Deployment",
        {
            "metadata": {"name": "m", "ownerReferences": [owner]},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        },
    )
    await idle.controller.start()
    await idle.settled()
    deployment = await idle.get("Deployment")
    assert deployment is not None
    assert deployment["metadata"]["uid"] != former["metadata"]["uid"]
    assert [write.method for write in idle.proxy.writes if write.resource == "deployments"].count("DELETE") == 1


async def test_row_27_owned_fields_come_back_once_and_foreign_ones_stay(idle: Run) -> None:
    await idle.started_with("m")
    await idle.rests()
    written = len(idle.proxy.writes)
    foreign = {"metadata": {"labels": {"theirs": "yes"}, "annotations": {"theirs": "too"}}}
    await idle.patch("Deployment", "m", foreign)
    await asyncio.sleep(1)
    assert len(idle.proxy.writes) == written
    await idle.patch("Deployment", "m", {"spec": {"replicas": 5}})
    await idle.until(lambda: _replicas(idle, 1))
    await idle.patch("Service", "m", {"metadata": {"labels": {"slipway.inference/route": None}}})
    await idle.settled()
    deployment = await idle.get("Deployment")
    assert deployment is not None
    assert deployment["metadata"]["labels"]["theirs"] == "yes"
    assert deployment["metadata"]["annotations"]["theirs"] == "too"
    restored = [write for write in idle.proxy.writes[written:] if write.label != "start models/status"]
    assert [write.resource for write in restored] == ["deployments", "services"]


async def _replicas(run: Run, number: int) -> bool:
    deployment = await run.get("Deployment")
    return deployment is not None and deployment["spec"]["replicas"] == number


async def test_row_30_a_taken_name_is_reported_and_its_object_neither_adopted_nor_deleted(idle: Run) -> None:
    labels = {"app": "theirs"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    theirs = await idle.create("Deployment", {"metadata": {"name": "m"}, "spec": spec})
    await idle.controller.start()
    await idle.create("Model", model())

    async def is_reported() -> bool:
        return (await condition(idle)).get("reason") == "NameTaken"

    await idle.until(is_reported)
    await idle.patch("Model", "m", {"spec": {"port": 9090}})
    await asyncio.sleep(1)
    await idle.delete("Model")
    await idle.until(idle.always(lambda: any(write.resource == "models" for write in idle.proxy.writes)))
    await asyncio.sleep(1)
    deployment = await idle.get("Deployment")
    assert deployment is not None
    assert deployment["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert deployment["spec"] == theirs["spec"]
    assert not deployment["metadata"].get("ownerReferences")


async def test_row_31_a_deleted_child_comes_back_once_it_is_really_gone(idle: Run) -> None:
    await idle.started_with("m")
    await idle.delete("Service")
    await idle.settled()
    await idle.patch("Deployment", "m", {"metadata": {"finalizers": ["test.io/stuck"]}})
    await idle.rests(1)
    written = len(idle.proxy.writes)
    await idle.delete("Deployment")
    await asyncio.sleep(1.5)
    tried = [write for write in idle.proxy.writes[written:] if write.resource == "deployments"]
    assert not tried, "written to an object that is being deleted"
    await idle.patch("Deployment", "m", {"metadata": {"finalizers": None}})
    await idle.settled()
    writes = [write for write in idle.proxy.writes[written:] if write.resource == "deployments"]
    assert [write.status for write in writes] == [201]


async def test_row_32_a_resource_deleted_while_its_children_are_made_leaves_none(idle: Run) -> None:
    async def delete_first(exchange: Exchange):
        await idle.patch("Model", "m", {"metadata": {"finalizers": None}})
        await idle.delete("Model")
        return await exchange.forward()

    idle.proxy.faults.append(Fault(lambda one: one.write and one.resource == "deployments", delete_first))
    await idle.controller.start()
    await idle.create("Model", model())
    await idle.until(idle.always(lambda: idle.proxy.faults[0].fired))
    await idle.gone()
    await asyncio.sleep(1)
    await idle.gone()


async def test_row_32_nothing_is_made_for_a_resource_that_is_being_deleted(idle: Run) -> None:
    kept = model()
    kept["metadata"]["finalizers"] = ["test.io/mine"]
    await idle.create("Model", kept)
    await idle.delete("Model")
    await idle.controller.start()
    await idle.leads()
    await asyncio.sleep(1)
    assert not idle.proxy.writes
    await idle.patch("Model", "m", {"metadata": {"finalizers": None}})
    await idle.gone()


async def test_row_34_a_spec_that_flips_ends_as_the_last_one_says(idle: Run) -> None:
    await idle.started_with("m")
    for number in range(10):
        await idle.patch("Model", "m", {"spec": {"minReplicas": 1 + number % 3}})
    await idle.settled()
    assert await _replicas(idle, 1)
    idle.no_child_was_deleted()


async def test_row_35_a_bad_spec_keeps_the_last_good_children_and_a_good_one_heals(idle: Run) -> None:
    await idle.started_with("m")
    before = await idle.get("Deployment")
    await idle.patch("Model", "m", {"spec": {"args": ["--port", "1"], "minReplicas": 3}})

    async def refused() -> bool:
        return (await condition(idle)).get("reason") == "InvalidSpec"

    await idle.until(refused)
    after = await idle.get("Deployment")
    assert before is not None
    assert after is not None
    assert after["spec"] == before["spec"]
    assert (await condition(idle))["observedGeneration"] == 2
    await idle.patch("Model", "m", {"spec": {"args": [], "minReplicas": 2}})
    await idle.settled()
    assert await _replicas(idle, 2)


async def test_row_45_a_bug_that_one_resource_meets_does_not_stop_the_others(idle: Run) -> None:
    await idle.controller.start(("-c", POISON))
    began = time.monotonic()
    await idle.create("Model", model("poison"))
    await idle.leads()
    await idle.until(idle.always(lambda: idle.controller.log.read_text().count("a bug in plan") >= 3))
    await idle.create("Model", model("good"))
    await idle.settled("good")
    assert idle.controller.exits == []
    # Retries pause for longer each time. A hot loop would make hundreds of attempts per second.
    assert idle.controller.log.read_text().count("a bug in plan") < 40 + 20 * (time.monotonic() - began)
