"""No change of engines or gateway loses a request."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from slipway.gateway.haproxy import socket as haproxy_socket
from tests.gateway.conftest import Engine, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"
SMALL = b'{"model":"m1","messages":[]}'
MEDIUM = b'{"model":"m1","prompt":"' + b"a" * 40000 + b'"}'
EVENTS = 20
STREAM = b'{"model":"m1","stream":true,"x":{"events":%d,"held":true}}' % EVENTS
LARGE = b'{"model":"m1","prompt":"' + b"a" * 100000 + b'"}'


@pytest.fixture(scope="module")
def pair(make_engine: Callable[..., Engine]) -> tuple[Engine, Engine]:
    return make_engine("a"), make_engine("b")


@pytest.fixture(scope="module")
def shared(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    with make_gateway(threads=2) as gateway:
        yield gateway


@pytest.fixture
def served(shared: Standalone, pair: tuple[Engine, Engine]) -> Standalone:
    """The model m1 on both engines, and nothing else."""
    shared.route({"m1": [engine.endpoint for engine in pair]})
    settle(shared)
    wait_for(lambda: post(shared, SMALL) == 200)
    return shared


@pytest.fixture
def own(make_gateway: Callable[..., Standalone], pair: tuple[Engine, Engine]) -> Iterator[Standalone]:
    """A separate gateway, for tests that stop it."""
    with make_gateway(threads=2) as gateway:
        gateway.route({"m1": [engine.endpoint for engine in pair]})
        settle(gateway)
        yield gateway


async def under_load(
    gateway: Standalone, happening: Callable[[], Awaitable[None]], bodies: tuple[bytes, ...] = (SMALL, MEDIUM)
) -> Counter[Any]:
    """Status (or exception) of every request that eight clients send while something happens.

    There are a hundred of them at least, some before it and some after it.
    """
    outcomes: Counter[Any] = Counter()
    over = asyncio.Event()

    async def ask(session: aiohttp.ClientSession, body: bytes) -> None:
        while not over.is_set():
            try:
                async with session.post(gateway.url + CHAT, data=body) as answer:
                    await answer.read()
                    outcomes[answer.status] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                outcomes[f"{type(error).__name__}: {error}"] += 1
            await asyncio.sleep(0.002)

    async def answers(count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while outcomes.total() < count:  # noqa: ASYNC110  # all clients add to it
                await asyncio.sleep(0.02)

    limit = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(timeout=limit, connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [asyncio.create_task(ask(session, bodies[number % len(bodies)])) for number in range(8)]
        await answers(20)
        await happening()
        await answers(max(100, outcomes.total() + 40))
        over.set()
        await asyncio.gather(*clients)
    assert outcomes[200] > 80
    return outcomes


async def test_endpoints_that_come_and_go_cost_nothing(served: Standalone, pair: tuple[Engine, Engine]) -> None:
    async def churn() -> None:
        for turn in range(24):
            chosen = [pair[0]] if turn % 3 == 0 else [pair[1]] if turn % 3 == 1 else list(pair)
            served.route({"m1": [engine.endpoint for engine in chosen]})
            await asyncio.sleep(0.12)

    worker = newest(served)
    outcomes = await under_load(served, churn)
    assert set(outcomes) == {200}, outcomes
    assert newest(served) == worker


async def test_models_that_come_and_go_cost_nothing(served: Standalone, pair: tuple[Engine, Engine]) -> None:
    kept = [engine.endpoint for engine in pair]

    async def churn() -> None:
        for turn in range(16):
            served.route({"m1": kept, **{f"n{turn}-{number}": kept[:1] for number in range(10)}})
            await asyncio.sleep(0.15)

    worker = newest(served)
    outcomes = await under_load(served, churn)
    assert set(outcomes) == {200}, outcomes
    assert newest(served) == worker, "backends are made at run time, without a reload"


async def test_a_model_without_endpoints_for_a_moment_costs_nothing(
    served: Standalone, pair: tuple[Engine, Engine]
) -> None:
    async def blink() -> None:
        for _unused in range(4):
            served.route({"m1": []})
            await asyncio.sleep(0.2)
            served.route({"m1": [pair[0].endpoint]})
            await asyncio.sleep(0.2)

    assert set(await under_load(served, blink)) == {200}


async def test_an_endpoint_that_leaves_finishes_its_streams_and_gets_no_new_request(
    served: Standalone, pair: tuple[Engine, Engine]
) -> None:
    async with aiohttp.ClientSession() as session, session.post(served.url + CHAT, data=STREAM) as answer:
        await answer.content.readline()
        leaving, staying = pair if answer.headers["x-engine"] == pair[0].name else pair[::-1]
        served.route({"m1": [staying.endpoint]})
        await asyncio.to_thread(settle, served)
        before = len(leaving.bodies)
        for _unused in range(10):
            assert await asyncio.to_thread(post, served, SMALL) == 200
        assert len(leaving.bodies) == before
        leaving.release(EVENTS)
        assert (await answer.text()).endswith("data: [DONE]\n\n")


async def test_no_unanswered_request_fails_when_an_engine_dies(served: Standalone, pair: tuple[Engine, Engine]) -> None:
    async def die() -> None:
        await asyncio.to_thread(pair[0].kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(pair[0].start)
        await asyncio.sleep(0.5)

    outcomes = await under_load(served, die)
    assert set(outcomes) == {200}, outcomes


async def test_an_engine_that_dies_drops_no_large_request_without_a_word(
    served: Standalone, pair: tuple[Engine, Engine]
) -> None:
    """A request that the engine has read but not answered is a 502 in the log. Idle connections lose no request."""

    async def die() -> None:
        for _unused in range(3):
            await asyncio.to_thread(pair[0].kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(pair[0].start)
            await asyncio.sleep(0.3)

    outcomes = await under_load(served, die, (LARGE,))
    assert set(outcomes) <= {200, 502}, outcomes
    log = served.directory / "haproxy.log"
    await asyncio.to_thread(wait_for, lambda: log.read_text().count('"status": 502') >= outcomes[502])


async def test_reloads_cost_nothing(served: Standalone) -> None:
    async def reload() -> None:
        for _unused in range(3):
            await haproxy_socket.reload(served.run / "master.sock")
            await asyncio.sleep(0.2)

    outcomes = await under_load(served, reload)
    assert set(outcomes) == {200}, outcomes


async def test_a_request_that_waits_survives_a_reload(served: Standalone, pair: tuple[Engine, Engine]) -> None:
    served.route({"m1": [pair[0].endpoint], "cold": []})
    async with aiohttp.ClientSession() as session:
        await asyncio.to_thread(settle, served)
        request = asyncio.create_task(session.post(served.url + CHAT, data=b'{"model":"cold"}'))
        await asyncio.to_thread(wait_for, lambda: waiting(served) == 1)
        await haproxy_socket.reload(served.run / "master.sock")
        await asyncio.sleep(1)
        served.route({"m1": [pair[0].endpoint], "cold": [pair[1].endpoint]})
        assert (await asyncio.wait_for(request, PATIENCE)).status == 200


async def test_the_death_of_the_control_process_costs_nothing_and_its_successor_steers_on(
    served: Standalone, pair: tuple[Engine, Engine], make_engine: Callable[..., Engine]
) -> None:
    third = make_engine("c")
    worker = newest(served)

    async def die() -> None:
        assert served.control
        served.control.send_signal(signal.SIGKILL)
        served.control.wait()
        served.route({"m1": [pair[0].endpoint, third.endpoint]})
        await asyncio.sleep(0.3)
        await asyncio.to_thread(served.start_control)
        await asyncio.to_thread(wait_for, lambda: len(third.bodies) > 5)

    outcomes = await under_load(served, die)
    assert set(outcomes) == {200}, outcomes
    assert newest(served) == worker, "the successor found what it wanted and reloaded nothing"


def test_haproxy_starts_again_in_the_same_state(own: Standalone, pair: tuple[Engine, Engine]) -> None:
    own.route({"m1": [pair[1].endpoint], "later": [pair[1].endpoint]})
    wait_for(lambda: f"static:later/{pair[1].endpoint}' : New server" in (own.directory / "haproxy.log").read_text())
    assert own.control
    own.control.send_signal(signal.SIGSTOP)  # so that HAProxy gets its state only from the files
    try:
        own.kill_haproxy()
        own.start_haproxy()
        own.wait_ready()
        text = (own.run / "haproxy.cfg").read_text()
        assert pair[1].endpoint in text
        assert post(own, b'{"model":"later"}') == 200
    finally:
        own.control.send_signal(signal.SIGCONT)


async def test_sixty_four_large_bodies_at_once_stay_small(served: Standalone) -> None:
    body = b'{"prompt":"' + b"a" * (1 << 20) + b'","model":"m1","x":{"delay":0.5}}'
    peak = 0

    async def ask(session: aiohttp.ClientSession) -> int:
        async with session.post(served.url + CHAT, data=body) as answer:
            await answer.read()
            return answer.status

    async def watch() -> None:
        nonlocal peak
        pids = served.haproxy_pids()[1:]
        while True:
            peak = max(peak, sum(resident(pid) for pid in pids))
            await asyncio.sleep(0.02)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        watching = asyncio.create_task(watch())
        for _unused in range(2):
            assert await asyncio.gather(*(ask(session) for _unused in range(64))) == [200] * 64
        watching.cancel()
    assert peak < 256 << 20, f"{peak >> 20} MiB"


async def test_a_gateway_that_stops_lets_its_streams_finish(own: Standalone, pair: tuple[Engine, Engine]) -> None:
    async with aiohttp.ClientSession() as session, session.post(own.url + CHAT, data=STREAM) as answer:
        await answer.content.readline()
        assert own.control
        assert own.haproxy
        own.control.terminate()
        await asyncio.to_thread(wait_for, lambda: not ready(own))
        os.kill(own.haproxy_pids()[0], signal.SIGUSR1)
        next(engine for engine in pair if engine.name == answer.headers["x-engine"]).release(EVENTS)
        text = await answer.text()
    assert text.endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(own.control.wait, PATIENCE) == 0
    assert await asyncio.to_thread(own.haproxy.wait, PATIENCE) == 0


def newest(gateway: Standalone) -> int:
    """Process id of the worker that takes new connections."""
    return max(gateway.haproxy_pids()[1:])


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def post(gateway: Standalone, body: bytes) -> int:
    return requests.post(gateway.url + CHAT, data=body, timeout=PATIENCE).status_code


def ready(gateway: Standalone) -> bool:
    return requests.get(f"{gateway.url}/readyz", timeout=PATIENCE).status_code == 200
