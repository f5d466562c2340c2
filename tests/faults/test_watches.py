"""What reading can suffer: outages, ended, expired, broken, silent and lagging watches, lists from the past.

Rows 6-10, 13-15 and 23 of the table in README.md. After each of them the controller knows the world again (a change
that is made during the fault or after it takes effect), and it did not storm the API server.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from .harness import Run, model, rate
from .proxy import Action, Fault, answer, drop, line

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive, pytest.mark.full]

KINDS = ("serviceaccounts", "services", "deployments", "pods", "models")


async def change(run: Run, port: int = 9090) -> None:
    await run.patch("Model", "m", {"spec": {"port": port}})


def is_watch(exchange) -> bool:
    return exchange.watch


async def test_row_6_an_api_server_that_is_away_for_5_seconds(idle: Run) -> None:
    await idle.started_with("m")
    memory = idle.controller.resident_bytes
    away = Fault(lambda one: one.resource != "leases", answer(503, "ServiceUnavailable"), 10**6)
    idle.proxy.faults.append(away)
    idle.proxy.cut()
    await change(idle)
    await asyncio.sleep(5)
    away.left = 0
    for kind in KINDS:
        requests = [one for one in away.fired if one.resource == kind]
        assert rate(requests) <= 5, kind
    await idle.settled()
    assert idle.controller.exits == []
    assert idle.controller.resident_bytes < memory + 2**24
    idle.no_child_was_deleted()


async def test_row_7_watches_that_end_cleanly_miss_nothing(idle: Run) -> None:
    await idle.started_with("m")
    listed = len(idle.lists())
    for number in range(8):
        await change(idle, 9000 + number)
        idle.proxy.cut()
        await asyncio.sleep(0.2)
    await idle.settled()
    assert len(idle.lists()) == listed


EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
BROKEN_STREAMS: dict[str, Action] = {
    "row 8: 410 as an event": line({"type": "ERROR", "object": EXPIRED}),
    "row 9: 410 as HTTP": answer(410, "Expired"),
    "row 10: error event 500": line({"type": "ERROR", "object": {**EXPIRED, "code": 500, "reason": "InternalError"}}),
    "row 10: unknown event": line({"type": "SURPRISE", "object": {}}),
}


@pytest.mark.parametrize("action", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS.keys())
async def test_rows_8_to_10_a_watch_that_fails_is_taken_up_again(idle: Run, action: Action) -> None:
    await idle.started_with("m")
    for kind in KINDS:
        idle.proxy.faults.append(Fault(lambda one, kind=kind: one.watch and one.resource == kind, action, 1))
    listed = len(idle.lists())
    idle.proxy.cut()
    await change(idle)
    await idle.settled()
    again = len(idle.lists()) - listed
    assert again == (len(KINDS) if action in list(BROKEN_STREAMS.values())[:2] else 0)
    assert idle.controller.exits == []


async def test_row_9_a_list_starts_again_when_its_remaining_pages_expire(idle: Run) -> None:
    idle.proxy.page = 1
    idle.proxy.faults.append(Fault(lambda one: "continue" in one.query, answer(410, "Expired")))
    for name in ("a", "b", "c"):
        await idle.create("Model", model(name))
    await idle.controller.start()
    await idle.settled("a", "b", "c")
    assert idle.proxy.faults[0].fired


async def test_row_13_an_object_that_was_made_again_during_an_outage_is_a_new_one(idle: Run) -> None:
    await idle.started_with("m")
    away = Fault(lambda one: one.resource != "leases", drop, 10**6)
    idle.proxy.faults.append(away)
    idle.proxy.cut()
    former = await idle.get("Model")
    assert former is not None
    await idle.patch("Model", "m", {"metadata": {"finalizers": None}})
    await idle.delete("Model")
    await idle.create("Model", model(port=9191))
    away.left = 0
    await idle.settled()
    assert not await idle.owned(former["metadata"]["uid"])
    idle.no_child_was_deleted()


async def test_row_14_watches_that_lag_lead_to_no_second_object_and_no_deletion(idle: Run) -> None:
    idle.proxy.delay = 2.0
    await idle.controller.start()
    await idle.scenario()
    idle.no_child_was_deleted()
    counted = [write.label for write in idle.proxy.writes]
    assert all(counted.count(label) <= 4 for label in counted), counted
    assert counted.count("create deployments") == 1


async def test_row_15_a_list_from_the_past_undoes_nothing(idle: Run) -> None:
    await idle.started_with("m")
    past = await idle.api.call("GET", idle.path("Model"))
    children = {kind: await idle.api.call("GET", idle.path(kind)) for kind in ("Deployment", "Service")}
    await change(idle)
    await idle.settled()
    await idle.rests()
    written, listed = len(idle.proxy.writes), len(idle.lists("models"))
    idle.proxy.past = {"models": json.dumps(past).encode()}
    idle.proxy.past |= {"deployments": json.dumps(children["Deployment"]).encode()}
    idle.proxy.past |= {"services": json.dumps(children["Service"]).encode()}
    expired = Fault(is_watch, answer(410, "Expired"), 9)
    idle.proxy.faults.append(expired)
    idle.proxy.cut()
    await idle.until(idle.always(lambda: len(idle.lists("models")) > listed), what="the models are not listed again")
    # The next Model is reconciled after those of the list.
    await idle.create("Model", model("later"))
    await idle.until(lambda: idle.has_children("later"), what="the next Model is not reconciled")
    assert {write.name for write in idle.proxy.writes[written:]} == {"later"}
    idle.proxy.past = {}
    await change(idle, 9292)
    await idle.settled()
    idle.no_child_was_deleted()


async def test_row_23_a_token_that_was_rotated(idle: Run) -> None:
    idle.proxy.token = "first"
    await idle.started_with("m")
    idle.controller.token.write_text("second")
    idle.proxy.token = "second"
    await change(idle)
    await idle.settled()
    assert idle.controller.exits == []


async def test_row_23_a_lost_right_for_one_kind_is_reported_and_the_other_kinds_continue(idle: Run) -> None:
    lost = Fault(lambda one: one.write and one.resource == "services", answer(403, "Forbidden", "no right"), 10**6)
    idle.proxy.faults.append(lost)
    await idle.controller.start()
    await idle.create("Model", model())

    async def is_reported() -> bool:
        resource = await idle.get("Model")
        conditions = (resource or {}).get("status", {}).get("conditions", [])
        return any(one["reason"] == "Forbidden" and "no right" in one["message"] for one in conditions)

    await idle.until(is_reported)
    assert await idle.get("Deployment") is not None
    await asyncio.sleep(1)
    assert len(lost.fired) == 1, "a hot loop"
    lost.left = 0
    await change(idle)
    await idle.settled()
