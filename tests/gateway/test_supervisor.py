"""If the control process dies while HAProxy runs, no request is lost, and the container keeps running."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from tests.gateway.conftest import Engine, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"
SMALL = b'{"model":"m1","messages":[]}'
REQUESTS = int(os.environ.get("SLIPWAY_REQUESTS", "500"))
"""More of them for a measurement."""
KILLS = 5


@pytest.fixture
def supervised(make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine]) -> Iterator[Standalone]:
    """The model m1 on one engine; the control process is started as in a pod."""
    engine = make_engine("only")
    with make_gateway(threads=2) as gateway:
        assert gateway.control
        gateway.control.kill()
        gateway.control.wait()
        gateway.start_control("--supervise")
        gateway.route({"m1": [engine.endpoint]})
        settle(gateway)
        yield gateway


def control(gateway: Standalone) -> int:
    """The supervisor's child; 0 while there is none."""
    assert gateway.control
    supervisor = gateway.control.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return int(children[0]) if children else 0


def steers(gateway: Standalone) -> bool:
    """Whether there is a control process that has applied its table."""
    try:
        return requests.get(f"{gateway.control_url}/readyz", timeout=PATIENCE).status_code == 200
    except requests.ConnectionError:
        return False


def restarts(gateway: Standalone) -> float:
    """Returns the number of restarts that the control process reports."""
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    return float(text.split("\nslipway_gateway_control_restarts_total ")[1].split("\n")[0])


async def test_no_new_connection_is_refused_while_the_control_process_is_killed_repeatedly(
    supervised: Standalone,
) -> None:
    """Neither by a model nor by the model list. The pod stays Ready, because container and /readyz keep working."""
    outcomes: Counter[Any] = Counter()
    over = asyncio.Event()

    async def ask(method: str, path: str, body: bytes | None) -> None:
        while not over.is_set() or outcomes.total() < REQUESTS:
            try:
                # No keep-alive, so that each request has its own connection.
                async with session.request(method, supervised.url + path, data=body) as answer:
                    content = await answer.read()
                    listed = path != "/v1/models" or b'"m1"' in content
                    outcomes[path, answer.status if listed else content] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                outcomes[path, type(error).__name__] += 1
            await asyncio.sleep(0.002)

    def die() -> None:
        for _unused in range(KILLS):
            before = outcomes.total()
            wait_for(lambda: control(supervised) != 0 and steers(supervised))
            os.kill(control(supervised), signal.SIGKILL)
            wait_for(lambda count=before: outcomes.total() > count + REQUESTS // KILLS)

    limit = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True, limit=0), timeout=limit
    ) as session:
        clients = [asyncio.create_task(ask("POST", CHAT, SMALL)) for _unused in range(6)]
        clients += [asyncio.create_task(ask("GET", path, None)) for path in ("/v1/models", "/readyz")]
        await asyncio.to_thread(die)
        await asyncio.to_thread(wait_for, lambda: steers(supervised))
        over.set()
        await asyncio.gather(*clients)
    assert supervised.control
    assert supervised.control.poll() is None, "the container's first process"
    assert {status for _path, status in outcomes} == {200}, outcomes
    assert outcomes.total() >= REQUESTS
    assert restarts(supervised) == KILLS


def test_the_next_control_process_configures_haproxy(
    supervised: Standalone, make_engine: Callable[..., Engine]
) -> None:
    other = make_engine("other")
    os.kill(control(supervised), signal.SIGKILL)
    supervised.route({"m1": [other.endpoint]})
    settle(supervised)
    answer = requests.post(supervised.url + CHAT, data=SMALL, timeout=PATIENCE)
    assert answer.headers["x-engine"] == "other"


def test_a_stop_signal_ends_both_processes(supervised: Standalone) -> None:
    child = control(supervised)
    assert supervised.control
    supervised.kill_haproxy()
    supervised.control.terminate()
    assert supervised.control.wait(PATIENCE) == 0
    assert not Path(f"/proc/{child}").exists()
