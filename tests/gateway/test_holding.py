"""Requests for a model without a ready server wait for one, bounded in number and time."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import requests

from slipway.gateway.haproxy import socket as haproxy_socket
from tests.gateway.conftest import Api, Engine, ask_haproxy, loopbacks, port_of, reset, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import quiet_port

CHAT = "/v1/chat/completions"


class Cold(NamedTuple):
    """A model that no earlier test used, without a server, behind a gateway without waiting requests."""

    gateway: Standalone
    model: str

    def ask(self) -> requests.Response:
        with Api(self.gateway.url) as api:
            return api.post(CHAT, json={"model": self.model})

    def give(self, engine: Engine) -> None:
        self.gateway.route({self.model: [engine.endpoint]})


numbers = itertools.count()


def cold(gateway: Standalone) -> Cold:
    cold_model = Cold(gateway, f"cold-{next(numbers)}")
    gateway.route({cold_model.model: []})
    settle(gateway)
    wait_for(lambda: waiting(gateway) == 0)
    return cold_model


@pytest.fixture(scope="module")
def lasting(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds 5 requests, for longer than anything here takes."""
    with make_gateway(holdSeconds=5 * PATIENCE, holdRequests=5) as gateway:
        yield gateway


@pytest.fixture
def patient(lasting: Standalone) -> Cold:
    return cold(lasting)


