"""Tokens are counted by model and key as engines tell them, and no answer is changed, whatever engines send."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests.gateway.conftest import KEY, Api, Engine, wait_for
from tests.gateway.standalone import PATIENCE, Standalone

CHAT, EVENTS = "/v1/chat/completions", "text/event-stream"
SERIES = re.compile(
    r'^slipway_gateway_(estimated_)?tokens_total\{key="(\S+?)",kind="(\w+)",model="(\w+)",.*\} (\S+)$', re.MULTILINE
)
DONE = "data: [DONE]\n\n"


def event(data: object) -> str:
    return f"data: {json.dumps(data)}\n\n"


def chunk(text: str) -> str:
    return event({"choices": [{"index": 0, "delta": {"content": text}}]})


@pytest.fixture(scope="module")
def counting(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True, threads=2)
    gateway.route({"m1": [engine.endpoint]}, {"tester": KEY})
    with gateway:
        with Api(gateway.url) as api:
            wait_for(lambda: api.post("/v1/audio/speech", data=b'{"model":"m1"}').status_code == 200)
        yield gateway


@pytest.fixture(scope="module")
def api(counting: Standalone) -> Iterator[Api]:
    with Api(counting.url) as session:
        yield session


def counted(gateway: Standalone) -> dict[str, int]:
    """Tokens of model m1 and key tester by kind; estimated ones as ``~kind``, where there are any."""
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    tokens = {}
    for estimated, key, kind, model, value in SERIES.findall(text):
        if (key, model) == ("tester", "m1") and float(value):
            tokens[f"~{kind}" if estimated else kind] = int(float(value))
    return tokens


class Meter:
    """What was counted since it was made."""

    def __init__(self, gateway: Standalone) -> None:
        self._gateway, self._before = gateway, counted(gateway)

    def since(self) -> dict[str, int]:
        now = counted(self._gateway)
        return {kind: now[kind] - self._before.get(kind, 0) for kind in now if now[kind] != self._before.get(kind, 0)}

    def becomes(self, expected: dict[str, int]) -> None:
        """HAProxy may still be at an answer's end when the client has all of it."""
        wait_for(lambda: self.since() == expected)


def request(api: Api, path: str, pieces: list[str], kind: str = "application/json", **more: Any) -> str:
    answer = api.post(path, json={"model": "m1", "x": {"pieces": pieces, "type": kind, **more}})
    assert answer.status_code == 200
    return answer.text


