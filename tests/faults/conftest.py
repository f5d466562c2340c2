"""Fixtures of the fault tests. All run in one event loop, since slow runs go on next to each other."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from slipway.kube.api.credentials import Credentials

from .harness import Api, Run, parameters
from .slow import SLOW

INSTALLED = ("deployment/slipway-controller", "--namespace", "slipway-system")


@pytest.fixture(scope="session")
def alone(kubeconfig: str) -> Iterator[None]:
    """An installed controller rests meanwhile: it would do what the tests keep theirs from doing."""
    kubectl = ("kubectl", "--kubeconfig", kubeconfig)
    process = subprocess.run(
        [*kubectl, "get", *INSTALLED, "--ignore-not-found", "--output", "jsonpath={.spec.replicas}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    if not process.stdout:
        yield
        return
    subprocess.run([*kubectl, "scale", *INSTALLED, "--replicas", "0"], check=True, timeout=120)
    subprocess.run([*kubectl, "rollout", "status", *INSTALLED, "--timeout", "180s"], check=True, timeout=240)
    yield
    subprocess.run([*kubectl, "scale", *INSTALLED, "--replicas", process.stdout], check=True, timeout=120)
    subprocess.run([*kubectl, "rollout", "status", *INSTALLED, "--timeout", "180s"], check=True, timeout=240)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api(kubeconfig: str, alone: None) -> AsyncIterator[Api]:
    credentials = await Credentials.find(kubeconfig)
    # Each watch of each controller keeps one; where they run out, leases of all of them end for want of an answer.
    async with credentials.session(further_connections=1000) as session:
        yield Api(credentials, session)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow runs come last. Each test may wait for several things, with patience for each."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))
    items.sort(key=lambda item: bool(parameters([item], "slow_run")))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def slow(
    api: Api, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """The chosen slow runs, by name."""

    async def one(name: str) -> None:
        async with Run(api, tmp_path_factory.mktemp("slow")) as run:
            await SLOW[name](run)

    running = {name: asyncio.create_task(one(name)) for (name,) in parameters(request.session.items, "slow_run")}
    yield running
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="session")
async def idle(api: Api, tmp_path: Path) -> AsyncIterator[Run]:
    """A run whose controller is not started yet."""
    async with Run(api, tmp_path) as run:
        yield run


@pytest_asyncio.fixture(loop_scope="session")
async def run(idle: Run) -> Run:
    """A run whose controller is starting."""
    await idle.controller.start()
    return idle


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def clean(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The scenario without any fault, once: what every other run must end like."""
    async with Run(api, tmp_path_factory.mktemp("clean")) as run:
        await run.controller.start()
        await run.scenario()
    return run
