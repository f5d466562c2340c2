"""Status, conditions and events: written when they say something new, and never over someone else's news."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web

from slipway.kube.api.errors import ConflictError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import EVENT, POD, Key
from slipway.kube.schemas.conditions import LONGEST_MESSAGE, Condition, find, merge
from slipway.kube.writes.events import MESSAGE_BYTES, Recorder
from slipway.kube.writes.status import StatusWriter

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
A = Key("default", "a")


@pytest.fixture
async def informer(server, client, start):
    await server.put(f"{PODS}/a", status={"phase": "Old"})
    new_informer = Informer(client, POD)
    start(new_informer.run())
    await new_informer.synced.wait()
    return new_informer


async def test_a_status_is_replaced_when_it_differs_and_seen_by_the_next_turn(server, client, informer):
    expectations = Expectations()
    writer = StatusWriter(client, informer, expectations, field_manager="m")
    assert await writer.write(informer.store.get(A), {"phase": "New"}) is True
    await expectations.wait_until_observed(informer.store.get(A)["metadata"]["uid"])
    assert informer.store.get(A)["status"] == {"phase": "New"}
    assert await writer.write(informer.store.get(A), {"phase": "New"}) is False
    (write,) = server.writes
    assert (write.path, write.query) == (f"{PODS}/a/status", {"fieldManager": "m"})


async def test_row_19_a_status_computed_from_old_news_is_refused(server, client, informer):
    old = informer.store.get(A)
    await server.put(f"{PODS}/a", status={"phase": "Newer"})
    with pytest.raises(ConflictError):
        await StatusWriter(client, informer, Expectations(), field_manager="m").write(old, {"phase": "New"})
    assert server.objects[f"{PODS}/a"]["status"] == {"phase": "Newer"}


async def test_row_26_fields_that_the_server_drops_are_not_sent_for_ever(server, client, informer, eventually):
    async def prune(request):
        steps = await request.json()
        current = server.objects[f"{PODS}/a"]
        stored = await server.store(f"{PODS}/a", {**current, "status": {"phase": steps[-1]["value"]["phase"]}})
        return web.json_response(stored)

    server.fault("PATCH", "/status", prune, times=9)
    writer = StatusWriter(client, informer, Expectations(), field_manager="m")
    status = {"phase": "New", "unknown": 1}
    assert await writer.write(informer.store.get(A), status) is True
    await eventually(lambda: informer.store.get(A)["status"] == {"phase": "New"})
    assert await writer.write(informer.store.get(A), status) is False


async def test_a_resource_that_is_gone_needs_no_status(server, client, informer):
    old = informer.store.get(A)
    await server.remove(f"{PODS}/a")
    assert await StatusWriter(client, informer, Expectations(), field_manager="m").write(old, {"x": 1}) is False


def test_the_transition_time_moves_only_with_the_status():
    first = merge([], [Condition("Ready", "False", "Starting", "wait", observed_generation=1)], 1_700_000_000)
    assert first[0]["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    second = merge(first, [Condition("Ready", "False", "Pulling", "pull", observed_generation=2)], 1_800_000_000)
    assert second[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert second[0]["reason"] == "Pulling"
    third = merge(second, [Condition("Ready", "True", "Ready")], 1_800_000_000)
    assert third[0]["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    assert merge(third, [msgspec.convert(third[0], Condition)], 1_900_000_000) == third


def test_conditions_keep_the_new_order_and_drop_what_is_no_longer_said():
    old = merge([], [Condition("A", "True"), Condition("B", "True")], 0)
    assert [one["type"] for one in merge(old, [Condition("C", "True"), Condition("A", "True")], 1)] == ["C", "A"]
    assert find({"status": {"conditions": old}}, "B") == old[1]
    assert find({}, "B") is None


def test_conditions_of_other_writers_stay_as_they_are_behind_ours():
    theirs = {"type": "Theirs", "status": "True", "reason": "Any", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    old = [theirs, *merge([], [Condition("A", "True"), Condition("B", "True")], 0)]
    merged = merge(old, [Condition("B", "False")], 1, ours=frozenset({"A", "B"}))
    assert [one["type"] for one in merged] == ["B", "Theirs"]
    assert merged[1] == theirs
    assert merge(merged, [Condition("B", "False")], 2, ours=frozenset({"A", "B"})) == merged


def test_a_message_that_the_api_server_would_refuse_is_cut_and_still_the_same_the_next_time():
    condition = Condition("Ready", "False", "Wrong", "x" * 50_000)
    status = {"conditions": merge([], [condition], 0)}
    assert len(status["conditions"][0]["message"]) == LONGEST_MESSAGE
    assert merge(status["conditions"], [condition], 1_700_000_000) == status["conditions"]


async def test_an_event_that_repeats_is_counted(server, client, metrics, start, eventually):
    pod = await server.put(f"{PODS}/a")
    recorder = Recorder(client, "tester", metrics=metrics)
    start(recorder.run())
    recorder.record(POD, pod, "Warning", "Broken", "it broke")
    await eventually(lambda: server.requests("POST", "events"))
    recorder.record(POD, pod, "Warning", "Broken", "it broke")
    recorder.record(POD, pod, "Warning", "Broken", "it broke")
    recorder.record(POD, pod, "Normal", "Fixed", "it works")
    await eventually(lambda: len(_events(server)) == 2 and _events(server)["Broken"]["count"] == 3)
    written = _events(server)["Broken"]
    assert written["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert (written["type"], written["message"], written["source"]) == ("Warning", "it broke", {"component": "tester"})
    assert len(server.writes) == 3


def _events(server):
    return {obj["reason"]: obj for path, obj in server.objects.items() if path.startswith(EVENTS)}


async def test_a_new_process_counts_the_events_of_the_old_one_on(server, client, metrics, start, eventually):
    pod = await server.put(f"{PODS}/a")
    first, second = (Recorder(client, "tester", metrics=metrics) for _unused in range(2))
    start(first.run())
    first.record(POD, pod, "Normal", "Made", "made")
    await eventually(lambda: _events(server))
    start(second.run())
    second.record(POD, pod, "Normal", "Made", "made")
    await eventually(lambda: _events(server)["Made"]["count"] == 2)


async def test_an_event_that_expired_is_recreated(server, client, metrics, start, eventually):
    pod = await server.put(f"{PODS}/a")
    recorder = Recorder(client, "tester", metrics=metrics)
    start(recorder.run())
    recorder.record(POD, pod, "Normal", "Made", "made")
    await eventually(lambda: _events(server))
    await eventually(lambda: recorder._counts)
    server.objects.pop(next(path for path in server.objects if path.startswith(EVENTS)))
    recorder.record(POD, pod, "Normal", "Made", "made")
    await eventually(lambda: _events(server))


async def test_events_are_bounded_in_length_and_number_and_never_fail_the_caller(
    server, client, metrics, start, eventually, script
):
    pod = await server.put(f"{PODS}/a")
    server.fault("POST", "events", script.refuse(403, "Forbidden"), times=10**6)
    recorder = Recorder(client, "tester", metrics=metrics)
    for number in range(3000):
        recorder.record(POD, pod, "Normal", "Many", f"{number} " + "é" * 2000)
    assert len(recorder._waiting) == 1000
    assert all(len(one.event["message"].encode()) <= MESSAGE_BYTES for one in recorder._waiting)
    start(recorder.run())
    await eventually(lambda: b"events_dropped_total 3000.0" in metrics.text())


async def test_events_wait_for_a_server_that_is_away(server, client, metrics, start, eventually, script):
    pod = await server.put(f"{PODS}/a")
    server.fault("POST", "events", script.hang_up, times=1)
    recorder = Recorder(client, "tester", metrics=metrics)
    start(recorder.run())
    recorder.record(EVENT, pod, "Normal", "Made", "made")
    await eventually(lambda: _events(server))
