"""Leader election: never two leaders, a quick hand-over, and no trust in anybody's wall clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from slipway.kube.api.client import Client
from slipway.kube.runtime.lease import LeaderElector, LeadershipLostError

from .conftest import PATIENCE

LEASES = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
PATH = f"{LEASES}/boss"


@pytest.fixture
def elect(client, metrics):
    def make(identity, **times):
        quick = {"lease_seconds": 1.0, "renew_seconds": 0.6, "retry_seconds": 0.1, **times}
        return LeaderElector(client, "system", "boss", metrics=metrics, identity=identity, **quick)

    return make


LASTING = {"lease_seconds": 900.0, "renew_seconds": 600.0}
"""Nothing in a test takes so long, on whatever machine."""


def spec(server):
    return server.objects[PATH]["spec"]


async def test_the_first_one_leads_and_renews(server, elect, start, metrics, eventually):
    first = elect("one", **LASTING)
    assert not first.leading()
    await first.acquire()
    assert first.leading()
    assert spec(server)["holderIdentity"] == "one"
    began, stamp = first._renewed, spec(server)["renewTime"]
    start(first.hold())
    await eventually(lambda: first._renewed >= began + 0.3)
    assert first.leading()
    assert spec(server)["renewTime"] != stamp
    assert b'leader_election_master_status{name="boss"} 1.0' in metrics.text()
    assert len(server.requests("GET")) == 1


async def test_a_second_one_waits_until_the_lease_runs_out(server, elect):
    first, second = elect("one"), elect("two")
    await first.acquire()
    began = time.monotonic()
    await asyncio.wait_for(second.acquire(), PATIENCE)
    assert time.monotonic() - began > 0.95
    assert not first.leading()
    assert spec(server)["leaseTransitions"] == 1


async def test_row_5_a_released_lease_is_taken_within_a_retry_period(server, elect, start, eventually):
    first, second = elect("one", **LASTING, retry_seconds=PATIENCE), elect("two", **LASTING)
    await first.acquire()
    count = len(server.requests("GET"))
    waiting = start(second.acquire())
    await eventually(lambda: len(server.requests("GET")) >= count + 2)
    assert not waiting.done()
    await first.release()
    assert not first.leading()
    await asyncio.wait_for(waiting, PATIENCE)
    assert spec(server)["holderIdentity"] == "two"


async def test_row_38_a_leader_that_cannot_renew_stops_before_another_may_begin(server, elect, script):
    first = elect("one")
    await first.acquire()
    server.fault("PUT", LEASES, script.stream(hold=900), times=99)
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(first.hold(), PATIENCE)
    assert not first.leading()
    assert first._renew_seconds < first._lease_seconds
    await first.release()
    assert spec(server)["holderIdentity"] == "one"


async def test_row_38_a_leader_that_was_frozen_does_not_lead_when_it_wakes(elect):
    first = elect("one")
    await first.acquire()
    time.sleep(0.7)  # noqa: ASYNC251  # the process hangs
    assert not first.leading()


async def test_a_leader_that_sees_another_holder_stops_at_once(server, elect):
    first = elect("one", **LASTING)
    await first.acquire()
    taken = server.objects[PATH]
    await server.store(PATH, {**taken, "spec": {**taken["spec"], "holderIdentity": "thief"}})
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(first.hold(), PATIENCE)


async def test_a_foreign_label_on_the_lease_does_not_end_the_leadership(server, elect, start, eventually):
    first = elect("one", **LASTING)
    await first.acquire()
    start(first.hold())
    lease = server.objects[PATH]
    await server.store(PATH, {**lease, "metadata": {**lease["metadata"], "labels": {"a": "b"}}})
    began = first._renewed
    await eventually(lambda: first._renewed >= began + 0.3)
    assert first.leading()


async def test_row_39_times_in_the_lease_are_not_believed(server, elect):
    """A holder whose clock is an hour ahead or behind keeps or loses the lease like every other one."""
    for stamp in ("2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"):
        record = {"holderIdentity": "other", "renewTime": stamp, "leaseDurationSeconds": 1}
        await server.put(PATH, spec=record)
        elector = elect("one")
        began = time.monotonic()
        await asyncio.wait_for(elector.acquire(), PATIENCE)
        assert time.monotonic() - began > 0.95


async def test_an_unreachable_server_is_waited_for(server, elect, script):
    server.fault("GET", LEASES, script.hang_up, times=4)
    await asyncio.wait_for(elect("one").acquire(), PATIENCE)


async def test_only_one_candidate_leads_at_a_time(server, elect, kubeconfig, metrics, start):
    clients = [await Client.connect(kubeconfig, metrics=metrics) for _unused in range(4)]
    electors = [
        LeaderElector(
            one,
            "system",
            "boss",
            metrics=metrics,
            identity=str(number),
            lease_seconds=1.0,
            renew_seconds=0.6,
            retry_seconds=0.1,
        )
        for number, one in enumerate(clients)
    ]

    async def serve(elector):
        for _unused in range(2):
            await elector.acquire()
            await asyncio.sleep(0.2)
            if int(elector.identity) % 2:
                await elector.release()

    work = [start(serve(elector)) for elector in electors]
    for _unused in range(300):
        assert sum(elector.leading() for elector in electors) <= 1
        await asyncio.sleep(0.01)
    for one in work:
        one.cancel()
    for one in clients:
        await one.close()


async def test_a_container_that_was_restarted_in_its_pod_leads_at_once(server, client, metrics, monkeypatch):
    monkeypatch.setenv("POD_NAME", "controller-abc")
    for _unused in range(2):
        elector = LeaderElector(client, "system", "boss", metrics=metrics, **LASTING)
        await asyncio.wait_for(elector.acquire(), PATIENCE)
    assert spec(server)["holderIdentity"] == "controller-abc"
