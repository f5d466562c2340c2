"""Requests that name their model in the query: stored responses, and sessions of the Realtime API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus

import aiohttp
import pytest
import requests

from tests.gateway.conftest import KEY, Api, Engine, settle
from tests.gateway.standalone import PATIENCE, Standalone

ONLY_PLAIN = "sk-only-plain"
RESPONSES = "/v1/responses"
REALTIME = "/v1/realtime"


@pytest.fixture(scope="module")
def pods(make_engine: Callable[..., Engine]) -> list[Engine]:
    """Three pods of one model. Each has a response that no other pod has."""
    engines = [make_engine(name) for name in ("one", "two", "three")]
    for pod in engines:
        pod.responses.add(f"resp_{pod.name}")
    return engines


@pytest.fixture(scope="module")
def gateway(keyed: Standalone, engine: Engine, pods: list[Engine]) -> Standalone:
    models = {
        "stored": [pod.endpoint for pod in pods],
        "plain": [engine.endpoint],
        "declared": {"endpoints": [engine.endpoint], "route": {"paths": ["/v1/responses"]}},
        "empty": [],
    }
    keyed.route(models, {"all": KEY, "plain": ONLY_PLAIN}, rights={"plain": {"models": ["plain"]}})
    settle(keyed)
    return keyed


@pytest.fixture
def other(make_gateway: Callable[..., Standalone], gateway: Standalone) -> Iterator[Standalone]:
    """A second, independent gateway with the same table."""
    twin = make_gateway(apiKeysSecret="keys", holdSeconds=1)
    twin.table.write_bytes(gateway.table.read_bytes())
    with twin:
        settle(twin)
        yield twin


@pytest.fixture(scope="module")
def api(gateway: Standalone) -> Iterator[Api]:
    with Api(gateway.url) as session:
        yield session


def engine_of(answer: requests.Response) -> str:
    assert answer.status_code == HTTPStatus.OK, answer.text
    return answer.headers["x-engine"]


@pytest.mark.parametrize("name", ["one", "two", "three"])
@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]
)
@pytest.mark.parametrize("prefix", ["", "/openai"])
def test_a_stored_response_comes_from_the_pod_that_has_it(
    api: Api, pods: list[Engine], name: str, method: str, rest: str, prefix: str
) -> None:
    answer = api.request(method, f"{prefix}{RESPONSES}/resp_{name}{rest}?model=stored&limit=5")
    assert engine_of(answer) == name
    assert next(pod for pod in pods if pod.name == name).paths[-1] == f"{RESPONSES}/resp_{name}{rest}"


def test_every_gateway_finds_a_stored_response_even_after_a_restart(gateway: Standalone, other: Standalone) -> None:
    for url in (gateway.url, other.url):
        with Api(url) as api:
            assert engine_of(api.get(f"{RESPONSES}/resp_two?model=static/stored")) == "two"
    other.kill_haproxy()
    other.start_haproxy()
    other.wait_ready()
    settle(other)
    with Api(other.url) as api:
        assert engine_of(api.get(f"{RESPONSES}/resp_three?model=stored")) == "three"


def test_an_engine_answers_for_a_response_that_no_pod_has(api: Api) -> None:
    answer = api.get(f"{RESPONSES}/resp_none?model=stored")
    assert (answer.status_code, answer.json()) == (404, {"error": {"message": "There is no such response."}})


def test_a_key_that_may_not_ask_the_model_reaches_none_of_its_responses(api: Api, pods: list[Engine]) -> None:
    before = [len(pod.paths) for pod in pods]
    answer = requests.get(
        f"{api.url}{RESPONSES}/resp_one?model=stored", headers={"x-api-key": ONLY_PLAIN}, timeout=PATIENCE
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert [len(pod.paths) for pod in pods] == before


def test_the_engine_sees_no_key(api: Api, engine: Engine) -> None:
    engine.responses.add("resp_0")
    assert api.get(f"{RESPONSES}/resp_0?model=plain", headers={"x-api-key": KEY}).status_code == HTTPStatus.OK
    assert not {"authorization", "x-api-key", "x-slipway-backend"} & set(engine.headers[-1])


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"{RESPONSES}/resp_one", 400, None),
        ("GET", f"{RESPONSES}/resp_one?model=", 400, None),
        ("GET", f"{RESPONSES}/resp_one?model=stored&model=plain", 400, None),
        ("GET", f"{RESPONSES}/resp_one?model=stored&mode%6c=plain", 400, None),
        ("GET", f"{RESPONSES}/resp_one?a=1;model=stored&model=plain", 400, None),
        ("GET", f"{RESPONSES}/resp_one?model=nope", 404, "model_not_found"),
        ("GET", f"{RESPONSES}/resp_one?model=empty", 404, "response_not_found"),
        ("GET", f"{RESPONSES}/resp_one?model=declared", 404, "unsupported_endpoint"),
        ("POST", f"{RESPONSES}/resp_one?model=stored", 405, "method_not_supported"),
        ("GET", f"{RESPONSES}/resp_one/cancel?model=stored", 405, "method_not_supported"),
        ("GET", f"{RESPONSES}/resp_one/other?model=stored", 404, "unknown_url"),
        ("GET", f"{RESPONSES}/a%2Fb?model=stored", 404, "unknown_url"),
        ("GET", f"{RESPONSES}/{'x' * 129}?model=stored", 404, "unknown_url"),
        ("GET", f"{REALTIME}?model=plain", 400, None),
        ("POST", f"{REALTIME}?model=plain", 405, "method_not_supported"),
    ],
)
def test_invalid_requests_with_a_query_are_refused(
    api: Api, method: str, path: str, status: int, code: str | None
) -> None:
    answer = api.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_body_of_any_size_is_of_no_use_there(api: Api) -> None:
    answer = api.post(f"{RESPONSES}/resp_one/cancel?model=stored", data=b"x" * 60000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


async def test_a_session_goes_both_ways(api: Api, engine: Engine) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.ws_connect(f"{api.url}{REALTIME}?model=plain") as session,
    ):
        for text in ("hello", "x" * 100_000):
            await session.send_str(text)
            assert await session.receive_str(timeout=PATIENCE) == f"{engine.name}: {text}"
    assert "authorization" not in engine.headers[-1]


async def test_a_page_of_an_origin_that_is_not_allowed_gets_no_session(api: Api) -> None:
    headers = {"authorization": f"Bearer {KEY}", "origin": "https://evil.example"}
    async with aiohttp.ClientSession(headers=headers) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await client.ws_connect(f"{api.url}{REALTIME}?model=plain")
    assert refusal.value.status == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(("model", "status"), [("nope", 404), ("declared", 404), ("empty", 503)])
async def test_a_session_that_cannot_be_is_refused(api: Api, model: str, status: int) -> None:
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await client.ws_connect(f"{api.url}{REALTIME}?model={model}")
    assert refusal.value.status == status
