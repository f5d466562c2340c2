"""Served paths, paths that reach engines, and errors in the format of each path's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from slipway.serving.routing.paths import PATHS
from tests.gateway.conftest import KEY, Api, Engine, settle
from tests.gateway.standalone import PATIENCE, Standalone

MESSAGES = "/v1/messages"
DECLARED = ["/v1/embeddings", "/v1/audio/transcriptions", "/v2/something/of/a/later/release"]


@pytest.fixture(scope="module")
def api(keyed: Standalone, engine: Engine, make_engine: Callable[..., Engine]) -> Iterator[Api]:
    """`declared` declares its engine's paths, `m1` none; `empty` has no pod, and `dead` one that no longer exists."""
    declared = {"endpoints": [engine.endpoint], "route": {"paths": DECLARED}}
    dead = make_engine("dead")
    keyed.route({"m1": [engine.endpoint], "declared": declared, "empty": [], "dead": [dead.endpoint]}, {"tester": KEY})
    settle(keyed)
    dead.kill()
    with Api(keyed.url) as session:
        yield session


def form(model: str) -> dict[str, Any]:
    return {"files": {"model": (None, model), "file": ("a.wav", b"RIFF")}}


@pytest.mark.parametrize("path", PATHS, ids=lambda one: one.path)
def test_an_undeclared_path_is_refused_before_it_reaches_an_engine(api: Api, engine: Engine, path: Any) -> None:
    before = len(engine.paths)
    answer = api.post(path.path, **(form("declared") if path.form else {"json": {"model": "declared"}}))
    if path.path in DECLARED:
        assert (answer.status_code, engine.paths[-1]) == (200, path.path)
        return
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unsupported_endpoint")
    assert "`declared`" in answer.json()["error"]["message"]
    assert len(engine.paths) == before


@pytest.mark.parametrize("path", PATHS, ids=lambda one: one.path)
@pytest.mark.parametrize("model", ["m1", "static/m1"])
def test_a_route_that_declares_nothing_gets_them_all(api: Api, engine: Engine, path: Any, model: str) -> None:
    answer = api.post(path.path, **(form(model) if path.form else {"json": {"model": model, "pad": "x" * 20}}))
    assert (answer.status_code, engine.paths[-1]) == (200, path.path)


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens", f"/openai{MESSAGES}"])
@pytest.mark.parametrize(
    ("method", "body", "status", "kind", "code"),
    [
        ("GET", None, 405, "invalid_request_error", "method_not_supported"),
        ("POST", [], 400, "invalid_request_error", None),
        ("POST", {"model": 'no"pe'}, 404, "not_found_error", "model_not_found"),
        ("POST", {"model": "declared"}, 404, "not_found_error", "unsupported_endpoint"),
        ("POST", {"model": "empty"}, 503, "overloaded_error", "model_not_ready"),
        ("POST", {"model": "dead"}, 503, "overloaded_error", "model_not_ready"),
        ("POST", {"model": "m1", "pad": "x" * (5 << 20)}, 413, "request_too_large", "request_too_large"),
    ],
)
def test_on_paths_of_anthropics_protocol_our_errors_have_its_shape(
    api: Api, path: str, method: str, body: Any, status: int, kind: str, code: str | None
) -> None:
    refuses(api.request(method, path, json=body, headers={"x-request-id": "req-1"}), status, kind, code)


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens", f"/openai{MESSAGES}"])
@pytest.mark.parametrize("model", ["m1", "static/m1"])
def test_an_engine_timeout_has_that_shape_as_well(hasty: Api, path: str, model: str) -> None:
    body = {"model": model, "x": {"delay": 3 * PATIENCE}}
    answer = hasty.post(path, json=body, headers={"x-request-id": "req-1"})
    refuses(answer, 504, "timeout_error", "upstream_timeout")


def refuses(answer: requests.Response, status: int, kind: str, code: str | None) -> None:
    """Asserts that the answer to request `req-1` is this error in Anthropic's format."""
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", kind, code)
    assert (body["error"]["message"] != "", body["request_id"]) == (True, "req-1")


def test_the_error_about_a_missing_key_has_anthropics_format(api: Api) -> None:
    answer = requests.post(f"{api.url}{MESSAGES}", json={"model": "m1"}, timeout=PATIENCE)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"


def test_headers_of_anthropics_protocol_reach_the_engine_and_its_key_does_not(api: Api, engine: Engine) -> None:
    sent = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking-2025-05-14"}
    answer = requests.post(f"{api.url}{MESSAGES}", json={"model": "m1"}, headers=sent, timeout=PATIENCE)
    assert answer.status_code == 200
    assert {name: engine.headers[-1].get(name) for name in sent} == {**sent, "x-api-key": None}
