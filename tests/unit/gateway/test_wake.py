"""Scaling models from zero: when, with which writes, and after errors of the API server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from slipway.gateway.control import wake
from slipway.gateway.control.wake import Sleeper, Waker, find_sleepers
from slipway.gateway.haproxy.socket import NotRunningError
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.kube.api.errors import ApiError, ConflictError, ForbiddenError
from slipway.kube.objects import Key, Kind
from slipway.serving.routing.route import Route, ScaleTarget

TARGET = ScaleTarget("kubeai.org", "v1", "models", "llama")
SLEEPER = Sleeper("ns", TARGET)


class Api:
    """The scale subresource of one object. `failures` are raised by the next writes."""

    def __init__(self, replicas: int | None = None, *failures: ApiError) -> None:
        self.scale: dict[str, Any] = {
            "kind": "Scale",
            "metadata": {"namespace": "ns", "name": "llama", "resourceVersion": "7"},
            "spec": {} if replicas is None else {"replicas": replicas},
        }
        self.failures = list(failures)
        self.read: list[str] = []
        self.written: list[dict[str, Any]] = []

    async def get(self, kind: Kind, name: Key, *, subresource: str = "") -> dict[str, Any]:
        self.read.append(kind.path(*name, subresource))
        return self.scale

    async def replace(self, kind: Kind, obj: dict[str, Any], **options: Any) -> dict[str, Any]:
        assert options["subresource"] == "scale"
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(obj)
        self.scale = obj
        return obj


def table(*endpoints: str) -> RoutingTable:
    """A model, its adapter, and a model without a scale target."""
    backends = [
        Backend("ns", "model-llama", endpoints, Route(scale=TARGET)),
        Backend("ns", "model-llama-fr", (), Route(scale=TARGET)),
        Backend("ns", "fixed", (), Route()),
    ]
    return RoutingTable({backend.name: backend for backend in backends}, {}, {}, ())


def ignore(_backend: Backend, _message: str) -> None:
    """Replaces a report that a test does not need."""


async def run_until(
    condition: Callable[[], bool],
    api: Api,
    waiting: dict[str, int],
    current: Callable[[], RoutingTable] = table,
    turns: list[int] | None = None,
) -> list[str]:
    """Runs the waker until the condition holds and returns the reported refusals. ``turns`` grows by one per check."""
    refusals: list[str] = []

    async def count_waiting() -> dict[str, int]:
        if turns is not None:
            turns.append(len(turns))
        return waiting

    def report(backend: Backend, message: str) -> None:
        refusals.append(f"{backend.name} {message}")

    waker = Waker(api, count_waiting, report, ignore)  # type: ignore[arg-type]
    kept = current()
    task = asyncio.create_task(waker.run(lambda: kept))
    await until(condition)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return refusals


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the condition is in another task
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "_POLL_SECONDS", 0.005)
    monkeypatch.setattr(wake, "_RETRY_SECONDS", 0.1)


def test_only_backends_with_a_scale_target_and_without_endpoints_can_be_woken() -> None:
    assert find_sleepers(table()) == {"ns:model-llama": SLEEPER, "ns:model-llama-fr": SLEEPER}
    assert find_sleepers(table("10.0.0.1:80")) == {"ns:model-llama-fr": SLEEPER}


@pytest.mark.parametrize("replicas", [None, 0])
async def test_a_scale_of_zero_becomes_one_with_the_version_that_was_read(replicas: int | None) -> None:
    api = Api(replicas)
    assert await wake.wake(api, SLEEPER)  # type: ignore[arg-type]
    assert api.read == ["/apis/kubeai.org/v1/namespaces/ns/models/llama/scale"]
    assert [(obj["spec"], obj["metadata"]["resourceVersion"]) for obj in api.written] == [({"replicas": 1}, "7")]


async def test_a_scale_that_is_not_zero_is_left_alone() -> None:
    api = Api(3)
    assert not await wake.wake(api, SLEEPER)  # type: ignore[arg-type]
    assert api.written == []


async def test_a_wake_up_is_reported_once_with_the_waiting_requests_of_the_model_and_its_adapters() -> None:
    api, reports = Api(0), []

    async def waiting() -> dict[str, int]:
        return {"ns:model-llama": 5, "ns:model-llama-fr": 1, "ns:fixed": 3}

    waker = Waker(api, waiting, ignore, lambda _backend, message: reports.append(message))  # type: ignore[arg-type]
    asleep = table()
    task = asyncio.create_task(waker.run(lambda: asleep))
    await until(lambda: len(api.read) >= 2)
    task.cancel()

    assert reports == ["Scaled from 0 to 1 replica: 6 waiting requests."]


async def test_a_conflict_is_read_again_and_not_for_ever() -> None:
    api = Api(0, ConflictError("newer"))
    assert await wake.wake(api, SLEEPER)  # type: ignore[arg-type]
    assert len(api.read) == 2
    with pytest.raises(ConflictError):
        await wake.wake(Api(0, *[ConflictError("newer")] * 3), SLEEPER)  # type: ignore[arg-type]


async def test_a_model_is_tried_once_in_a_while_and_a_model_with_its_adapters_is_one() -> None:
    api = Api(0)
    began = time.monotonic()
    sleeping = {"ns:model-llama": 5, "ns:model-llama-fr": 1, "ns:fixed": 3}
    refusals = await run_until(lambda: len(api.read) >= 3, api, sleeping)
    assert refusals == []
    assert len(api.written) == 1
    assert time.monotonic() - began > 2 * 0.09


async def test_no_model_is_woken_without_requests() -> None:
    api = Api(0)
    turns: list[int] = []
    sleeping = {"ns:model-llama": 0, "ns:fixed": 2, "unknown:backend": 1}
    await run_until(lambda: len(turns) > 5, api, sleeping, turns=turns)
    assert api.read == []


async def test_haproxy_is_not_polled_while_no_model_is_asleep() -> None:
    requests = looked = 0

    def look(table: RoutingTable) -> RoutingTable:
        nonlocal looked
        looked += 1
        return table

    async def ask() -> dict[str, int]:
        nonlocal requests
        requests += 1
        raise NotRunningError("away")

    for current, expected in ((RoutingTable({}, {}, {}, ()), False), (table(), True)):
        task = asyncio.create_task(Waker(Api(), ask, ignore, ignore).run(partial(look, current)))  # type: ignore[arg-type]
        before = looked
        await until(lambda before=before: looked > before + 5)  # type: ignore[misc]
        assert bool(requests) is expected
        assert not task.done(), "HAProxy that does not answer ends nothing"
        task.cancel()


async def test_a_model_that_wakes_or_is_deleted_leaves_nothing_behind() -> None:
    reports: list[str] = []
    tables = {"asleep": table(), "awake": RoutingTable({}, {}, {}, ())}
    state = "asleep"

    async def waiting() -> dict[str, int]:
        return {"ns:model-llama": 1}

    api = Api(0, *(ForbiddenError("not yours") for _unused in range(10_000)))
    waker = wake.Waker(api, waiting, lambda _backend, message: reports.append(message), ignore)  # type: ignore[arg-type]
    task = asyncio.create_task(waker.run(lambda: tables[state]))
    await until(lambda: bool(reports))
    state = "awake"
    await until(lambda: not waker._reported)
    state = "asleep"
    await until(lambda: len(reports) == 2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert reports[0] == reports[1]


async def test_a_refusal_is_reported_once_and_retried() -> None:
    api = Api(0, ForbiddenError("not yours"), ForbiddenError("not yours"))
    refusals = await run_until(lambda: bool(api.written), api, {"ns:model-llama": 1})
    assert refusals == ["ns:model-llama models llama cannot be scaled from zero: not yours"]
    assert len(api.written) == 1


class BrokenApi(Api):
    """The first model's scale is invalid or never returned. The second model's scale is valid."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__(0)
        self.hangs = hangs
        self.tried = 0

    async def get(self, kind: Kind, name: Key, *, subresource: str = "") -> dict[str, Any]:
        if name.name == "llama":
            self.tried += 1
            if self.hangs:
                await asyncio.Event().wait()
            return {"spec": None, "token": "s3cr3t"}
        return await super().get(kind, name, subresource=subresource)


