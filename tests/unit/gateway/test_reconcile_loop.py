"""The loop between a source and HAProxy: when it starts, and when the replica is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from slipway.gateway.control.reconcile_loop import _GATHER_SECONDS, ReconcileLoop
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.haproxy.socket import NotRunningError
from slipway.gateway.routing.table import EMPTY, Snapshot
from slipway.gateway.rules.jwks import VerificationKey


class DataPlane:
    """The part of a DataPlane that the loop uses."""

    def __init__(self, *failures: Exception, running: set[str] | None = None) -> None:
        self.failures, self.running = list(failures), running or set()
        self.applied: list[DesiredState] = []

    async def list_active_servers(self) -> set[str]:
        return self.running

    async def apply(self, state: DesiredState) -> None:
        if self.failures:
            raise self.failures.pop()
        self.applied.append(state)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the condition is in another task
            await asyncio.sleep(0.01)


async def turns(seconds: float) -> None:
    """Lets the loop run for twice as long, in ten steps. If the machine stalls, only one step is lost."""
    for _unused in range(10):
        await asyncio.sleep(seconds / 5)


@asynccontextmanager
async def running(dataplane: DataPlane, *, verifies: bool = False) -> AsyncIterator[ReconcileLoop]:
    loop = ReconcileLoop(dataplane, verifies_tokens=verifies)  # type: ignore[arg-type]
    task = asyncio.create_task(loop.run())
    yield loop
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_nothing_is_applied_before_the_source_has_published() -> None:
    dataplane = DataPlane()
    async with running(dataplane) as loop:
        loop.mark_changed()
        # Longer than the time for which the loop collects changes.
        await turns(_GATHER_SECONDS)
        assert (dataplane.applied, loop.ready) == ([], False)
        loop.publish(Snapshot(EMPTY, (("00FF", "alice"),)))
        await until(lambda: loop.ready)
        assert [state.keys for state in dataplane.applied] == [(("00FF", "alice"),)]


@pytest.mark.parametrize("running_servers", [set(), {"10.0.0.1:8000"}])
async def test_the_loop_waits_for_conditions_unless_haproxy_was_ready_before(running_servers: set[str]) -> None:
    dataplane, condition = DataPlane(running=running_servers), asyncio.Event()
    loop = ReconcileLoop(dataplane)  # type: ignore[arg-type]
    loop.add_condition(condition)
    loop.publish(Snapshot(EMPTY))
    task = asyncio.create_task(loop.run())
    await turns(_GATHER_SECONDS)
    assert loop.ready == bool(running_servers)
    condition.set()
    await until(lambda: loop.ready)
    task.cancel()


async def test_an_empty_table_makes_the_gateway_ready() -> None:
    async with running(DataPlane()) as loop:
        loop.publish(Snapshot(EMPTY))
        await until(lambda: loop.ready)


@pytest.mark.parametrize("keys", [(VerificationKey("a", "RS256", "PEM"),), ()], ids=["keys", "an unusable answer"])
async def test_the_gateway_is_ready_after_the_first_answer_of_the_issuer(keys: tuple[VerificationKey, ...]) -> None:
    dataplane = DataPlane()
    async with running(dataplane, verifies=True) as loop:
        loop.publish(Snapshot(EMPTY))
        await turns(_GATHER_SECONDS)
        assert (dataplane.applied, loop.ready) == ([], False)
        loop.set_verification_keys(keys)
        await until(lambda: loop.ready)
        assert [state.verification for state in dataplane.applied] == [keys]


async def test_a_refused_state_is_retried_before_the_gateway_is_ready() -> None:
    dataplane = DataPlane(NotRunningError("away"))
    async with running(dataplane) as loop:
        loop.publish(Snapshot(EMPTY))
        await until(lambda: not dataplane.failures)
        assert not loop.ready
        await until(lambda: loop.ready)


async def test_the_same_snapshot_again_is_not_applied_again() -> None:
    dataplane = DataPlane()
    async with running(dataplane) as loop:
        loop.publish(Snapshot(EMPTY))
        await until(lambda: loop.ready)
        loop.publish(Snapshot(EMPTY))
        await turns(_GATHER_SECONDS)
        assert len(dataplane.applied) == 1


async def test_a_replica_that_shuts_down_is_not_ready_until_it_resumes() -> None:
    dataplane = DataPlane()
    async with running(dataplane) as loop:
        loop.publish(Snapshot(EMPTY))
        await until(lambda: loop.ready)
        loop.set_leaving(True)
        assert not loop.ready
        await until(lambda: len(dataplane.applied) == 2)
        assert not dataplane.applied[-1].ready
        loop.set_leaving(False)
        assert loop.ready
