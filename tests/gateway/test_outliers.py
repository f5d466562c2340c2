"""A pod that answers errors or nothing is passed over while another answers, and told."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import requests

from slipway.gateway.reconcile_loop import LOOK_SECONDS
from tests.gateway.conftest import PATIENCE, Engine, settle, wait_for
from tests.gateway.standalone import Standalone

CHAT = "/v1/chat/completions"
SMALL = b'{"model":"m1","messages":[]}'


def servers(gateway: Standalone, which: str) -> float:
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    return float(text.split(f'slipway_gateway_{which}_servers{{model="m1",namespace="static"}} ')[1].split("\n")[0])


def passed_over(gateway: Standalone) -> float:
    return servers(gateway, "passed_over")


@pytest.mark.parametrize("status", [500, -1], ids=["errors", "nothing"])
def test_a_pod_that_fails_gets_no_more_requests_while_another_answers(
    make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine], status: int
) -> None:
    good, bad = make_engine("good"), make_engine("bad")
    with make_gateway() as gateway, requests.Session() as session:
        gateway.route({"m1": [good.endpoint, bad.endpoint]})
        settle(gateway)

        def ask() -> int:
            return session.post(gateway.url + CHAT, data=SMALL, timeout=PATIENCE).status_code

        wait_for(lambda: ask() == 200 and len(bad.bodies) > 5 and len(good.bodies) > 5)
        assert passed_over(gateway) == 0
        bad.status = status
        wait_for(lambda: bool(ask()) and passed_over(gateway) == 1)
        wait_for(lambda: servers(gateway, "ready") == 1)
        before = len(bad.bodies)
        assert [ask() for _unused in range(50)] == [200] * 50
        assert len(bad.bodies) == before
        assert f"static:m1: passing over {bad.endpoint} for 30 s" in (gateway.directory / "control.log").read_text()


def test_a_pod_that_answers_4xx_alone_keeps_its_requests(
    make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine]
) -> None:
    one, other = make_engine("one"), make_engine("other")
    with make_gateway() as gateway, requests.Session() as session:
        gateway.route({"m1": [one.endpoint, other.endpoint]})
        settle(gateway)
        one.status = 422
        over = time.monotonic() + 3 * LOOK_SECONDS
        while time.monotonic() < over:
            session.post(gateway.url + CHAT, data=SMALL, timeout=PATIENCE)
        assert len(one.bodies) > 5
        assert passed_over(gateway) == 0
