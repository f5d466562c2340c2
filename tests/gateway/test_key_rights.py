"""Rights of API keys: models, requests and tokens, as clients see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.gateway.conftest import Api, Engine, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"
REFUSED = {"theirs": "NotAllowed", "their/theirs": "NotAllowed", "mine": "InvalidSpec", "my/bad": "InvalidSpec"}
RIGHTS: dict[str, dict[str, Any]] = {
    "reader": {"models": ["m2"]},
    "team": {"selector": "team=search"},
    "space": {"models": ["static/*"]},
    "named": {"models": ["m2", "mine", "my/*"]},
    "few": {"requestsPerMinute": 3},
    "spender": {"tokensPerMinute": 50},
    "single": {"requestsAtOnce": 2},
}
NAMES = ("free", *RIGHTS)


def key(name: str) -> str:
    return f"sk-{name}-secret"


@pytest.fixture(scope="module")
def limited(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True)
    models = {
        "m1": [engine.endpoint],
        "m2": [engine.endpoint],
        "m3": {"endpoints": [engine.endpoint], "route": {"labels": {"team": "search"}, "models": ["m3"]}},
    }
    gateway.route(models, {name: key(name) for name in NAMES}, REFUSED, RIGHTS)
    with gateway:
        settle(gateway)
        yield gateway


def ask(gateway: Standalone, name: str, model: str, **options: Any) -> requests.Response:
    with Api(gateway.url, key(name)) as api:
        return api.post(CHAT, json={"model": model, "x": options})


def listed(gateway: Standalone, name: str) -> list[str]:
    with Api(gateway.url, key(name)) as api:
        return sorted(model["id"] for model in api.get("/v1/models").json()["data"])


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("free", "Did you mean `m1`?"),
        ("reader", "GET /v1/models lists the models."),
        ("team", "GET /v1/models lists the models."),
        ("space", "GET /v1/models lists the models."),
    ],
)
@pytest.mark.parametrize("model", ["mm1", "M1", "m1:latest"])
def test_no_id_is_suggested_to_a_key_that_may_not_use_all_models(
    limited: Standalone, name: str, advice: str, model: str
) -> None:
    error = ask(limited, name, model).json()["error"]
    assert error["message"] == f"The model `{model}` does not exist. {advice}"


def count_requests(engine: Engine) -> int:
    return len(engine.bodies)


@pytest.mark.parametrize(
    ("name", "models"),
    [("free", ["m1", "m2", "m3"]), ("reader", ["m2"]), ("team", ["m3"]), ("space", ["m1", "m2", "m3"])],
)
def test_a_key_lists_and_uses_only_its_models(
    limited: Standalone, engine: Engine, name: str, models: list[str]
) -> None:
    assert listed(limited, name) == models
    for model in ("m1", "m2", "m3"):
        before = count_requests(engine)
        answer = ask(limited, name, model)
        with Api(limited.url, key(name)) as api:
            status = api.get(f"/v1/models/{model}").status_code
        if model in models:
            assert (answer.status_code, status) == (200, 200)
        else:
            assert (answer.status_code, status) == (404, 404)
            assert answer.json()["error"]["code"] == "model_not_found"
            assert count_requests(engine) == before, "the engine was not asked"


@pytest.mark.parametrize(
    ("name", "learned"),
    [("free", set(REFUSED)), ("reader", set()), ("team", set()), ("space", set()), ("named", {"mine", "my/bad"})],
)
def test_a_key_gets_the_reason_of_a_refused_model_only_if_it_may_use_it(
    limited: Standalone, name: str, learned: set[str]
) -> None:
    with Api(limited.url, key(name)) as api:
        for model in (*REFUSED, "nothing"):
            answers = {
                "chat": api.post(CHAT, json={"model": model}),
                "card": api.get(f"/v1/models/{model}"),
                "stored response": api.get("/v1/responses/resp_1", params={"model": model}),
            }
            for place, answer in answers.items():
                expected = (503, "model_not_ready") if model in learned else (404, "model_not_found")
                assert (answer.status_code, answer.json()["error"]["code"]) == expected, (place, model)
                assert ("rejected" in answer.text) == (model in learned), (place, model)


def test_a_client_cannot_pass_for_another_key_at_the_model_list(limited: Standalone) -> None:
    with Api(limited.url, key("reader")) as api:
        answer = api.get("/v1/models", headers={"x-slipway-key": "free"})
    assert [model["id"] for model in answer.json()["data"]] == ["m2"]


def test_the_key_may_stand_in_the_header_of_anthropics_clients_and_reaches_no_engine(
    limited: Standalone, engine: Engine
) -> None:
    headers = {"x-api-key": key("free")}
    answer = requests.post(f"{limited.url}{CHAT}", json={"model": "m1"}, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 200
    assert not {"x-api-key", "authorization"} & engine.headers[-1].keys()
    headers = {"x-api-key": "sk-wrong"}
    assert requests.get(f"{limited.url}/v1/models", headers=headers, timeout=PATIENCE).status_code == 401


def test_requests_beyond_a_minutes_number_get_429_and_reach_no_engine(limited: Standalone, engine: Engine) -> None:
    allowed = [ask(limited, "few", "m1") for _unused in range(3)]
    assert [answer.status_code for answer in allowed] == [200] * 3
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in allowed] == ["2", "1", "0"]
    assert allowed[0].headers["x-ratelimit-limit-requests"] == "3"
    before = count_requests(engine)
    refused = ask(limited, "few", "m1")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) > 0
    assert count_requests(engine) == before
    assert "x-ratelimit-limit-requests" not in ask(limited, "free", "m1").headers


def test_tokens_of_answers_count_against_the_key(limited: Standalone, engine: Engine) -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 30, "completion_tokens": 25}})
    first = ask(limited, "spender", "m1", pieces=[usage])
    assert (first.status_code, first.headers["x-ratelimit-remaining-tokens"]) == (200, "50")
    wait_for(lambda: ask(limited, "spender", "m1").status_code == 429)
    before = count_requests(engine)
    refused = ask(limited, "spender", "m1")
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "tokens")
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    assert count_requests(engine) == before


def test_requests_at_once_are_bounded_and_free_again_at_their_end(limited: Standalone, engine: Engine) -> None:
    busy = engine.active
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(ask, limited, "single", "m1", held=True) for _unused in range(2)]
        wait_for(lambda: engine.active == busy + 2)
        refused = ask(limited, "single", "m1")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        engine.release(2)
        assert [answer.result(PATIENCE).status_code for answer in running] == [200, 200]
    wait_for(lambda: ask(limited, "single", "m1").status_code == 200)


def test_no_key_is_written_anywhere(limited: Standalone) -> None:
    written = [path for path in limited.directory.rglob("*") if path.is_file() and path != limited.table]
    assert not [path for path in written if "-secret" in path.read_text(errors="replace")]
