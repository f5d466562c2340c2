"""Events: their names are valid, whatever the object is called, and namespaces share the queue."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from slipway.kube.api.errors import UnreachableError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import POD, Kind, Object
from slipway.kube.writes.events import Recorder

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST = 253
"""Characters of a name, as the API server takes them."""


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a.b-c",
        "a" * 229,
        "a" * 230,
        "a" * 253,
        f"{'a' * 229}-{'b' * 20}",
        f"{'a' * 229}.{'b' * 20}",
        f"{'a' * 227}---{'b' * 20}",
        f"{'a' * 228}.b.{'c' * 20}",
        ("a-" * 120) + "b",
        ("a." * 120) + "b",
    ],
    ids=len,
)
def test_the_name_of_an_event_is_valid(name: str) -> None:
    client: Any = None
    recorder = Recorder(client, "test", metrics=Metrics())
    metadata = {"namespace": "models", "name": name, "uid": "u", "resourceVersion": "1"}
    event = recorder._event(POD, {"metadata": metadata}, "Normal", "Ready", "It answers.")
    assert SUBDOMAIN.fullmatch(name), "a name that an object may have"
    assert SUBDOMAIN.fullmatch(event["metadata"]["name"])
    assert len(event["metadata"]["name"]) <= LONGEST


class Written:
    """Notes which Events are created. The first ``down`` attempts fail."""

    def __init__(self, down: int = 0) -> None:
        self.events: list[Object] = []
        self.down = down
        self.awaited, self.reached = 0, asyncio.Event()

    async def create(self, _kind: Kind, event: Object) -> None:
        if self.down:
            self.down -= 1
            raise UnreachableError("down")
        self.events.append(event)
        if len(self.events) == self.awaited:
            self.reached.set()


def pod(namespace: str, number: int) -> Object:
    metadata = {"namespace": namespace, "name": f"p{number}", "uid": f"{namespace}-{number}", "resourceVersion": "1"}
    return {"metadata": metadata}


async def written(recorder: Recorder, client: Written, number: int) -> list[str]:
    """``namespace name`` of the first events that are written."""
    client.awaited = number
    task = asyncio.create_task(recorder.run())
    try:
        async with asyncio.timeout(60):
            await client.reached.wait()
    finally:
        task.cancel()
    return [" ".join(one["involvedObject"][field] for field in ("namespace", "name")) for one in client.events[:number]]


def filled(client: Any, floods: int, *namespaces: str) -> tuple[Recorder, Metrics]:
    """With two events of ``mine``, then ``floods`` of each other namespace, then a third."""
    metrics = Metrics()
    recorder = Recorder(client, "test", metrics=metrics)
    for number in range(2):
        recorder.record(POD, pod("mine", number), "Normal", "Ready", "It answers.")
    for number in range(floods):
        for namespace in namespaces:
            recorder.record(POD, pod(namespace, number), "Warning", "Bad", "It does not answer.")
    recorder.record(POD, pod("mine", 2), "Normal", "Ready", "It answers.")
    return recorder, metrics


@pytest.mark.parametrize("namespaces", [("flood",), ("flood", "flood2", ""), tuple(f"flood{n}" for n in range(300))])
async def test_a_flood_of_one_namespace_pushes_out_its_own_events_and_delays_none(namespaces: tuple[str, ...]) -> None:
    client = Written()
    recorder, metrics = filled(client, 3000 // len(namespaces), *namespaces)
    assert metrics.events_dropped._value.get() == 3 + 3000 - 1000
    turns = len(namespaces) + 1
    names = await written(recorder, client, 3 * turns)
    assert [name for name in names if name.startswith("mine ")] == ["mine p0", "mine p1", "mine p2"]


async def test_the_oldest_events_of_a_namespace_are_dropped_and_the_latest_are_written() -> None:
    client = Written()
    recorder, _metrics = filled(client, 3000, "flood")
    names = await written(recorder, client, 1000)
    flood = [name for name in names if name.startswith("flood ")]
    assert flood == [f"flood p{number}" for number in range(2003, 3000)]


async def test_an_event_that_could_not_be_written_comes_first_again_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slipway.kube.writes.events._PAUSE_SECONDS", 0)
    client = Written(down=3)
    recorder, _metrics = filled(client, 0)
    assert await written(recorder, client, 3) == ["mine p0", "mine p1", "mine p2"]
    assert [one["count"] for one in client.events] == [1, 1, 1]