LLAMA_TIMINGS = {"choices": [], "timings": {"cache_n": 5, "prompt_n": 6, "prompt_ms": 1.5, "predicted_n": 7}}
VLLM = {
    "choices": [],
    "usage": {
        "prompt_tokens": 30,
        "total_tokens": 42,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 4},
    },
}
RESPONSE = {"type": "response.completed", "response": {"output": [], "usage": {"input_tokens": 8, "output_tokens": 3}}}
CASES: dict[str, tuple[str, list[str], str, dict[str, int]]] = {
    "whole chat": (
        CHAT,
        ['{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}'],
        "application/json",
        {"input": 3, "output": 4},
    ),
    "whole, cut in the middle of the key and of the object": (
        CHAT,
        ['{"choices": [], "us', 'age": {"prompt_tok', 'ens": 3, "completion_tokens"', ": 4}}"],
        "application/json",
        {"input": 3, "output": 4},
    ),
    "stream with usage at its end, and null before": (
        CHAT,
        [event({"choices": [], "usage": None}), chunk("a"), event(VLLM), DONE],
        EVENTS,
        {"input": 30, "cached": 16, "output": 12, "reasoning": 4},
    ),
    "stream of llama.cpp that asked for no usage": (
        CHAT,
        [chunk("a"), event(LLAMA_TIMINGS), DONE],
        EVENTS,
        {"input": 11, "cached": 5, "output": 7},
    ),
    "running usage: the last one counts": (
        CHAT,
        [event({"usage": {"prompt_tokens": 9, "completion_tokens": n}}) for n in range(1, 6)] + [DONE],
        EVENTS,
        {"input": 9, "output": 5},
    ),
    "embeddings, usage first": (
        "/v1/embeddings",
        ['{"usage": {"prompt_tokens": 21, "total_tokens": 21}, "data": [', "0.125," * 30000, "0.5]}"],
        "application/json",
        {"input": 21},
    ),
    "rerank with a total alone": (
        "/v1/rerank",
        ['{"results": [], "usage": {"total_tokens": 17}}'],
        "application/json",
        {"input": 17},
    ),
    "stream of the Responses API": (
        "/v1/responses",
        [f"event: response.completed\n{event(RESPONSE)}"],
        EVENTS,
        {"input": 8, "output": 3},
    ),
    "a word of the model's own": (
        CHAT,
        [
            json.dumps({"choices": [{"message": {"content": '"usage":{"prompt_tokens":1000}'}}]})[:-1],
            ',"usage":{"prompt_tokens":1,"completion_tokens":2}}',
        ],
        "application/json",
        {"input": 1, "output": 2},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_engines_tell_is_counted(counting: Standalone, api: Api, case: str) -> None:
    path, pieces, kind, expected = CASES[case]
    meter = Meter(counting)
    assert request(api, path, pieces, kind) == "".join(pieces)
    meter.becomes(expected)


def test_a_stream_without_usage_is_estimated_by_its_events_and_the_size_of_the_request(
    counting: Standalone, api: Api
) -> None:
    meter = Meter(counting)
    body = json.dumps({"model": "m1", "x": {"pieces": [chunk("a"), chunk("b") + chunk("c"), DONE], "type": EVENTS}})
    assert api.post(CHAT, data=body).text.endswith(DONE)
    estimate = {"input": len(body) // 4, "output": 4}
    meter.becomes(estimate | {f"~{kind}": tokens for kind, tokens in estimate.items()})


def test_a_client_that_leaves_is_counted_with_what_came_until_then(
    counting: Standalone, api: Api, engine: Engine
) -> None:
    meter = Meter(counting)
    running = [event({"usage": {"prompt_tokens": 9, "completion_tokens": n}}) for n in (1, 2, 3)]
    body = {"model": "m1", "x": {"pieces": running, "type": EVENTS, "held": True}}
    with api.post(CHAT, json=body, stream=True) as answer:
        lines = (line for line in answer.iter_lines(chunk_size=1) if line)
        next(lines)
        engine.release()
        next(lines)
    meter.becomes({"input": 9, "output": 2, "~output": 2})


def test_a_client_that_leaves_before_the_answer_is_counted_by_its_request(counting: Standalone, engine: Engine) -> None:
    meter, busy = Meter(counting), engine.active
    body = json.dumps({"model": "m1", "x": {"held": True}}).ljust(400).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    host, port = counting.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        wait_for(lambda: engine.active > busy)
    meter.becomes({"input": 100, "~input": 100})


def test_an_engine_that_dies_within_a_stream_is_counted_by_its_events(counting: Standalone, api: Api) -> None:
    meter = Meter(counting)
    request(api, CHAT, [chunk("a"), chunk("b")], EVENTS, broken=True)
    wait_for(lambda: meter.since().get("~output") == 2)


def cut_answers(gateway: Standalone, who: str = "cut_answers") -> float:
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    return float(re.findall(rf'^slipway_gateway_{who}_total{{model="m1",.*}} (\S+)$', text, re.MULTILINE)[0])


ANSWER_CUT = {"type": "server_error", "param": None, "code": "answer_cut"}
NUMBERED = event({"type": "response.output_text.delta", "sequence_number": 41, "delta": "a"})


@pytest.mark.parametrize(
    ("path", "piece", "name", "error"),
    [
        (CHAT, chunk("a"), "", {"error": ANSWER_CUT}),
        ("/v1/completions", event({"choices": [{"text": "a"}]}), "", {"error": ANSWER_CUT}),
        (
            "/v1/responses",
            NUMBERED,
            "event: error\n",
            {"type": "error", "code": "answer_cut", "param": None, "sequence_number": 42},
        ),
    ],
    ids=["chat", "completions", "responses"],
)
def test_a_stream_that_is_cut_ends_with_an_error_in_its_protocol_and_is_counted(
    counting: Standalone, api: Api, path: str, piece: str, name: str, error: dict[str, Any]
) -> None:
    before = cut_answers(counting)
    came, _unused, last = request(api, path, [piece], EVENTS, broken=True).partition(
        f'{name}data: {{"{next(iter(error))}'
    )
    assert came == piece
    assert last.endswith("}\n\n")
    payload = json.loads(f'{{"{next(iter(error))}{last}')
    (payload.get("error") if "error" in payload else payload).pop("message")
    assert payload == error
    wait_for(lambda: cut_answers(counting) == before + 1)


def test_an_event_that_the_cut_left_half_is_not_taken_for_the_begin_of_the_error(api: Api) -> None:
    text = request(api, CHAT, [chunk("a"), 'data: {"choices": [{"ind'], EVENTS, broken=True)
    half, error = text.removeprefix(chunk("a")).removesuffix("\n\n").split("\n\n")
    assert half == 'data: {"choices": [{"ind'
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "answer_cut"


@pytest.mark.parametrize(
    ("pieces", "more"),
    [
        ([chunk("a"), DONE], {}),
        ([chunk("a")], {"length": 1000}),
        (['{"choices": []'], {"type": "application/json"}),
    ],
    ids=["stream-with-its-end", "of-a-length", "no-stream"],
)
def test_nothing_is_added_to_an_answer_that_cannot_take_it_or_was_whole(
    api: Api, pieces: list[str], more: dict[str, Any]
) -> None:
    body = {"model": "m1", "x": {"pieces": pieces, "type": EVENTS, "broken": True, **more}}
    came: list[bytes] = []
    with api.post(CHAT, json=body, stream=True) as answer, pytest.raises(requests.exceptions.RequestException):
        came.extend(answer.iter_content(1))
    assert b"".join(came) == "".join(pieces).encode()


def test_a_client_that_leaves_a_stream_cuts_no_answer(counting: Standalone, api: Api, engine: Engine) -> None:
    cut, aborts = cut_answers(counting), cut_answers(counting, "client_aborts")
    body = {"model": "m1", "x": {"pieces": [chunk("a")] * 3, "type": EVENTS, "held": True}}
    with api.post(CHAT, json=body, stream=True) as answer:
        next(answer.iter_lines(chunk_size=1))
    wait_for(lambda: cut_answers(counting, "client_aborts") == aborts + 1)
    assert cut_answers(counting) == cut


def test_errors_and_other_paths_count_nothing(counting: Standalone, api: Api) -> None:
    meter = Meter(counting)
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 5}}
    api.post(CHAT, json={"model": "m1", "x": {"status": 400}})
    api.post(CHAT, json={"model": "unknown"})
    request(api, "/v1/images/generations", [json.dumps(usage)])
    request(api, CHAT, [json.dumps(usage)])
    meter.becomes({"input": 5, "output": 5})


def test_nonsense_passes_unchanged_and_is_marked(counting: Standalone, api: Api) -> None:
    chosen = random.Random(1)
    values = ["-1", "1e9", "1.5", '"12"', "null", "9" * 40, "[]", "{}", '{"prompt_tokens": 1}', "true", '"}"', '"\\""']
    meter = Meter(counting)
    for number in range(200):
        members = [f'"{name}": {chosen.choice(values)}' for name in ("prompt_tokens", "completion_tokens") * 2]
        text = f'"usage": {{{", ".join(chosen.sample(members, chosen.randint(0, 4)))}}}'
        pieces = ["{", text[: chosen.randint(1, len(text))], "\x00\\u0000", text * 2, "{" * number, '"usage', "}"]
        assert request(api, CHAT, pieces, chosen.choice([EVENTS, "application/json", "x", ""])) == "".join(pieces)
    wait_for(lambda: meter.since().get("~input", 0) > 0)
    assert meter.since()["input"] < 200 * 1000, "no number of nonsense was believed"


def test_the_access_log_has_the_tokens_and_never_the_key(counting: Standalone, api: Api) -> None:
    api.post(
        CHAT,
        json={"model": "m1", "x": {"pieces": [event(VLLM), DONE], "type": EVENTS}},
        headers={"x-request-id": "mine"},
    )
    log = counting.directory / "haproxy.log"
    wait_for(lambda: '"mine"' in log.read_text())
    line = next(json.loads(line) for line in log.read_text().splitlines() if '"mine"' in line)
    tokens = {name: line[name] for name in line if name.startswith("tokens_")}
    assert tokens == {
        "tokens_input": 30,
        "tokens_cached": 16,
        "tokens_output": 12,
        "tokens_reasoning": 4,
        "tokens_estimated": False,
    }
    assert KEY not in log.read_text()
