"""A key is accepted in every form that the protocols' clients use, and reaches no engine and no log."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
import requests

from tests.gateway.conftest import KEY, Engine, settle
from tests.gateway.standalone import PATIENCE, Standalone

CHAT, REALTIME = "/v1/chat/completions", "/v1/realtime?model=m1"
ITEM = "openai-insecure-api-key."
HEADERS = [{"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}, {"api-key": KEY}]
OFFERS = [
    (f"realtime, {ITEM}{KEY}", "realtime"),
    (f"{ITEM}{KEY},realtime,openai-beta.realtime-v1", "realtime, openai-beta.realtime-v1"),
    (f"realtime,  {ITEM}{KEY} , openai-organization.org, {ITEM}other", "realtime, openai-organization.org"),
    (f"{ITEM}{KEY}", None),
    (f"realtime, OpenAI-Insecure-API-Key.{KEY}", "realtime"),
]
QUERIES = [f"&api-key={KEY}", "&api-key=" + "".join(f"%{ord(letter):02x}" for letter in KEY)]


@pytest.fixture(scope="module", params=["keyed", "keyless"])
def gateway(request: pytest.FixtureRequest, engine: Engine) -> Standalone:
    standalone: Standalone = request.getfixturevalue(request.param)
    standalone.route({"m1": [engine.endpoint]}, {"tester": KEY} if request.param == "keyed" else {})
    settle(standalone)
    return standalone


def asks_for_keys(gateway: Standalone) -> bool:
    return bool(gateway.settings.get("apiKeysSecret"))


@pytest.mark.parametrize("headers", HEADERS, ids=lambda headers: next(iter(headers)))
def test_a_header_with_a_key_counts_and_goes_no_further(
    gateway: Standalone, engine: Engine, headers: dict[str, str]
) -> None:
    answer = requests.post(f"{gateway.url}{CHAT}", json={"model": "m1"}, headers=headers, timeout=PATIENCE)
    assert answer.status_code == HTTPStatus.OK
    assert KEY not in str(engine.headers[-1])
    wrong = {name: value.replace(KEY, "sk-wrong") for name, value in headers.items()}
    refused = requests.post(f"{gateway.url}{CHAT}", json={"model": "m1"}, headers=wrong, timeout=PATIENCE)
    assert refused.status_code == (401 if asks_for_keys(gateway) else 200)
    assert "sk-wrong" not in str(engine.headers[-1])
    assert requests.get(f"{gateway.url}/v1/models", headers=headers, timeout=PATIENCE).status_code == HTTPStatus.OK


@pytest.mark.parametrize(("offered", "left"), OFFERS)
async def test_an_item_of_the_subprotocol_counts_and_goes_no_further(
    gateway: Standalone, engine: Engine, offered: str, left: str | None
) -> None:
    assert await opened(gateway, REALTIME, offered) == HTTPStatus.SWITCHING_PROTOCOLS
    assert engine.headers[-1].get("sec-websocket-protocol") == left
    assert KEY not in str(engine.headers[-1])
    wrong = await opened(gateway, REALTIME, offered.replace(KEY, "sk-wrong"))
    assert wrong == (HTTPStatus.UNAUTHORIZED if asks_for_keys(gateway) else HTTPStatus.SWITCHING_PROTOCOLS)


@pytest.mark.parametrize("query", QUERIES)
async def test_a_key_in_the_query_of_a_session_counts_and_goes_no_further(
    gateway: Standalone, engine: Engine, query: str
) -> None:
    assert await opened(gateway, f"{REALTIME}{query}&intent=x", "realtime") == HTTPStatus.SWITCHING_PROTOCOLS
    assert engine.queries[-1] == "model=m1&intent=x"
    assert KEY not in str(engine.headers[-1])


async def test_a_header_goes_before_an_item(keyed: Standalone, engine: Engine) -> None:
    keyed.route({"m1": [engine.endpoint]}, {"tester": KEY})
    settle(keyed)
    wrong = {"authorization": "Bearer sk-wrong"}
    assert await opened(keyed, REALTIME, f"realtime, {ITEM}{KEY}", wrong) == HTTPStatus.UNAUTHORIZED
    right = {"authorization": f"Bearer {KEY}"}
    assert await opened(keyed, REALTIME, f"realtime, {ITEM}sk-wrong", right) == HTTPStatus.SWITCHING_PROTOCOLS
    assert await opened(keyed, REALTIME, f"realtime, {ITEM}") == HTTPStatus.UNAUTHORIZED


async def test_a_password_that_a_browser_sends_does_not_hide_an_item(keyed: Standalone, engine: Engine) -> None:
    """Browsers send what they know of the host's basic authentication with a WebSocket as well."""
    keyed.route({"m1": [engine.endpoint]}, {"tester": KEY})
    settle(keyed)
    basic = {"authorization": "Basic dXNlcjpwYXNzd29yZA=="}
    assert await opened(keyed, REALTIME, f"realtime, {ITEM}{KEY}", basic) == HTTPStatus.SWITCHING_PROTOCOLS
    assert await opened(keyed, f"{REALTIME}&api-key={KEY}", "realtime", basic) == HTTPStatus.SWITCHING_PROTOCOLS
    assert await opened(keyed, REALTIME, f"realtime, {ITEM}sk-wrong", basic) == HTTPStatus.UNAUTHORIZED
    assert await opened(keyed, REALTIME, "realtime", basic) == HTTPStatus.UNAUTHORIZED


def test_a_key_in_the_query_of_another_path_does_not_count_and_goes_no_further(
    gateway: Standalone, engine: Engine
) -> None:
    url = f"{gateway.url}{CHAT}?a=1&api-key={KEY}&api-key=more&b=%26"
    refused = requests.post(url, json={"model": "m1"}, timeout=PATIENCE)
    assert refused.status_code == (401 if asks_for_keys(gateway) else 200)
    answer = requests.post(url, json={"model": "m1"}, headers=HEADERS[0], timeout=PATIENCE)
    assert answer.status_code == HTTPStatus.OK
    assert engine.queries[-1] == "a=1&b=%26"


def test_nothing_of_a_key_stands_in_a_log(gateway: Standalone) -> None:
    for name in ("haproxy.log", "control.log"):
        assert KEY not in Path(gateway.directory / name).read_text()


async def opened(gateway: Standalone, path: str, offered: str, headers: dict[str, str] | None = None) -> int:
    """Returns the status of the answer to a WebSocket with these subprotocols."""
    sent = {"sec-websocket-protocol": offered, **(headers or {})}
    async with aiohttp.ClientSession(headers=sent) as client:
        try:
            async with client.ws_connect(f"{gateway.url}{path}") as session:
                await session.send_str("hello")
                await session.receive_str(timeout=PATIENCE)
                return HTTPStatus.SWITCHING_PROTOCOLS
        except aiohttp.WSServerHandshakeError as refusal:
            return refusal.status
