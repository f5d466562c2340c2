"""Requests with label selectors, and the model list filtered by label and feature."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import requests

from tests.gateway.conftest import Engine, cpu_seconds, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone
from tests.selectors import BROKEN, FULFILLED, LABELS, UNFULFILLED

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def chosen(keyless: Standalone, make_engine: Callable[..., Engine]) -> Standalone:
    """A chat model with labels and its adapter, an embedder, and a model without labels and features."""
    endpoints = [make_engine("labelled").endpoint]
    chat = {"labels": LABELS, "features": ["TextGeneration", "Reranking"]}
    keyless.route(
        {
            "chat": {"endpoints": endpoints, "route": chat},
            "chat_fr": {"endpoints": endpoints, "route": chat},
            "embed": {"endpoints": endpoints, "route": {"features": ["TextEmbedding"], "labels": {"app": "embed"}}},
            "plain": endpoints,
        }
    )
    settle(keyless)
    return keyless


def send(gateway: Standalone, method: str, path: str, selectors: Sequence[str], body: bytes = b"") -> tuple[int, Any]:
    """One request with a header for each selector."""
    host = gateway.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.putrequest(method, path)
    connection.putheader("content-length", str(len(body)))
    for text in selectors:
        connection.putheader("X-Label-Selector", text)
    connection.endheaders(body)
    answer = connection.getresponse()
    read = answer.status, json.loads(answer.read())
    connection.close()
    return read


def status(gateway: Standalone, model: str, *selectors: str) -> int:
    code, body = send(gateway, "POST", CHAT, selectors, json.dumps({"model": model}).encode())
    assert code == 200 or body["error"]["message"]
    return code


def listed(gateway: Standalone, query: str = "", *selectors: str) -> list[str]:
    code, body = send(gateway, "GET", f"/openai/v1/models{query}", selectors)
    assert code == 200
    return [card["id"] for card in body["data"]]


def test_a_request_goes_to_a_model_that_its_selector_chooses(chosen: Standalone) -> None:
    assert {text: status(chosen, "chat", text) for text in FULFILLED} == dict.fromkeys(FULFILLED, 200)


def test_a_model_that_the_selector_excludes_gets_404(chosen: Standalone) -> None:
    assert {text: status(chosen, "chat", text) for text in UNFULFILLED} == dict.fromkeys(UNFULFILLED, 404)


def test_an_invalid_selector_is_refused(chosen: Standalone) -> None:
    assert {text: status(chosen, "chat", text) for text in BROKEN} == dict.fromkeys(BROKEN, 400)


LONG = 40_000
CREEPING = {
    "spaces within a list": "app in (a" + " " * LONG + "b)",
    "spaces around a key": " " * (LONG // 2) + "app" + " " * (LONG // 2) + "x",
    "a long key": "a" * LONG,
    "a long word": "app " + "a" * LONG,
    "many slashes": "a/" * (LONG // 2),
    "an open list": "app in (" + "a," * (LONG // 2),
    "many signs": "app" + "=" * LONG,
    "many bounds": "tier>" + "1" * LONG,
}


@pytest.mark.parametrize("case", CREEPING)
def test_a_long_selector_is_refused_soon(chosen: Standalone, case: str) -> None:
    before = cpu_seconds(chosen)
    assert status(chosen, "chat", CREEPING[case]) == 400
    assert cpu_seconds(chosen) - before < 1


def test_several_selectors_all_have_to_choose(chosen: Standalone) -> None:
    assert status(chosen, "chat", "app=chat", "tier=1") == 200
    assert status(chosen, "chat_fr", "app=chat", "tier=1") == 200
    assert status(chosen, "chat", "app=chat", "tier=2") == 404
    assert status(chosen, "embed", "app=chat") == 404
    assert status(chosen, "chat", "none", "app=(") == 400


def test_a_model_without_labels_only_matches_selectors_that_need_none(chosen: Standalone) -> None:
    assert status(chosen, "plain", "!app") == 200
    assert status(chosen, "plain", "app") == 404


def test_changed_labels_take_effect(chosen: Standalone, make_engine: Callable[..., Engine]) -> None:
    table = json.loads(chosen.table.read_text())["models"]
    endpoints = [make_engine("changing").endpoint]
    for team in ("a", "b"):
        table["changing"] = {"endpoints": endpoints, "route": {"labels": {"team": team}}}
        chosen.route(table)
        wait_for(lambda team=team: status(chosen, "changing", f"team={team}") == 200)  # type: ignore[misc]
    del table["changing"]
    chosen.route(table)
    wait_for(lambda: "changing" not in listed(chosen))


def test_by_default_the_list_contains_text_generators_and_models_without_features(chosen: Standalone) -> None:
    assert listed(chosen) == ["chat", "chat_fr", "plain"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?feature=TextEmbedding", ["embed"]),
        ("?feature=Reranking", ["chat", "chat_fr"]),
        ("?feature=TextEmbedding&feature=TextGeneration", ["chat", "chat_fr", "embed"]),
        ("?feature=SpeechToText", []),
    ],
)
def test_the_list_contains_models_with_any_requested_feature(
    chosen: Standalone, query: str, expected: list[str]
) -> None:
    assert listed(chosen, query) == expected


def test_the_list_obeys_label_selectors(chosen: Standalone) -> None:
    assert listed(chosen, "", "app") == ["chat", "chat_fr"]
    assert listed(chosen, "", "app!=chat") == ["plain"]
    assert listed(chosen, "?feature=TextEmbedding", "app in (chat, embed)") == ["embed"]
    assert listed(chosen, "", "app", "tier=2") == []
    assert send(chosen, "GET", "/v1/models", ["app=("])[0] == 400


def test_each_model_is_returned_by_id_regardless_of_its_features(chosen: Standalone) -> None:
    answer = requests.get(f"{chosen.url}/openai/v1/models/embed", timeout=PATIENCE).json()
    assert answer["features"] == ["TextEmbedding"]
    assert send(chosen, "GET", "/v1/models/embed", ["app=embed"])[0] == 200
    assert send(chosen, "GET", "/v1/models/embed", ["app=chat"])[0] == 404
    assert send(chosen, "GET", "/v1/models/embed", ["("])[0] == 400
