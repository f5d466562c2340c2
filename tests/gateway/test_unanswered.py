"""Requests whose engine dies before it answers wait for another one. Nothing notifies the gateway of the death."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from slipway.gateway.haproxy import socket as haproxy_socket
from tests.gateway.conftest import Engine, reset, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone
from tests.gateway.test_lossless import CHAT, MEDIUM, SMALL, post, under_load

HELD = b'{"model":"m1","x":{"held":true}}'


@pytest.fixture(scope="module")
def shared(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    with make_gateway(threads=2, holdSeconds=PATIENCE) as gateway:
        yield gateway


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine("only")


@pytest.fixture
def served(shared: Standalone, engine: Engine) -> Standalone:
    """The model m1 on one engine."""
    shared.route({"m1": [engine.endpoint]})
    settle(shared)
    wait_for(lambda: post(shared, SMALL) == 200)
    return shared


async def test_the_next_process_of_the_only_engine_answers_unanswered_requests(
    served: Standalone, engine: Engine
) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(session.post(served.url + CHAT, data=HELD)) for _unused in range(20)]
        await asyncio.to_thread(wait_for, lambda: engine.active == 20)
        await asyncio.to_thread(engine.kill)
        await asyncio.to_thread(wait_for, lambda: waiting(served) == 20)
        engine.release(40)
        await asyncio.to_thread(engine.start)
        async with asyncio.timeout(PATIENCE):
            assert [(await one).status for one in tasks] == [200] * 20


def ask_and_stay(gateway: Standalone, model: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"))
    connection.request("POST", CHAT, json.dumps({"model": model}))
    return connection


def logged(gateway: Standalone, client: str) -> list[dict[str, Any]]:
    """Returns HAProxy's log entries of the client's completed requests."""
    lines = (gateway.directory / "haproxy.log").read_text().rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and client in line]


async def test_a_client_that_a_trusted_proxy_names_is_not_taken_for_one_that_left(
    make_gateway: Callable[..., Standalone], engine: Engine
) -> None:
    with make_gateway(trustedProxies=["127.0.0.1/32"], holdSeconds=5 * PATIENCE) as gateway:
        gateway.route({"m1": [engine.endpoint], "cold": []})
        settle(gateway)
        await asyncio.to_thread(wait_for, lambda: post(gateway, SMALL) == 200)
        async with aiohttp.ClientSession() as session:
            headers = {"x-forwarded-for": "192.0.2.1"}
            request = asyncio.create_task(session.post(gateway.url + CHAT, data=HELD, headers=headers))
            await asyncio.to_thread(wait_for, lambda: engine.active == 1)
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(wait_for, lambda: waiting(gateway) == 1)
            stays = ask_and_stay(gateway, "cold")
            await asyncio.to_thread(wait_for, lambda: waiting(gateway) == 2)
            for _unused in range(2):  # in the second round, all have been looked at often enough
                leaves = ask_and_stay(gateway, "cold")
                await asyncio.to_thread(wait_for, lambda: waiting(gateway) == 3)
                reset(leaves)
                await asyncio.to_thread(wait_for, lambda: waiting(gateway) == 2)
            engine.release(2)
            await asyncio.to_thread(engine.start)
            async with asyncio.timeout(PATIENCE):
                assert (await request).status == 200
            stays.close()
        # HAProxy logs a request after its client has the answer.
        await asyncio.to_thread(wait_for, lambda: logged(gateway, "192.0.2.1"))
        held = logged(gateway, "192.0.2.1")
        assert [one["retries"] <= 2 for one in held] == [True], "a request that is dropped here is tried again"


async def test_another_pod_answers_if_the_first_one_does_not_return(
    served: Standalone, engine: Engine, make_engine: Callable[..., Engine]
) -> None:
    async with aiohttp.ClientSession() as session:
        request = asyncio.create_task(session.post(served.url + CHAT, data=HELD))
        await asyncio.to_thread(wait_for, lambda: engine.active == 1)
        await asyncio.to_thread(engine.kill)
        await asyncio.to_thread(wait_for, lambda: waiting(served) == 1)
        other = make_engine("other")
        other.release()
        served.route({"m1": [other.endpoint]})
        async with asyncio.timeout(PATIENCE):
            answer = await request
        assert (answer.status, answer.headers["x-engine"]) == (200, "other")


async def test_requests_are_answered_however_often_the_only_engine_dies(served: Standalone, engine: Engine) -> None:
    async def die() -> None:
        for _unused in range(5):
            await asyncio.to_thread(engine.kill)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(engine.start)
            # All waiting requests get their answer before the next death: a request may only wait twice.
            await asyncio.to_thread(wait_for, lambda: waiting(served) == 0)
            before = len(engine.bodies)
            await asyncio.to_thread(wait_for, lambda count=before: len(engine.bodies) > count + 20)

    outcomes = await under_load(served, die, (SMALL, MEDIUM))
    assert set(outcomes) == {200}, outcomes


def test_idle_connections_that_died_with_the_engine_do_not_use_up_retries(served: Standalone, engine: Engine) -> None:
    """HAProxy sees eight new requests and the death of a hundred idle connections at the same moment."""
    for _unused in range(8):
        with ExitStack() as stack:
            connections = [stack.enter_context(closing(connection(served))) for _unused in range(100)]
            for one in connections:
                one.request("POST", CHAT, HELD)
            wait_for(lambda: engine.active == 100)
            engine.release(100)
            assert [answered(one) for one in connections] == [200] * 100
            with stopped(served):
                for one in connections[:8]:
                    one.request("POST", CHAT, SMALL)
                engine.kill()
            wait_for(lambda: waiting(served) == 8)
            engine.start()
            assert [answered(one) for one in connections[:8]] == [200] * 8


def connection(gateway: Standalone) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=PATIENCE)


def answered(client: http.client.HTTPConnection) -> int:
    answer = client.getresponse()
    answer.read()
    return answer.status


@contextmanager
def stopped(gateway: Standalone) -> Iterator[None]:
    """Stops HAProxy for the duration of the block, so that it sees all events in it at once."""
    workers = gateway.haproxy_pids()[1:]
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        wait_for(lambda: all(map(is_stopped, workers)))
        yield
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


async def test_a_request_survives_a_reload_while_it_waits_for_the_next(served: Standalone, engine: Engine) -> None:
    async with aiohttp.ClientSession() as session:
        request = asyncio.create_task(session.post(served.url + CHAT, data=HELD))
        await asyncio.to_thread(wait_for, lambda: engine.active == 1)
        await asyncio.to_thread(engine.kill)
        await asyncio.to_thread(wait_for, lambda: waiting(served) == 1)
        workers = set(served.haproxy_pids())
        await haproxy_socket.reload(served.run / "master.sock")
        await asyncio.to_thread(wait_for, lambda: not workers >= set(served.haproxy_pids()))
        engine.release(2)
        await asyncio.to_thread(engine.start)
        async with asyncio.timeout(PATIENCE):
            assert (await request).status == 200


def test_a_request_that_waited_in_vain_gets_an_error_and_its_connection_stays_open(
    make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine]
) -> None:
    engine = make_engine("only")
    with make_gateway(holdSeconds=1) as gateway, requests.Session() as session:
        gateway.route({"m1": [engine.endpoint]})
        settle(gateway)
        wait_for(lambda: session.post(gateway.url + CHAT, data=SMALL, timeout=PATIENCE).status_code == 200)
        engine.kill()
        for _unused in range(2):
            answer = session.post(gateway.url + CHAT, data=SMALL, timeout=PATIENCE)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
            assert answer.headers["retry-after"] == "10"


def test_a_request_that_crashes_engines_is_not_sent_forever(
    make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine]
) -> None:
    """A request that has waited twice is not sent a third time, whatever its headers contain."""
    engine, unworn = make_engine("only"), {"x-slipway-tries": "0"}
    with make_gateway(holdSeconds=PATIENCE) as gateway:
        gateway.route({"m1": [engine.endpoint]})
        settle(gateway)
        responses: list[requests.Response] = []
        client = threading.Thread(
            target=lambda: responses.append(
                requests.post(gateway.url + CHAT, data=HELD, headers=unworn, timeout=4 * PATIENCE)
            )
        )
        client.start()
        for deaths in range(3):
            wait_for(lambda: engine.active == 1)
            engine.kill()
            if deaths < 2:
                wait_for(lambda: waiting(gateway) == 1)
                engine.start()
        client.join(4 * PATIENCE)
        assert (responses[0].status_code, responses[0].json()["error"]["code"]) == (503, "model_unavailable")
        assert len(engine.bodies) == 3
