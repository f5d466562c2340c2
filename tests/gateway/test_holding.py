"""Requests for a model without a ready server wait for one, bounded in number and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from slipway.gateway.standalone import Standalone
from tests.gateway.conftest import Api, Engine, wait_for

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def shared(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds 5 requests for at most 3 seconds."""
    with make_gateway(holdSeconds=3, holdRequests=5, holdBytes=250_000) as made:
        yield made


@pytest.fixture
def patient(shared: Standalone) -> Standalone:
    """With a model that has no server."""
    shared.route({"cold": []})
    config = shared.run / "haproxy.cfg"
    wait_for(lambda: "backend static:cold" in config.read_text() and "server 127" not in config.read_text())
    wait_for(lambda: waiting(shared) == 0)
    time.sleep(0.2)
    return shared


def ask(gateway: Standalone, **options: Any) -> requests.Response:
    with Api(gateway.url) as api:
        return api.post(CHAT, json={"model": "cold"}, **options)


def waiting(gateway: Standalone) -> float:
    text = requests.get(f"{gateway.control_url}/metrics", timeout=5).text
    lines = [line for line in text.splitlines() if line.startswith("slipway_gateway_requests_waiting{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_waiting_requests_go_on_when_a_server_appears(patient: Standalone, make_engine: Callable[..., Engine]) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, patient) for _unused in range(5)]
        wait_for(lambda: waiting(patient) == 5)
        patient.route({"cold": [make_engine("warm").endpoint]})
        appeared = time.monotonic()
        assert [answer.result().status_code for answer in asked] == [200] * 5
        assert time.monotonic() - appeared < 1.5
    assert waiting(patient) == 0


def test_a_server_that_does_not_listen_yet_is_waited_for(
    patient: Standalone, make_engine: Callable[..., Engine]
) -> None:
    late = make_engine("late", start=False)
    with ThreadPoolExecutor(8) as pool:
        patient.route({"cold": [late.endpoint]})
        asked = [pool.submit(ask, patient) for _unused in range(5)]
        time.sleep(1.5)
        late.start()
        assert [answer.result().status_code for answer in asked] == [200] * 5


def test_too_many_are_turned_away_at_once_and_too_long_after_the_time(patient: Standalone) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, patient) for _unused in range(5)]
        wait_for(lambda: waiting(patient) == 5)
        began = time.monotonic()
        refused = ask(patient)
        assert time.monotonic() - began < 1
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_waiting"
        assert int(refused.headers["retry-after"]) > 0
        late = asked[0].result()
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "model_not_ready"
        assert int(late.headers["retry-after"]) > 0


def test_waiting_bodies_are_bounded_in_size_over_all_models(patient: Standalone) -> None:
    patient.route({"cold": [], "other": []})
    wait_for(lambda: "backend static:other" in (patient.run / "haproxy.cfg").read_text())
    time.sleep(0.3)

    def send(model: str) -> int:
        with Api(patient.url) as api:
            return api.post(CHAT, json={"model": model, "prompt": "a" * 100_000}).status_code

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(send, model) for model in ("cold", "other")]
        wait_for(lambda: waiting(patient) == 2)
        assert send("cold") == 429
        assert [answer.result() for answer in asked] == [503, 503]
        assert send("cold") == 503, "what they took is free again"


def test_a_client_that_leaves_frees_its_place(patient: Standalone) -> None:
    def leave() -> None:
        with pytest.raises(requests.Timeout):
            ask(patient, timeout=0.5)

    with ThreadPoolExecutor(8) as pool:
        for left in [pool.submit(leave) for _unused in range(5)]:
            left.result()
        wait_for(lambda: waiting(patient) == 0, 1.5)
        asked = pool.submit(ask, patient)
        wait_for(lambda: waiting(patient) == 1)
        assert asked.result().status_code == 503
