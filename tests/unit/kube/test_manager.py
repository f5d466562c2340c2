"""The manager: what starts when, what health says, and how the process ends."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import pairwise

import aiohttp
import pytest

from slipway.kube.caches.informer import Informer
from slipway.kube.objects import POD, Key, Kind
from slipway.kube.runtime import health as health_module
from slipway.kube.runtime.controller import Controller, Result
from slipway.kube.runtime.lease import LeaderElector
from slipway.kube.runtime.manager import Manager
from tests.ports import reserved_port

from .conftest import PATIENCE

PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/system/leases/boss"


QUICK = {"lease_seconds": 3.0, "renew_seconds": 2.0, "retry_seconds": 0.1}


@pytest.fixture
def listen():
    return f"127.0.0.1:{reserved_port()}"


class Process:
    """A controller's process in small."""

    def __init__(self, client, metrics, listen, lease_seconds=900.0, renew_seconds=600.0, retry_seconds=PATIENCE):
        self.seen = []
        self.informer = Informer(client, POD)
        self.elector = LeaderElector(
            client,
            "system",
            "boss",
            metrics=metrics,
            identity="one",
            lease_seconds=lease_seconds,
            renew_seconds=renew_seconds,
            retry_seconds=retry_seconds,
        )
        controller = Controller("pods", self.reconcile, metrics=metrics)
        controller.watch(self.informer)
        self.manager = Manager(
            informers=[self.informer], controllers=[controller], elector=self.elector, metrics=metrics, listen=listen
        )

    async def reconcile(self, key):
        self.seen.append(key)
        return Result()


async def ask(listen, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://{listen}{path}") as response:
        return response.status, await response.text()


async def test_a_process_works_and_ends_in_order(server, client, metrics, listen, eventually):
    await server.put(f"{PODS}/a")
    process = Process(client, metrics, listen)
    running = asyncio.create_task(process.manager.run())
    await eventually(lambda: process.seen == [Key("default", "a")])
    assert (await ask(listen, "/healthz"))[0] == 200
    assert await ask(listen, "/readyz") == (200, "ready\n")
    assert "reconcile_total" in (await ask(listen, "/metrics"))[1]
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(running, PATIENCE) == 0
    assert server.objects[LEASE]["spec"]["holderIdentity"] == ""


async def test_the_leader_runs_its_first_tasks_before_its_controllers_start(
    server, client, metrics, listen, eventually
):
    await server.put(f"{PODS}/a")
    process, states, go_on = Process(client, metrics, listen), [], asyncio.Event()

    async def first():
        states.append((process.elector.leading(), list(process.seen)))
        await go_on.wait()

    process.manager._first = first
    running = asyncio.create_task(process.manager.run())
    await eventually(lambda: states == [(True, [])] and server.is_seen_by(process.informer))
    assert (await ask(listen, "/readyz"))[0] == 200
    assert process.seen == []
    go_on.set()
    await eventually(lambda: process.seen == [Key("default", "a")])
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(running, PATIENCE) == 0


async def test_it_is_not_ready_and_does_not_compete_before_its_stores_are_filled(
    server, client, metrics, listen, start, eventually, script
):
    server.fault("GET", "limit", script.refuse(503), times=10**6)
    process = Process(client, metrics, listen)
    start(process.manager.run())
    await eventually(lambda: len(server.lists) >= 2)
    assert (await ask(listen, "/readyz"))[0] == 503
    assert LEASE not in server.objects


async def test_a_follower_keeps_full_stores_and_reconciles_nothing(server, client, metrics, listen, start, eventually):
    await server.put(LEASE, spec={"holderIdentity": "other", "leaseDurationSeconds": 60})
    await server.put(f"{PODS}/a")
    process = Process(client, metrics, listen, **(QUICK | {"lease_seconds": 900.0}))
    start(process.manager.run())
    await eventually(process.informer.synced.is_set)
    count = len(server.requests("GET", LEASE))
    await eventually(lambda: len(server.requests("GET", LEASE)) >= count + 2)
    assert len(process.informer.store) == 1
    assert (await ask(listen, "/readyz"))[0] == 200
    assert process.seen == []


async def test_row_38_a_process_that_lost_leadership_ends(server, client, metrics, listen, eventually, script):
    process = Process(client, metrics, listen, **QUICK)
    running = asyncio.create_task(process.manager.run())
    await eventually(process.elector.leading)
    server.fault("PUT", "leases", script.hang_up, times=10**6)
    assert await asyncio.wait_for(running, PATIENCE) == 1


async def test_row_26_a_kind_that_is_not_installed_is_waited_for_while_the_others_go_on(
    server, client, metrics, listen, start, eventually, script
):
    missing = server.fault("GET", "/toys", script.refuse(404, "NotFound"), times=10**6)
    await server.put(f"{PODS}/a")
    await server.put("/apis/test/v1/namespaces/default/toys/t")
    seen, pods = [], Informer(client, POD)

    async def reconcile(key):
        seen.append(key.name)
        return Result()

    def lists(plural):
        return [one for one in server.lists if plural in one.path]

    controllers = [Controller("pods", reconcile, metrics=metrics), Controller("toys", reconcile, metrics=metrics)]
    toys = Informer(client, Kind("test", "v1", "Toy", "toys"))
    controllers[0].watch(pods)
    controllers[1].watch(toys)
    controllers[1].watch(pods)
    manager = Manager(informers=[pods, toys], controllers=controllers, metrics=metrics, listen=listen)
    start(manager.run())
    await eventually(lambda: seen == ["a"])
    assert (await ask(listen, "/readyz"))[0] == 200
    await eventually(lambda: len(lists("toys")) >= 3)
    assert seen == ["a"]
    assert min(after.at - before.at for before, after in pairwise(lists("toys"))) > 0.19
    missing.times = 0
    await eventually(lambda: sorted(seen) == ["a", "a", "t"])
    # Removed while the watch is down, with all of its objects; then installed again.
    missing.times = 10**6
    await server.remove("/apis/test/v1/namespaces/default/toys/t", silently=True)
    server.cut()
    await eventually(lambda: not toys.store.all())
    missing.times = 0
    await server.put("/apis/test/v1/namespaces/default/toys/u")
    await eventually(lambda: seen[-1] == "u")


async def test_a_bug_outside_of_reconciliation_ends_the_process(metrics, listen):
    async def broken():
        raise ValueError("bug")

    manager = Manager(informers=[], controllers=[], metrics=metrics, listen=listen, background=[broken])
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(manager.run(), PATIENCE)


async def test_row_43_a_blocked_event_loop_is_unhealthy(metrics, listen, monkeypatch):
    monkeypatch.setattr(health_module, "LAG_SECONDS", -1.0)
    async with health_module.serve(listen, ready=lambda: True, metrics=metrics):
        status, text = await ask(listen, "/healthz")
    assert status == 503
    assert "late" in text
