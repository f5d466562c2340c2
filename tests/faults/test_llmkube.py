"""A Model of LLMKube and its service live well though the controller dies before or after any of its writes: row 4.

In a run the controller dies at each write of one stage that is unlike all before it. So six runs try them all; what
it knew before a death is lost with it, and so it does not matter that it had died before. ``tests/unit/controller``
has a run for each write, against a scripted API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .harness import Api, a_few_at_a_time, crash, parameters
from .llmkube import OTHER, SOURCE, LLMKubeRun
from .proxy import Exchange, Fault, unvaried

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive]

STAGES = {
    "create": {"models", "persistentvolumeclaims", "jobs", "services", "deployments", "models/status"},
    "change": {"models", "jobs", "deployments", "models/status", "inferenceservices/status"},
    "delete": {"models", "jobs"},
}
"""What is certainly written in each stage, whatever else is."""
SAMPLE = ("create", True)
"""The case that CI also runs."""
CASES = [
    pytest.param(
        stage,
        after,
        id=f"{stage}-{'after' if after else 'before'}",
        marks=[] if (stage, after) == SAMPLE else [pytest.mark.full],
    )
    for stage in STAGES
    for after in (False, True)
]
MOST_DEATHS = 40
Lives = dict[tuple[str, bool], asyncio.Task[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def undisturbed(api: Api, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The children after each step of a life without a death."""
    async with LLMKubeRun(api, tmp_path_factory.mktemp("undisturbed")) as run:
        await run.controller.start()
        await run.life()
    assert run.downloads == [SOURCE, OTHER]
    run.no_child_was_deleted()
    return run.snapshots


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lives(
    api: Api, undisturbed: list[list[str]], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lives]:
    """The chosen lives."""

    async def one(case: tuple[str, bool]) -> None:
        async with LLMKubeRun(api, tmp_path_factory.mktemp("life")) as run:
            await a_life_ends_well(run, undisturbed, *case)

    async with a_few_at_a_time(parameters(request.session.items, "dies_in", "after"), one) as running:
        yield running


@pytest.mark.parametrize(("dies_in", "after"), CASES)
async def test_row_4_a_model_and_its_service_live_well_though_the_controller_dies(
    lives: Lives, dies_in: str, after: bool
) -> None:
    await lives[dies_in, after]


async def a_life_ends_well(run: LLMKubeRun, undisturbed: list[list[str]], stage: str, after: bool) -> None:
    deaths = Fault(first_of_its_sort(stage), crash(run.controller, after=after), MOST_DEATHS)
    run.proxy.faults.append(deaths)
    await run.controller.start()
    await run.life()
    died_at = {exchange.label.removeprefix(f"{stage} ") for exchange in deaths.fired}
    assert died_at >= STAGES[stage], f"no such write: {sorted(STAGES[stage] - died_at)}"
    assert deaths.left, f"too many sorts of writes: {deaths.fired}"
    assert run.snapshots == undisturbed
    assert run.downloads == [SOURCE, OTHER], "loaded twice"
    run.no_child_was_deleted()


def first_of_its_sort(stage: str):
    """Matches each write of a stage that is unlike all that it has matched before."""
    had: set[tuple[str, str, bytes]] = set()

    def matches(exchange: Exchange) -> bool:
        if not (exchange.write and exchange.label.startswith(f"{stage} ")):
            return False
        sort = (exchange.method, exchange.label, unvaried(exchange.body))
        new = sort not in had
        had.add(sort)
        return new

    return matches
