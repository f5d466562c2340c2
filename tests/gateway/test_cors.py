"""Answers to browsers about pages of other origins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import aiohttp
import pytest
import requests

from tests.gateway.conftest import KEY, Api, Engine, settle
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"
NAMED, OTHER = "https://chat.example.org", "https://evil.example"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}


@pytest.fixture(scope="module")
def api(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Api]:
    """For pages of two origins."""
    gateway = make_gateway(apiKeysSecret="keys", corsOrigins=[NAMED, "http://localhost:3000"])
    gateway.route({"m1": [engine.endpoint]}, {"tester": KEY})
    with gateway, Api(gateway.url) as session:
        settle(gateway)
        yield session


def cors_headers(answer: requests.Response) -> dict[str, str]:
    return {name.lower(): text for name, text in answer.headers.items() if name.lower().startswith("access-control-")}


def preflight(api: Api, origin: str, path: str = CHAT) -> requests.Response:
    return requests.options(f"{api.url}{path}", headers={"origin": origin, **ASKED}, timeout=PATIENCE)


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/messages", "/v1/responses/resp_1?model=m1"])
@pytest.mark.parametrize("origin", [NAMED, "http://localhost:3000"])
def test_a_page_of_a_named_origin_may_ask_and_needs_no_key_to_ask_whether(api: Api, origin: str, path: str) -> None:
    answer = preflight(api, origin, path)
    headers = cors_headers(answer)
    assert (answer.status_code, answer.content) == (204, b"")
    assert headers["access-control-allow-origin"] == origin
    assert headers["access-control-allow-headers"] == ASKED["access-control-request-headers"]
    assert "POST" in headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("status", [200, 404])
def test_an_allowed_origin_reads_answers_errors_and_headers(api: Api, status: int) -> None:
    answer = api.post(CHAT, json={"model": "m1" if status == 200 else "nope"}, headers={"origin": NAMED})
    assert answer.status_code == status
    assert cors_headers(answer)["access-control-allow-origin"] == NAMED
    assert "x-request-id" in cors_headers(answer)["access-control-expose-headers"]
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize("origin", [OTHER, f"{NAMED}.evil.example", NAMED.upper(), "null", f"{NAMED}:443"])
def test_a_page_of_another_origin_gets_no_cors_headers(api: Api, origin: str) -> None:
    assert (preflight(api, origin).status_code, cors_headers(preflight(api, origin))) == (401, {})
    assert cors_headers(api.post(CHAT, json={"model": "m1"}, headers={"origin": origin})) == {}


def test_cors_headers_of_engines_are_removed(api: Api) -> None:
    allowing = {"model": "m1", "x": {"headers": {"access-control-allow-origin": "*"}}}
    assert cors_headers(api.post(CHAT, json=allowing, headers={"origin": OTHER})) == {}
    assert (
        cors_headers(api.post(CHAT, json=allowing, headers={"origin": NAMED}))["access-control-allow-origin"] == NAMED
    )


def test_without_configured_origins_no_answer_has_cors_headers(client: Api) -> None:
    answer = client.options(CHAT, headers={"origin": NAMED, **ASKED})
    assert (answer.status_code, cors_headers(answer)) == (405, {})


async def test_a_page_of_a_named_origin_may_open_a_session(api: Api) -> None:
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}", "origin": NAMED}) as client,
        client.ws_connect(f"{api.url}/v1/realtime?model=m1") as session,
    ):
        await session.send_str("hello")
        assert (await session.receive_str(timeout=PATIENCE)).endswith("hello")
