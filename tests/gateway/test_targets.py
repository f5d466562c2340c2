"""Routes with several targets: shares, conditions, fallbacks and names, with a real HAProxy."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.gateway.conftest import KEY, Api, Engine, ask_haproxy, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone

CHAT, COMPLETIONS, TRANSCRIPTIONS = "/v1/chat/completions", "/v1/completions", "/v1/audio/transcriptions"
ONE_OR_THE_OTHER = [{"service": "a"}, {"service": "b", "order": 1}]


class Bench:
    """A gateway with the models ``a`` and ``b``, each with an engine, and the route ``r``, which leads to them."""

    def __init__(self, gateway: Standalone, engines: dict[str, Engine]) -> None:
        self.gateway, self.engines = gateway, engines

    def route(
        self, *targets: dict[str, Any], down: str = "", keys: Any = None, rights: Any = None, **others: Any
    ) -> None:
        """`down`: the models that have no endpoint. `others`: what routes say beside, by model."""
        models = {
            name: {"endpoints": [] if name in down else [engine.endpoint], "route": others.get(name, {})}
            for name, engine in self.engines.items()
        }
        models["r"] = {"endpoints": [], "route": {"targets": list(targets), **others.get("r", {})}}
        self.gateway.route(models, keys or {"tester": KEY}, rights=rights)
        settle(self.gateway)
        for engine in self.engines.values():
            engine.bodies.clear()
            engine.headers.clear()

    def ask(self, model: str = "r", path: str = CHAT, headers: dict[str, str] | None = None, **body: Any) -> Any:
        with Api(self.gateway.url) as session:
            return session.post(path, data=json.dumps({"model": model, **body}), headers=headers)

    def answered_by(self, *args: Any, **options: Any) -> str:
        """Returns the engine that answered, or the status."""
        answer = self.ask(*args, **options)
        return answer.headers.get("x-engine", str(answer.status_code)) if answer.status_code < 500 else "failed"


@pytest.fixture(scope="module")
def engines(make_engine: Callable[..., Engine]) -> dict[str, Engine]:
    return {"a": make_engine("a"), "b": make_engine("b")}


@pytest.fixture(scope="module")
def served(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    with make_gateway(apiKeysSecret="keys", holdSeconds=2, threads=2, countTokens=True) as gateway:
        yield gateway


@pytest.fixture
def bench(served: Standalone, engines: dict[str, Engine]) -> Bench:
    return Bench(served, engines)


def test_weights_are_met_within_a_point(bench: Bench) -> None:
    bench.route({"service": "a", "weight": 7}, {"service": "b", "weight": 3})
    with Api(bench.gateway.url) as session:
        counts = Counter(session.post(CHAT, data='{"model":"r"}').headers["x-engine"] for _unused in range(2000))
    assert abs(counts["a"] / 20 - 70) < 1
    assert counts["a"] + counts["b"] == 2000


def test_only_targets_with_an_endpoint_share_an_order(bench: Bench) -> None:
    bench.route({"service": "a", "weight": 99}, {"service": "b", "weight": 0}, down="a")
    assert {bench.answered_by() for _unused in range(10)} == {"b"}


def test_the_first_order_answers_while_it_can_and_costs_no_hop(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER, down="b")
    before = turns(bench.gateway)
    assert {bench.answered_by() for _unused in range(5)} == {"a"}
    assert turns(bench.gateway) == before, "without an alternative, the request is sent as usual"
    bench.route(*ONE_OR_THE_OTHER)
    assert {bench.answered_by() for _unused in range(5)} == {"a"}
    assert turns(bench.gateway) == before + 5


def timeouts(gateway: Standalone) -> float:
    """Requests that waited for the model a in vain."""
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    name = 'slipway_gateway_requests_refused_total{model="a",namespace="static",reason="timeout"} '
    return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


def turns(gateway: Standalone) -> int:
    """Requests that the hop had."""
    rows = ask_haproxy(gateway, "show stat turns 2 -1").splitlines()
    head, row = rows[0].removeprefix("# ").split(","), rows[1].split(",")
    return int(row[head.index("stot")])


def test_a_model_whose_pods_are_gone_answers_by_its_fallback_at_once(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER, down="a")
    before = timeouts(bench.gateway)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: [bench.answered_by() for _unused in range(50)])
        counts = {waiting(bench.gateway)}
        while not future.done():
            counts.add(waiting(bench.gateway))
    assert future.result() == ["b"] * 50
    assert counts == {0}, "no request waits"
    assert timeouts(bench.gateway) == before


def test_requests_fall_back_when_the_engine_dies_under_its_endpoint(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER)
    assert bench.answered_by() == "a"
    before = timeouts(bench.gateway)
    bench.engines["a"].kill()
    try:
        assert [bench.answered_by() for _unused in range(20)] == ["b"] * 20
    finally:
        bench.engines["a"].start()
    assert timeouts(bench.gateway) == before, "no request waits for the dead server"
    wait_for(lambda: bench.answered_by() == "a")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_the_next_target_gets_the_request_after_an_error(bench: Bench, status: int) -> None:
    bench.route(*ONE_OR_THE_OTHER)
    answer = bench.ask(x={"status": status})
    assert [len(engine.bodies) for engine in bench.engines.values()] == [1, 1]
    assert (answer.status_code, answer.headers["x-engine"]) == (status, "b"), "the last one's answer is passed on"


@pytest.mark.parametrize("status", [200, 400, 404])
def test_an_answer_that_is_the_clients_own_affair_is_passed_on(bench: Bench, status: int) -> None:
    bench.route(*ONE_OR_THE_OTHER)
    answer = bench.ask(x={"status": status})
    assert (answer.status_code, answer.headers["x-engine"]) == (status, "a")
    assert not bench.engines["b"].bodies


def test_an_engine_that_takes_too_long_loses_its_turn_and_streams_may_pause_afterwards(bench: Bench) -> None:
    bench.route({"service": "a", "answerSeconds": 1}, {"service": "b", "order": 1})
    bench.engines["b"].release()
    answer = bench.ask(x={"held": True})
    assert (answer.status_code, answer.headers["x-engine"]) == (200, "b")
    wait_for(lambda: bench.engines["a"].active == 0)
    bench.route({"service": "a", "answerSeconds": 5}, {"service": "b", "order": 1})
    streamed = bench.ask(stream=True, x={"events": 1, "gap": 6})
    assert streamed.headers["x-engine"] == "a"
    assert streamed.text.endswith("[DONE]\n\n")


def test_a_target_without_endpoints_may_be_waited_for(bench: Bench) -> None:
    targets = ({"service": "a", "waitSeconds": 1}, {"service": "b", "order": 1})
    bench.route(*targets, down="a")
    before = timeouts(bench.gateway)
    began = time.monotonic()
    assert bench.answered_by() == "b"
    assert time.monotonic() - began >= 1
    assert timeouts(bench.gateway) == before, "it was not refused"


def test_requests_wait_for_the_first_target_if_none_has_an_endpoint(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER, down="ab")
    answer = bench.ask()
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "model_not_ready"


def test_conditions_select_the_target_and_other_requests_are_refused(bench: Bench) -> None:
    when = {"headers": {"X-Tier": ["gold", "a b;c|d&e^f"]}}
    bench.route(
        {"service": "a", "when": when},
        {"service": "b", "order": 1, "when": {"models": ["alias"]}},
        r={"aliases": ["alias"]},
    )
    assert bench.answered_by(headers={"x-tier": "gold"}) == "a"
    assert bench.answered_by(headers={"x-tier": "a b;c|d&e^f"}) == "a"
    assert bench.answered_by("alias") == "b"
    answer = bench.ask(headers={"x-tier": "silver"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_target")


@pytest.mark.parametrize("down", ["", "a"])
def test_a_request_for_an_exclusive_target_goes_to_no_other(bench: Bench, down: str) -> None:
    secret = {"headers": {"x-class": ["pii"]}}
    bench.route({"service": "a", "when": secret, "only": True}, {"service": "b", "order": 1}, down=down)
    assert bench.answered_by(headers={"x-class": "pii"}) == ("failed" if down else "a")
    assert not bench.engines["b"].bodies
    assert bench.answered_by() == "b"


def test_a_key_reaches_no_target_of_a_route_that_it_may_not_use(bench: Bench) -> None:
    rights = {"tester": {"models": ["r", "b"]}}
    bench.route(*ONE_OR_THE_OTHER, rights=rights)
    assert {bench.answered_by() for _unused in range(5)} == {"b"}
    assert not bench.engines["a"].bodies
    bench.route({"service": "b"}, {"service": "a", "order": 1}, rights=rights, down="b")
    assert bench.answered_by() == "failed"
    bench.route({"service": "a"}, rights=rights)
    assert bench.ask().json()["error"]["code"] == "no_target"
    bench.route({"service": "a", "only": True}, {"service": "b", "order": 1}, rights=rights)
    assert bench.ask().json()["error"]["code"] == "no_target", "what is for one alone goes to no other"
    bench.route({"service": "a"}, rights=rights, a={"internal": True})
    assert bench.answered_by() == "a", "an internal Service belongs to the route only"


def test_a_target_gets_its_engines_name_for_the_model(bench: Bench) -> None:
    long = "a-rather-long-name-of-a-model-that-does-not-fit-into-the-place-of-a-short-one"
    bench.route({"service": "a"}, a={"models": [long]}, r={"aliases": [long]})
    text = "x" * 100
    for path in (CHAT, COMPLETIONS):
        assert bench.answered_by(path=path, prompt=text) == "a"
    assert bench.answered_by(long) == "a"
    sent = [json.loads(body) for body in bench.engines["a"].bodies]
    assert [body["model"] for body in sent] == [long] * 3
    assert [body.get("prompt") for body in sent] == [text, text, None]
    assert bench.engines["a"].headers[2]["content-length"] == str(len(bench.engines["a"].bodies[2]))


@pytest.mark.parametrize("size", [10, 5_000, 39_000, 45_000, 300_000, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_longer_name_fits_into_bodies_of_any_size(bench: Bench, size: int, chunked: bool) -> None:
    bench.route({"service": "a"}, a={"models": ["n" * 250]})
    for body in ({"model": "r", "prompt": "x" * size}, {"prompt": "x" * size, "model": "r"}):
        data = json.dumps(body).encode()
        with Api(bench.gateway.url) as session:
            answer = session.post(CHAT, data=iter([data]) if chunked else data)
        assert answer.status_code == 200
        assert json.loads(bench.engines["a"].bodies.pop()) == {**body, "model": "n" * 250}


def test_the_fallback_gets_its_own_name_also_in_forms(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER, a={"models": ["model-of-a"]}, b={"models": ["b-model"]})
    assert bench.ask(x={"status": 503}).headers["x-engine"] == "b"
    assert [json.loads(engine.bodies[0])["model"] for engine in bench.engines.values()] == ["model-of-a", "b-model"]
    for down in ("", "a"):
        bench.route(*ONE_OR_THE_OTHER, a={"models": ["model-of-a"]}, b={"models": ["b-model"]}, down=down)
        with Api(bench.gateway.url) as session:
            answer = session.post(TRANSCRIPTIONS, data={"model": "r"}, files={"file": ("x.wav", b"\0" * 9000)})
        [body] = bench.engines["b" if down else "a"].bodies
        assert answer.status_code == 200
        assert b"b-model" in body if down else b"model-of-a" in body


def test_own_pods_may_be_one_of_the_targets(bench: Bench) -> None:
    bench.gateway.route(
        {
            "r": {
                "endpoints": [bench.engines["a"].endpoint],
                "route": {"targets": [{}, {"service": "b", "order": 1}]},
            },
            "b": [bench.engines["b"].endpoint],
        },
        {"tester": KEY},
    )
    settle(bench.gateway)
    assert bench.answered_by() == bench.answered_by("static/r") == "a"
    assert bench.ask(x={"status": 503}).headers["x-engine"] == "b"


def test_bodies_that_cannot_be_sent_twice_go_to_the_first_that_can_answer(bench: Bench) -> None:
    large = "x" * 200_000
    bench.route(*ONE_OR_THE_OTHER, down="a")
    assert bench.answered_by(prompt=large) == "b"
    bench.route(*ONE_OR_THE_OTHER)
    assert bench.answered_by(prompt=large) == "a"


def test_log_and_tokens_name_the_target_that_answered(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER)
    request_id = f"fell-{time.monotonic_ns()}"
    usage = '{"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
    before = tokens(bench.gateway)
    bench.engines["a"].kill()
    try:
        assert bench.ask(headers={"x-request-id": request_id}, x={"pieces": [usage]}).status_code == 200
    finally:
        bench.engines["a"].start()
    log = bench.gateway.directory / "haproxy.log"
    wait_for(lambda: request_id in log.read_text())
    line = next(json.loads(line) for line in log.read_text().splitlines() if request_id in line)
    assert (line["model"], line["backend"]) == ("r", "static:b")
    wait_for(lambda: tokens(bench.gateway) == before + 4)


def tokens(gateway: Standalone) -> float:
    """Output tokens of the model b."""
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    name = 'slipway_gateway_tokens_total{key="tester",kind="output",model="b",namespace="static"} '
    return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


def test_headers_of_the_hop_reach_no_engine_and_no_client(bench: Bench) -> None:
    bench.route(*ONE_OR_THE_OTHER)
    wait_for(lambda: bench.answered_by() == "a")
    spoofed = {"x-slipway-targets": "r|static:b&0&0&", "x-slipway-turn": "next", "x-slipway-backend": "static:b"}
    answer = bench.ask(headers=spoofed)
    assert answer.headers["x-engine"] == "a"
    assert not [name for name in answer.headers if name.lower().startswith("x-slipway")]
    assert bench.ask(x={"status": 503}).headers["x-engine"] == "b"
    assert not [name for name in bench.engines["b"].headers[-1] if name.startswith("x-slipway")]


def test_a_target_whose_engine_does_not_serve_the_path_is_skipped(bench: Bench) -> None:
    embeds, chats = {"paths": ["/v1/embeddings"]}, {"paths": [CHAT]}
    bench.route(*ONE_OR_THE_OTHER, a=embeds, r=embeds)
    assert bench.answered_by() == "b"
    bench.route(*ONE_OR_THE_OTHER, a=embeds, b=chats)
    assert bench.answered_by(path="/v1/embeddings") == "a"
    bench.route(*ONE_OR_THE_OTHER, a=embeds, b=embeds)
    answer = bench.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unsupported_endpoint")
    assert not bench.engines["a"].bodies


def test_if_only_some_targets_may_answer_their_order_in_the_route_does_not_matter(bench: Bench) -> None:
    only = [{"service": "a", "only": True}, {"service": "b", "only": True}, {"service": "a", "order": 1}]
    for targets in (only, [only[1], only[0], only[2]]):
        bench.route(*targets, rights={"tester": {"models": ["r", "b"]}})
        assert {bench.answered_by() for _unused in range(5)} == {"b"}