def two_models() -> RoutingTable:
    other = Backend("ns", "model-other", (), Route(scale=ScaleTarget("kubeai.org", "v1", "models", "other")))
    return RoutingTable({**table().backends, other.name: other}, {}, {}, ())


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_unexpected_error_of_one_model_does_not_delay_others(
    hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    api, waiting = BrokenApi(hangs=hangs), {"ns:model-llama": 1}

    async def later() -> None:
        await until(lambda: api.tried > 0)
        waiting["ns:model-other"] = 1

    tries = 1 if hangs else 3
    refusals, _unused = await asyncio.gather(
        run_until(lambda: bool(api.written) and api.tried >= tries, api, waiting, two_models), later()
    )
    assert [obj["spec"] for obj in api.written] == [{"replicas": 1}]
    if hangs:
        assert refusals == []
    else:
        words = "models llama cannot be scaled from zero: AttributeError, see the gateway's log"
        assert refusals == [f"ns:model-llama {words}"]
        assert caplog.text.count("cannot be scaled") == caplog.text.count("Traceback") == 1
        assert "s3cr3t" not in caplog.text


async def test_an_unreadable_answer_about_waiting_requests_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, answers = Api(0), [ValueError("nonsense")] * 3

    async def ask() -> dict[str, int]:
        if answers:
            raise answers.pop()
        return {"ns:model-llama": 1}

    kept = table()
    task = asyncio.create_task(Waker(api, ask, ignore, ignore).run(lambda: kept))  # type: ignore[arg-type]
    await until(lambda: bool(api.written))
    assert not task.done()
    task.cancel()
    assert len(api.written) == 1
    assert [record.levelno for record in caplog.records if "waiting requests" in record.message] == [logging.ERROR]
