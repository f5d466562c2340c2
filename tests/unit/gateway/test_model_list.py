"""The model list: one answer for each table, filters, bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from slipway.gateway.control import http_api
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.selector import HEADER
from slipway.gateway.routing.table import Backend, Card, RoutingTable


def table(*cards: Card) -> RoutingTable:
    backends = {card.id: Backend(card.namespace, card.id, ()) for card in cards}
    return RoutingTable(backends, {}, {card.id: card for card in cards}, tuple(sorted(card.id for card in cards)))


def card(model: str, *features: str, **labels: str) -> Card:
    return Card(model, 7, "slipway", "ns", source="hf:a/b", features=features, labels=labels)


MODELS = table(card("chat", "TextGeneration", team="a"), card("vectors", "TextEmbedding", team="b"), card("plain"))


class Current:
    def __init__(self) -> None:
        self.table = MODELS


@pytest.fixture
def current() -> Current:
    return Current()


@pytest.fixture
async def client(current: Current) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(http_api.build_model_list(lambda: current.table))) as test_client:
        yield test_client


async def listed(client: TestClient[Any, Any], query: str = "", *selectors: str) -> Sequence[str]:
    headers = [(HEADER, text) for text in selectors]
    async with client.get(f"/v1/models{query}", headers=headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        body = await answer.json()
    assert body["object"] == "list"
    return [model["id"] for model in body["data"]]


async def test_the_list_is_filtered_by_features_and_labels(client: TestClient[Any, Any]) -> None:
    assert await listed(client) == ["chat", "plain"]
    assert await listed(client, "?feature=TextEmbedding") == ["vectors"]
    assert await listed(client, "?feature=TextEmbedding&feature=TextGeneration") == ["chat", "vectors"]
    assert await listed(client, "", "team=a") == ["chat"]
    assert await listed(client, "?feature=TextEmbedding", "team in (a, b)") == ["vectors"]
    assert await listed(client, "", "team=a", "team=b") == []
    async with client.get("/v1/models") as answer:
        assert (await answer.json())["data"][0] == {
            "id": "chat",
            "object": "model",
            "created": 7,
            "owned_by": "slipway",
            "namespace": "ns",
            "features": ["TextGeneration"],
            "source": "hf:a/b",
        }


async def test_a_card_is_encoded_once_per_table_for_any_number_of_requests(
    client: TestClient[Any, Any], current: Current, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    public = Card.to_json
    monkeypatch.setattr(Card, "to_json", lambda self: written.append(self.id) or public(self))
    for query in ("", "", "?feature=TextEmbedding", "?feature=TextGeneration", ""):
        await listed(client, query)
    assert sorted(written) == ["chat", "plain", "vectors"]
    current.table = table(card("new"))
    assert await listed(client) == ["new"]
    assert await listed(client) == ["new"]
    assert written[3:] == ["new"]


async def test_a_long_selector_is_refused(client: TestClient[Any, Any]) -> None:
    exact = ",".join(["!aa"] * 256)
    assert await listed(client, "", exact) == ["chat", "plain"]
    for path in ("/v1/models", "/v1/models/chat"):
        async with client.get(path, headers=[(HEADER, exact), (HEADER, "!aa")]) as answer:
            assert answer.status == 400
            assert "1024 characters" in (await answer.json())["error"]["message"]


@pytest.mark.parametrize("path", ["chat%00zzz", "chat%0Ax", "nope", "%22%7D", "ch%C3%A4t"])
async def test_an_id_with_a_nul_or_control_characters_gets_404(client: TestClient[Any, Any], path: str) -> None:
    async with client.get(f"/v1/models/{path}") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "model_not_found"


class Waited(asyncio.Event):
    """An event that records when a task waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.waited.set()
        return await super().wait()


async def test_before_the_first_table_the_list_is_waited_for(current: Current) -> None:
    """An empty list would mean that no models exist."""
    first_table = Waited()
    application = http_api.build_model_list(lambda: current.table)
    application.middlewares.append(http_api.wait_for_table(first_table))
    async with TestClient(TestServer(application)) as client:
        request = asyncio.create_task(listed(client))
        await first_table.waited.wait()
        assert not request.done()
        first_table.set()
        assert await request == ["chat", "plain"]


async def test_a_request_that_waits_for_the_first_table_in_vain_gets_an_error(
    current: Current, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_api, "TABLE_SECONDS", 0.01)
    application = http_api.build_model_list(lambda: current.table)
    application.middlewares.append(http_api.wait_for_table(asyncio.Event()))
    async with TestClient(TestServer(application)) as client, client.get("/v1/models") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert (await answer.json())["error"]["code"] == "models_unknown"


async def test_a_slash_behind_the_list_changes_nothing(client: TestClient[Any, Any]) -> None:
    assert await listed(client, "/") == ["chat", "plain"]
    assert await listed(client, "/?feature=TextEmbedding") == ["vectors"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models//", 404),
        ("GET", "/v1/models/%00%ff", 404),
        ("GET", f"/v1/models/{'x' * 5_000}", 404),
        ("GET", "/v1/model", 404),
        ("GET", "/", 404),
        ("POST", "/v1/models", 405),
        ("DELETE", "/v1/models/chat", 405),
    ],
)
async def test_every_error_has_the_shape_of_openai(
    client: TestClient[Any, Any], method: str, path: str, status: int
) -> None:
    async with client.request(method, URL(path, encoded=True)) as answer:
        assert (answer.status, answer.content_type) == (status, "application/json")
        assert (await answer.json())["error"].keys() == {"message", "type", "param", "code"}


async def test_an_internal_error_has_openais_format() -> None:
    def broken() -> RoutingTable:
        raise RuntimeError("secret of the program")

    async with TestClient(TestServer(http_api.build_model_list(broken))) as client, client.get("/v1/models") as answer:
        assert answer.status == 500
        text = await answer.text()
        assert "secret" not in text
        assert json.loads(text)["error"]["type"] == "server_error"


async def test_errors_of_the_port_for_health_have_openais_format() -> None:
    async def refresh() -> None:
        raise RuntimeError("HAProxy does not answer")

    async def count(_services: Sequence[str]) -> Mapping[str, int]:
        raise CommandError("HAProxy does not answer")

    application = http_api.build_operations(lambda: True, refresh, lambda: b"", count)
    many = "&".join(f"service=a/{number}" for number in range(http_api.MOST_COUNTED + 1))
    paths = {"/nothing": 404, "/metrics": 500, "/requests?service=a/b": 503, f"/requests?{many}": 400}
    async with TestClient(TestServer(application)) as client:
        for path, status in paths.items():
            async with client.get(path) as answer:
                assert answer.status == status
                assert (await answer.json())["error"]["message"]


async def test_the_controller_reads_the_requests_of_the_services_that_it_names() -> None:
    async def refresh() -> None:
        raise AssertionError("the metrics of all models are not read")

    async def count(services: Sequence[str]) -> Mapping[str, int]:
        return {service: 2 for service in services if service == "team/a"}

    application = http_api.build_operations(lambda: True, refresh, lambda: b"", count)
    async with (
        TestClient(TestServer(application)) as client,
        client.get("/requests?service=team/a&service=b/c") as answer,
    ):
        assert await answer.json() == {"team/a": 2}
