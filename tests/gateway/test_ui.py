"""The page with a real HAProxy: public paths, paths that need a key, and no other changes."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import requests

from slipway.gateway.rules.page import FILES
from tests.gateway.conftest import KEY, Api, Engine, wait_for
from tests.gateway.standalone import PATIENCE, Standalone


@pytest.fixture(scope="module")
def guarded(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    gateway = make_gateway(apiKeysSecret="keys", ui=True)
    gateway.route({"m1": [engine.endpoint]}, {"tester": KEY})
    with gateway, Api(gateway.url) as client:
        wait_for(lambda: client.post("/v1/completions", data=b'{"model":"m1"}').status_code == 200)
        yield gateway


@pytest.fixture(scope="module")
def opened(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    gateway = make_gateway(ui=True)
    gateway.route({"m1": [engine.endpoint]})
    with gateway:
        yield gateway


def status(gateway: Standalone, path: str, method: str = "GET") -> int:
    """Requests exactly this path, unnormalized and without a key."""
    line = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=PATIENCE)
    line.request(method, path)
    try:
        return line.getresponse().status
    finally:
        line.close()


@pytest.mark.parametrize("name", FILES)
def test_the_files_of_the_page_need_no_key(guarded: Standalone, name: str) -> None:
    assert status(guarded, f"/ui/{name}") == 200


@pytest.mark.parametrize(
    "path",
    [
        "/ui/api/models",
        "/ui/api/models/services/static/m1",
        "/ui/%61pi/models",
        "/ui//api/models",
        "/ui/./api/models",
        "/ui/main.js/../api/models",
        "/ui/other",
    ],
)
def test_paths_that_are_not_files_of_the_page_need_a_key(guarded: Standalone, path: str) -> None:
    assert status(guarded, path) == 401


def test_with_a_key_the_models_are_shown(guarded: Standalone) -> None:
    with Api(guarded.url) as client:
        body = client.get("/ui/api/models").json()
        assert [model["ids"] for model in body["models"]] == [["m1", "static/m1"]]
        assert body["models"][0]["answered"] >= 1
        assert body["keys"] is True
        assert client.get("/ui/api/models/services/static/m1").json()["services"][0]["endpoints"]


def test_the_front_door_leads_to_the_page(guarded: Standalone) -> None:
    for path in ("/", "/ui"):
        answer = requests.get(f"{guarded.url}{path}", timeout=PATIENCE)
        assert (answer.url, answer.status_code) == (f"{guarded.url}/ui/", 200)
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_page_takes_nothing_but_reading(guarded: Standalone) -> None:
    assert status(guarded, "/ui/", "POST") == 405
    assert status(guarded, "/ui/api/models", "DELETE") == 405
    assert status(guarded, "/", "POST") == 401


def test_the_api_still_needs_its_key(guarded: Standalone) -> None:
    assert status(guarded, "/v1/models") == 401


def test_without_keys_everything_of_the_page_is_open(opened: Standalone) -> None:
    assert status(opened, "/ui/api/models") == 200
    assert status(opened, "/ui/nothing") == 404


def test_without_the_control_process_requests_are_answered_and_the_page_gets_an_error(opened: Standalone) -> None:
    with Api(opened.url) as client:
        wait_for(lambda: client.post("/v1/completions", data=b'{"model":"m1"}').status_code == 200)
        assert opened.control is not None
        opened.control.kill()
        opened.control.wait()
        assert client.get("/ui/api/models").status_code == 503
        assert client.post("/v1/completions", data=b'{"model":"m1"}').status_code == 200
        opened.start_control()
        wait_for(lambda: client.get("/ui/api/models").status_code == 200)


def test_a_gateway_without_the_page_has_nothing_there(make_gateway: Callable[..., Standalone]) -> None:
    gateway = make_gateway()
    with gateway:
        assert [status(gateway, path) for path in ("/", "/ui", "/ui/", "/ui/api/models")] == [404] * 4
