"""Requests for a model without a ready server wait for one, bounded in number and time."""

from __future__ import annotations

import http.client
import itertools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import requests

from slipway.gateway.standalone import Standalone
from tests.gateway.conftest import PATIENCE, Api, Engine, settle, wait_for, waiting

CHAT = "/v1/chat/completions"


class Cold(NamedTuple):
    """A model that no test before had, without a server, behind a gateway where nobody waits."""

    gateway: Standalone
    model: str

    def ask(self) -> requests.Response:
        with Api(self.gateway.url) as api:
            return api.post(CHAT, json={"model": self.model})

    def give(self, engine: Engine) -> None:
        self.gateway.route({self.model: [engine.endpoint]})


numbers = itertools.count()


def cold(gateway: Standalone) -> Cold:
    made = Cold(gateway, f"cold-{next(numbers)}")
    gateway.route({made.model: []})
    settle(gateway)
    wait_for(lambda: waiting(gateway) == 0)
    return made


@pytest.fixture(scope="module")
def lasting(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds 5 requests, for longer than anything here takes."""
    with make_gateway(holdSeconds=5 * PATIENCE, holdRequests=5) as made:
        yield made


@pytest.fixture
def patient(lasting: Standalone) -> Cold:
    return cold(lasting)


@pytest.fixture(scope="module")
def brief(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds requests for a second."""
    with make_gateway(holdSeconds=1) as made:
        yield made


@pytest.fixture(scope="module")
def narrow(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds what has 250 kB together."""
    with make_gateway(holdSeconds=5 * PATIENCE, holdBytes=250_000) as made:
        yield made


def test_waiting_requests_go_on_when_a_server_appears(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(patient.ask) for _unused in range(5)]
        wait_for(lambda: waiting(patient.gateway) == 5)
        patient.give(make_engine("warm"))
        assert [answer.result().status_code for answer in asked] == [200] * 5
    wait_for(lambda: waiting(patient.gateway) == 0)


def test_a_server_that_does_not_listen_yet_is_waited_for(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    late = make_engine("late", start=False)
    with ThreadPoolExecutor(8) as pool:
        patient.give(late)
        asked = [pool.submit(patient.ask) for _unused in range(5)]
        wait_for(lambda: waiting(patient.gateway) == 5)
        time.sleep(1)  # it is tried several times meanwhile
        assert waiting(patient.gateway) == 5
        late.start()
        assert [answer.result().status_code for answer in asked] == [200] * 5


def test_too_many_are_turned_away_while_the_others_wait(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(patient.ask) for _unused in range(5)]
        wait_for(lambda: waiting(patient.gateway) == 5)
        refused = patient.ask()
        assert waiting(patient.gateway) == 5
        patient.give(make_engine("warm"))
        assert [answer.result().status_code for answer in asked] == [200] * 5
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "too_many_waiting"
    assert int(refused.headers["retry-after"]) > 0


def test_who_has_waited_for_the_whole_time_is_turned_away(brief: Standalone) -> None:
    late = cold(brief).ask()
    assert late.elapsed.total_seconds() > 0.9
    assert late.status_code == 503
    assert late.json()["error"]["code"] == "model_not_ready"
    assert int(late.headers["retry-after"]) > 0


def test_waiting_bodies_are_bounded_in_size_over_all_models(
    narrow: Standalone, make_engine: Callable[..., Engine]
) -> None:
    narrow.route({"cold": [], "other": []})
    settle(narrow)

    def send(model: str) -> int:
        with Api(narrow.url) as api:
            return api.post(CHAT, json={"model": model, "prompt": "a" * 100_000}).status_code

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(send, model) for model in ("cold", "other")]
        wait_for(lambda: waiting(narrow) == 2)
        assert send("cold") == 429
        narrow.route({"cold": [], "other": [make_engine("warm").endpoint]})
        assert asked[1].result() == 200
        asked.append(pool.submit(send, "cold"))
        wait_for(lambda: waiting(narrow) == 2)  # what the other one took is free again
        narrow.route({"cold": [make_engine("warm").endpoint]})
        assert [answer.result() for answer in asked] == [200] * 3


def test_clients_that_leave_free_their_places(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    leaving = [http.client.HTTPConnection(patient.gateway.url.removeprefix("http://")) for _unused in range(5)]
    for connection in leaving:
        connection.request("POST", CHAT, json.dumps({"model": patient.model}))
    wait_for(lambda: waiting(patient.gateway) == 5)
    for connection in leaving:
        connection.close()
    wait_for(lambda: waiting(patient.gateway) == 0)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(patient.ask)
        wait_for(lambda: waiting(patient.gateway) == 1)
        patient.give(make_engine("warm"))
        assert asked.result().status_code == 200
