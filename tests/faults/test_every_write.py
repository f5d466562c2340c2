"""Every write of a scenario fails in every way, and each time the world ends as if nothing had happened.

Rows 1-4 and 19-22 of the table in README.md. The scenario creates, changes and deletes a Model; its writes are known by
name, and a learning run without faults keeps the list of names true.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio

from .harness import Api, Run, a_few_at_a_time, crash, model, parameters
from .proxy import Exchange, Fault, answer, drop, lose_answer, unvaried, writes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive]

WRITES = (
    "create serviceaccounts",
    "create services",
    "create deployments",
    "create models/status",
    "change services",
    "change deployments",
    "change models/status",
    "delete models",
)
SAMPLE = "create deployments"
"""The case that CI also runs."""


async def test_the_writes_of_the_scenario_are_these_and_no_more(clean: Run) -> None:
    counted = Counter(write.label for write in unlike(clean.proxy.writes))
    assert set(counted) == set(WRITES)
    assert not [label for label, number in counted.items() if number > (4 if "models" in label else 1)], counted
    refused = [write for write in clean.proxy.writes if write.status >= 300]
    assert not [write for write in refused if write.label != "delete models"], "it may be gone already"
    clean.no_child_was_deleted()


def unlike(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Removes status writes that repeat an earlier one: their number depends on the timing of Kubernetes."""
    had: set[tuple[str, str | None, bytes]] = set()
    chosen: list[Exchange] = []
    for write in exchanges:
        sort = (write.label, write.name, unvaried(write.body))
        if sort not in had or not write.label.endswith("/status"):
            chosen.append(write)
        had.add(sort)
    return chosen


FAULTS = {
    "crash before": lambda run: crash(run.controller, after=False),
    "crash after": lambda run: crash(run.controller, after=True),
    "answer lost": lambda _unused: lose_answer,
    "connection lost": lambda _unused: drop,
    "409": lambda _unused: answer(409, "Conflict"),
    "429": lambda _unused: answer(429, "TooManyRequests", headers={"Retry-After": "1"}),
    "500": lambda _unused: answer(500, "InternalError"),
}


Cases = dict[tuple[str, str], asyncio.Task[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cases(
    api: Api, clean: Run, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cases]:
    """The chosen cases."""

    async def one(case: tuple[str, str]) -> None:
        async with Run(api, tmp_path_factory.mktemp("case")) as run:
            await the_world_ends_as_without_the_fault(clean, run, *case)

    async with a_few_at_a_time(parameters(request.session.items, "label", "fault"), one) as running:
        yield running


@pytest.mark.parametrize(
    "label", [label if label == SAMPLE else pytest.param(label, marks=pytest.mark.full) for label in WRITES]
)
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_world_ends_as_without_the_fault(cases: Cases, label: str, fault: str) -> None:
    await cases[label, fault]


async def the_world_ends_as_without_the_fault(clean: Run, run: Run, label: str, fault: str) -> None:
    injected = Fault(writes(label), FAULTS[fault](run))
    run.proxy.faults.append(injected)
    await run.controller.start()
    await run.scenario()
    assert injected.fired, "the scenario has no such write"
    for lines, expected in zip(run.snapshots, clean.snapshots, strict=True):
        assert lines == expected
    run.no_child_was_deleted()
    await run.until(run.always(lambda: len(run.controller.exits) == fault.startswith("crash")), what="wrong exits")
    again = [write for write in run.proxy.writes if write.label == label and write.at > injected.fired[0].at]
    assert len(unlike(again)) <= 4
    if fault == "429":
        same = [write for write in again if write.name == injected.fired[0].name]
        assert all(write.at - injected.fired[0].at >= 0.95 for write in same), "Retry-After was not waited for"
    if fault == "409":
        # Ignore unrelated complaints, such as a lease that was not renewed in time.
        about = [text for text in run.controller.complaints() if f"{run.namespace}/m" in text]
        assert len(about) <= 2


@pytest.mark.full
async def test_row_21_one_key_that_always_fails_does_not_stop_the_others(run: Run) -> None:
    await run.leads()
    failing = Fault(lambda one: one.write and one.name == "bad", answer(500, "InternalError"), 10**6)
    run.proxy.faults.append(failing)
    await run.create("Model", model("bad"))
    await run.until(run.always(lambda: len(failing.fired) >= 3), what="no retries")
    await run.create("Model", model("good"))
    await run.until(lambda: run.has_children("good"), what="the other one waits")
    # Three children, each retried with increasing pauses. A hot loop would make hundreds of attempts per second.
    elapsed = failing.fired[-1].at - failing.fired[0].at
    assert len(failing.fired) < 40 + 20 * elapsed
    failing.left = 0
    await run.settled("bad", "good")
