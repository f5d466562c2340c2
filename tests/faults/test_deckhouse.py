"""A Model of Deckhouse is published, delivered and deleted though the controller dies around any of its writes: row 4.

In a run the controller dies at each write of one stage that is unlike all before it, as in ``test_llmkube.py``.
``tests/unit/controller`` has a run for each write, against a scripted API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .deckhouse import DIGEST, SOURCE, DeckhouseRun
from .harness import Api, a_few_at_a_time, parameters
from .node import live_through_deaths

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive]

STAGES = {
    "publish": {"models", "jobs", "models/status"},
    "deliver": {"persistentvolumeclaims", "jobs", "deployments"},
    "delete": {"models", "jobs", "models/status", "deployments", "persistentvolumeclaims"},
}
"""What is certainly written in each stage, whatever else is."""
Lives = dict[tuple[str, bool], asyncio.Task[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def undisturbed(api: Api, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The Deployment and its claim after each step of a life without a death."""
    async with DeckhouseRun(api, tmp_path_factory.mktemp("undisturbed")) as run:
        await run.controller.start()
        await run.life()
    was_brought_once(run)
    run.no_child_was_deleted()
    return run.snapshots


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lives(
    api: Api, undisturbed: list[list[str]], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lives]:
    """The chosen lives."""

    async def one(case: tuple[str, bool]) -> None:
        async with DeckhouseRun(api, tmp_path_factory.mktemp("life")) as run:
            await a_life_ends_well(run, undisturbed, *case)

    async with a_few_at_a_time(parameters(request.session.items, "deckhouse_dies_in", "after"), one) as running:
        yield running


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("deckhouse_dies_in", STAGES)
async def test_row_4_a_model_is_published_delivered_and_deleted_though_the_controller_dies(
    lives: Lives, deckhouse_dies_in: str, after: bool
) -> None:
    await lives[deckhouse_dies_in, after]


async def a_life_ends_well(run: DeckhouseRun, undisturbed: list[list[str]], stage: str, after: bool) -> None:
    await live_through_deaths(run, stage, STAGES[stage], after=after)
    assert run.snapshots == undisturbed
    was_brought_once(run)
    run.no_child_was_deleted()


def was_brought_once(run: DeckhouseRun) -> None:
    """Published by one Job, and pulled by one, by its digest."""
    assert run.publications == [SOURCE]
    assert [pulled.rpartition("@")[2] for pulled in run.pulls] == [DIGEST]
