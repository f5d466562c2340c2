"""A pod that returns errors or nothing is passed over while another answers, and reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import requests

from tests.gateway.conftest import Engine, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"
SMALL = b'{"model":"m1","messages":[]}'


def servers(gateway: Standalone, which: str, model: str = "m1") -> float:
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    return float(
        text.split(f'slipway_gateway_{which}_servers{{model="{model}",namespace="static"}} ')[1].split("\n")[0]
    )


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
        assert f"static:m1: skipping {bad.endpoint} for 30 s" in (gateway.directory / "control.log").read_text()


def test_a_pod_that_answers_4xx_alone_keeps_its_requests(
    make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine]
) -> None:
    """The pod stays in use when the same check excludes another model's pod that answers as many with 500."""
    one, other, bad, good = (make_engine(name) for name in ("one", "other", "bad", "good"))
    with make_gateway() as gateway, requests.Session() as session:
        gateway.route({"m1": [one.endpoint, other.endpoint], "m2": [bad.endpoint, good.endpoint]})
        settle(gateway)
        one.status, bad.status = 422, 500

        def judged() -> bool:
            for body in (SMALL, SMALL.replace(b"m1", b"m2")):
                session.post(gateway.url + CHAT, data=body, timeout=PATIENCE)
            return servers(gateway, "passed_over", "m2") == 1

        wait_for(judged)
        assert len(one.bodies) > 5
        assert passed_over(gateway) == 0