@pytest.fixture(scope="module")
def open_to_all(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Listens on all addresses of both families, as in a cluster, and holds requests for long."""
    public, control = quiet_port(), quiet_port()
    gateway = make_gateway(listen=f":{public}", controlListen=f":{control}", holdSeconds=5 * PATIENCE)
    gateway.url, gateway.control_url = f"http://127.0.0.1:{public}", f"http://127.0.0.1:{control}"
    with gateway:
        yield gateway


@pytest.fixture(scope="module")
def brief(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds requests for a second."""
    with make_gateway(holdSeconds=1) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def narrow(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds 250 kB of bodies in total."""
    with make_gateway(holdSeconds=5 * PATIENCE, holdBytes=250_000) as gateway:
        yield gateway


def test_a_server_that_does_not_listen_yet_is_waited_for(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    """Requests also wait across retries: another model's server, which starts first, shows that HAProxy retries."""
    late, sooner = (make_engine(name, start=False) for name in ("late", "sooner"))
    patient.gateway.route({patient.model: [late.endpoint], "sooner": [sooner.endpoint]})
    wait_for(lambda: "sooner" in ask_haproxy(patient.gateway, f"show map {patient.gateway.run}/models.map"))
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(patient.ask) for _unused in range(5)]
        wait_for(lambda: waiting(patient.gateway) == 5)
        sooner.start()
        assert patient._replace(model="sooner").ask().status_code == 200
        assert waiting(patient.gateway) == 5
        late.start()
        assert [answer.result().status_code for answer in futures] == [200] * 5


def test_too_many_are_turned_away_while_the_others_wait_for_a_server(
    patient: Cold, make_engine: Callable[..., Engine]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(patient.ask) for _unused in range(5)]
        wait_for(lambda: waiting(patient.gateway) == 5)
        refused = patient.ask()
        assert waiting(patient.gateway) == 5
        patient.give(make_engine("warm"))
        assert [answer.result().status_code for answer in futures] == [200] * 5
    wait_for(lambda: waiting(patient.gateway) == 0)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "too_many_waiting"
    assert int(refused.headers["retry-after"]) > 0


def test_a_request_is_refused_after_the_whole_wait(brief: Standalone) -> None:
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
        futures = [pool.submit(send, model) for model in ("cold", "other")]
        wait_for(lambda: waiting(narrow) == 2)
        assert send("cold") == 429
        narrow.route({"cold": [], "other": [make_engine("warm").endpoint]})
        assert futures[1].result() == 200
        futures.append(pool.submit(send, "cold"))
        wait_for(lambda: waiting(narrow) == 2)  # what the other one took is free again
        narrow.route({"cold": [make_engine("warm").endpoint]})
        assert [answer.result() for answer in futures] == [200] * 3


def leave(connection: http.client.HTTPConnection) -> None:
    connection.close()


@pytest.mark.parametrize("end", [leave, reset])
@pytest.mark.parametrize("host", loopbacks())
def test_clients_that_leave_free_their_places(
    open_to_all: Standalone, host: str, end: Callable[[http.client.HTTPConnection], None]
) -> None:
    gone = cold(open_to_all)
    leaving = [http.client.HTTPConnection(f"{host}:{port_of(open_to_all)}") for _unused in range(5)]
    for connection in leaving:
        connection.request("POST", CHAT, json.dumps({"model": gone.model}))
    wait_for(lambda: waiting(open_to_all) == 5)
    leave(leaving[0])
    wait_for(lambda: waiting(open_to_all) == 4)  # so the gateway has looked at all of them
    for connection in leaving[1:]:
        end(connection)
    wait_for(lambda: waiting(open_to_all) == 0)


@pytest.mark.parametrize("end", [leave, reset])
def test_clients_that_leave_after_a_reload_free_their_places(
    open_to_all: Standalone, end: Callable[[http.client.HTTPConnection], None]
) -> None:
    gone = cold(open_to_all)
    leaving = [http.client.HTTPConnection(f"127.0.0.1:{port_of(open_to_all)}") for _unused in range(2)]
    for connection in leaving:
        connection.request("POST", CHAT, json.dumps({"model": gone.model}))
    wait_for(lambda: waiting(open_to_all) == 2)
    workers = set(open_to_all.haproxy_pids())
    asyncio.run(haproxy_socket.reload(open_to_all.run / "master.sock"))
    wait_for(lambda: not workers >= set(open_to_all.haproxy_pids()) and waiting(open_to_all) == 2)
    leave(leaving[0])
    wait_for(lambda: waiting(open_to_all) == 1)  # so the gateway has looked at both of them
    end(leaving[1])
    wait_for(lambda: waiting(open_to_all) == 0)


def test_a_request_after_disconnected_clients_is_served(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    leaving = [http.client.HTTPConnection(patient.gateway.url.removeprefix("http://")) for _unused in range(5)]
    for connection in leaving:
        connection.request("POST", CHAT, json.dumps({"model": patient.model}))
    wait_for(lambda: waiting(patient.gateway) == 5)
    for connection in leaving:
        leave(connection)
    wait_for(lambda: waiting(patient.gateway) == 0)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(patient.ask)
        wait_for(lambda: waiting(patient.gateway) == 1)
        patient.give(make_engine("warm"))
        assert future.result().status_code == 200


@pytest.fixture(scope="module")
def keyed(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    """Holds 6 requests and 250 kB, for clients with their own keys."""
    gateway = make_gateway(holdSeconds=5 * PATIENCE, holdRequests=6, holdBytes=250_000, apiKeysSecret="keys")
    with gateway:
        yield gateway


KEYS = {"greedy": "sk-greedy", "modest": "sk-modest", "third": "sk-third"}


def test_one_client_cannot_take_all_places_from_the_others(
    keyed: Standalone, make_engine: Callable[..., Engine]
) -> None:
    keyed.route({"shared": []}, KEYS)
    settle(keyed)

    def ask(name: str) -> int:
        with Api(keyed.url, KEYS[name]) as api:
            return api.post(CHAT, json={"model": "shared"}).status_code

    with ThreadPoolExecutor(16) as pool:
        wait_for(lambda: ask_models(keyed, "greedy") == 200)
        greedy = [pool.submit(ask, "greedy") for _unused in range(6)]
        wait_for(lambda: waiting(keyed) == 6)  # who is alone may have all
        modest = [pool.submit(ask, "modest") for _unused in range(2)]
        wait_for(lambda: sum(future.done() for future in greedy) == 2)
        assert {future.result() for future in greedy if future.done()} == {429}
        assert ask("greedy") == 429  # and does not get them back
        third = pool.submit(ask, "third")
        wait_for(lambda: sum(future.done() for future in greedy) == 3)
        assert waiting(keyed) == 6
        keyed.route({"shared": [make_engine("warm").endpoint]}, KEYS)
        assert [future.result() for future in [*modest, third]] == [200] * 3
        assert sorted(future.result() for future in greedy) == [200] * 3 + [429] * 3


def ask_models(gateway: Standalone, name: str) -> int:
    with Api(gateway.url, KEYS[name]) as api:
        return api.get("/v1/models").status_code


def test_one_client_cannot_take_all_bytes_from_the_others(
    keyed: Standalone, make_engine: Callable[..., Engine]
) -> None:
    keyed.route({"large": [], "other": []}, KEYS)
    settle(keyed)

    def ask(name: str, model: str) -> int:
        with Api(keyed.url, KEYS[name]) as api:
            return api.post(CHAT, json={"model": model, "prompt": "a" * 100_000}).status_code

    with ThreadPoolExecutor(16) as pool:
        wait_for(lambda: ask_models(keyed, "greedy") == 200)
        greedy = [pool.submit(ask, "greedy", "large") for _unused in range(2)]
        wait_for(lambda: waiting(keyed) == 2)
        assert ask("greedy", "large") == 429
        modest = pool.submit(ask, "modest", "other")
        wait_for(lambda: sum(future.done() for future in greedy) == 1)
        keyed.route({model: [make_engine("warm").endpoint] for model in ("large", "other")}, KEYS)
        assert modest.result() == 200
        assert sorted(future.result() for future in greedy) == [200, 429]


def test_requests_fail_at_once_if_a_model_cannot_start_and_wait_if_it_restarts(brief: Standalone) -> None:
    brief.route(
        {
            "broken": {"unready": {"reason": "ImagePullBackOff", "final": True}},
            "restarting": {"unready": {"reason": "OOMKilled"}},
        }
    )
    settle(brief)
    with Api(brief.url) as api:
        broken, restarting = (api.post(CHAT, json={"model": model}) for model in ("broken", "restarting"))
    error = broken.json()["error"]
    assert (broken.status_code, error["code"], error["reason"]) == (503, "model_not_ready", "ImagePullBackOff")
    assert error["message"].startswith("The model `broken` cannot start: ImagePullBackOff.")
    assert int(broken.headers["retry-after"]) > 0
    error = restarting.json()["error"]
    assert (restarting.status_code, error["code"], error["reason"]) == (503, "model_not_ready", "OOMKilled")
    assert error["message"].startswith("The model `restarting` did not become ready in time: OOMKilled.")
    counted = requests.get(f"{brief.control_url}/metrics", timeout=PATIENCE).text
    series = 'slipway_gateway_requests_refused_total{{model="{}",namespace="static",reason="{}"}} 1.0'
    assert series.format("broken", "failed") in counted
    assert series.format("restarting", "timeout") in counted


def test_waiting_requests_fail_when_their_model_fails_permanently(patient: Cold) -> None:
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(patient.ask) for _unused in range(3)]
        wait_for(lambda: waiting(patient.gateway) == 3)
        patient.gateway.route({patient.model: {"unready": {"reason": "InvalidArgument", "final": True}}})
        answers = [answer.result() for answer in futures]
    assert {(answer.status_code, answer.json()["error"]["reason"]) for answer in answers} == {(503, "InvalidArgument")}


def test_requests_wait_on_for_an_id_that_comes_back(patient: Cold, make_engine: Callable[..., Engine]) -> None:
    """A Service that is deleted may be applied again at once, and an ID may move to another Service."""
    with ThreadPoolExecutor() as pool:
        request = pool.submit(patient.ask)
        wait_for(lambda: waiting(patient.gateway) == 1)
        patient.gateway.route({})
        settle(patient.gateway)
        patient.give(make_engine("warm"))
        assert request.result(timeout=PATIENCE).status_code == 200


def test_a_model_that_is_refused_exists(brief: Standalone) -> None:
    brief.route({"fine": []}, refused={"bad-port": "InvalidSpec", "models/bad-port": "InvalidSpec"})
    settle(brief)
    with Api(brief.url) as api:
        wait_for(lambda: api.post(CHAT, json={"model": "bad-port"}).status_code == 503)
        for model in ("bad-port", "models/bad-port"):
            answer, looked = api.post(CHAT, json={"model": model}), api.get(f"/v1/models/{model}")
            assert answer.status_code == looked.status_code == 503
            assert answer.json() == looked.json()
            assert answer.json()["error"]["message"].startswith(f"The model `{model}` is rejected: InvalidSpec.")
        other = api.post(CHAT, json={"model": "no-such-model"})
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
