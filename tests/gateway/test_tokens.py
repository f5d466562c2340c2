"""Tokens are counted by model and key as engines report them, and no answer is changed, whatever engines send."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from slipway.gateway.haproxy import socket as haproxy_socket
from tests.gateway.conftest import KEY, Api, Engine, settle, wait_for, waiting
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
    gateway.route({"m1": [engine.endpoint], "empty": []}, {"tester": KEY})
    with gateway:
        with Api(gateway.url) as api:
            wait_for(lambda: api.post("/v1/audio/speech", data=b'{"model":"m1"}').status_code == 200)
        yield gateway


@pytest.fixture(scope="module")
def api(counting: Standalone) -> Iterator[Api]:
    with Api(counting.url) as session:
        yield session


def counted(gateway: Standalone, name: str = "m1") -> dict[str, int]:
    """Tokens of a model and key tester by kind; estimated ones as ``~kind``, where there are any."""
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    tokens = {}
    for estimated, key, kind, model, value in SERIES.findall(text):
        if (key, model) == ("tester", name) and float(value):
            tokens[f"~{kind}" if estimated else kind] = int(float(value))
    return tokens


class Meter:
    """What was counted of a model since it was made, or since `before`."""

    def __init__(self, gateway: Standalone, before: dict[str, int] | None = None, model: str = "m1") -> None:
        self._gateway, self._model = gateway, model
        self._before = counted(gateway, model) if before is None else before

    def since(self) -> dict[str, int]:
        now = counted(self._gateway, self._model)
        return {kind: now[kind] - self._before.get(kind, 0) for kind in now if now[kind] != self._before.get(kind, 0)}

    def becomes(self, expected: dict[str, int]) -> None:
        """HAProxy may still process an answer's end when the client has received all of it."""
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
VLLM_RESPONSE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 5, "input_tokens_per_turn": [], "cached_tokens_per_turn": []},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 1, "tool_output_tokens": 0, "output_tokens_per_turn": [2]},
    "total_tokens": 9,
}
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
    "whole, with details": (
        CHAT,
        [json.dumps(VLLM)],
        "application/json",
        {"input": 30, "cached": 16, "output": 12, "reasoning": 4},
    ),
    "whole, in spaces and lines": (
        CHAT,
        [json.dumps(VLLM, indent=2)],
        "application/json",
        {"input": 30, "cached": 16, "output": 12, "reasoning": 4},
    ),
    "whole, several objects: the largest numbers count": (
        CHAT,
        [
            '{"usage": {"prompt_tokens": 9, "completion_tokens": 1},',
            '"usage": {"prompt_tokens": 8, "completion_tokens": 2}}',
        ],
        "application/json",
        {"input": 9, "output": 2},
    ),
    "whole, of both kinds: the largest numbers count": (
        "/v1/responses",
        [
            '{"usage": {"input_tokens": 1000, "output_tokens": 500},',
            '"messages": [{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}]}',
        ],
        "application/json",
        {"input": 1000, "output": 500},
    ),
    "whole, of both kinds, the other one first": (
        "/v1/responses",
        [
            '{"messages": [{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}],',
            '"usage": {"input_tokens": 1000, "output_tokens": 500}}',
        ],
        "application/json",
        {"input": 1000, "output": 500},
    ),
    "whole of an unusual form, before one of the model's own": (
        "/v1/responses",
        [
            '{"usage": {"input_tokens": 1000, "output_tokens": 500, "more": [{"tokens": 1}]},',
            '"tools": [{"usage": {"input_tokens": 0, "output_tokens": 0}}]}',
        ],
        "application/json",
        {"input": 1000, "output": 500},
    ),
    "whole, with a key twice": (
        CHAT,
        ['{"usage": {"prompt_tokens": 5, "prompt_tokens": 1, "completion_tokens": 2, "completion_tokens": 1}}'],
        "application/json",
        {"input": 5, "output": 2},
    ),
    "whole, with details twice": (
        CHAT,
        [
            '{"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4},',
            '"completion_tokens": 2, "completion_tokens_details": {"cached_tokens": 1}}}',
        ],
        "application/json",
        {"input": 5, "cached": 4, "output": 2},
    ),
    "whole, with one of them behind a NUL": (
        CHAT,
        [
            '{"usage": {"prompt_tokens": 5, "completion_tokens": 1}}\x00',
            '{"usage": {"prompt_tokens": 50, "completion_tokens": 10}}',
        ],
        "application/json",
        {"input": 50, "output": 10},
    ),
    "whole, a number that no engine means": (
        CHAT,
        ['{"usage": {"prompt_tokens": 1.5, "input_tokens": 7, "completion_tokens": 2}}'],
        "application/json",
        {"input": 7, "output": 2},
    ),
    "whole of Anthropic, with a cache": (
        "/v1/messages",
        ['{"usage": {"input_tokens": 7, "cache_read_input_tokens": 5, "output_tokens": 2}}'],
        "application/json",
        {"input": 12, "cached": 5, "output": 2},
    ),
    "whole of the Responses API": (
        "/v1/responses",
        ['{"usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 2}}'],
        "application/json",
        {"input": 7, "cached": 5, "output": 2},
    ),
    "whole of llama.cpp without usage": (
        CHAT,
        [json.dumps(LLAMA_TIMINGS)],
        "application/json",
        {"input": 11, "cached": 5, "output": 7},
    ),
    "whole of the Responses API of vLLM": (
        "/v1/responses",
        [json.dumps({"usage": VLLM_RESPONSE})],
        "application/json",
        {"input": 7, "cached": 5, "output": 2, "reasoning": 1},
    ),
    "embeddings with two objects: the largest numbers count": (
        "/v1/embeddings",
        ['{"usage": {"prompt_tokens": 0, "total_tokens": 0}, "data": [], "usage": {"prompt_tokens": 77}}'],
        "application/json",
        {"input": 77},
    ),
    "embeddings": (
        "/v1/embeddings",
        ['{"usage": {"prompt_tokens": 21, "total_tokens": 21}, "data": [0.125]}'],
        "application/json",
        {"input": 21},
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


@pytest.mark.parametrize("announced", [False, True], ids=["of-unknown-size", "of-announced-size"])
@pytest.mark.parametrize("case", CASES)
def test_tokens_that_engines_report_are_counted(counting: Standalone, api: Api, case: str, announced: bool) -> None:
    path, pieces, kind, expected = CASES[case]
    text = "".join(pieces)
    meter = Meter(counting)
    assert request(api, path, pieces, kind, **{"length": len(text)} if announced else {}) == text
    meter.becomes(expected)


@pytest.mark.parametrize(
    "case",
    [
        "whole chat",
        "whole, with details",
        "whole of the Responses API",
        "whole of the Responses API of vLLM",
        "embeddings",
        "a word of the model's own",
    ],
)
def test_usual_answers_are_counted_without_entering_lua(counting: Standalone, api: Api, case: str) -> None:
    path, pieces, kind, expected = CASES[case]
    text = "".join(pieces)
    before, meter = by_lua(counting), Meter(counting)
    request(api, path, [text], kind, length=len(text))
    meter.becomes(expected)
    assert by_lua(counting) == before


def test_an_answer_whose_headers_leave_too_little_of_the_buffer_is_counted_as_it_passes(
    counting: Standalone, api: Api
) -> None:
    path, pieces, kind, expected = CASES["whole chat"]
    text = "".join(pieces).rjust(8000)
    meter, pads = Meter(counting), {f"x-pad-{number}": "a" * 7000 for number in range(6)}
    assert request(api, path, [text], kind, length=len(text), headers=pads) == text
    meter.becomes(expected)


def by_lua(gateway: Standalone) -> list[int]:
    """Input and output that the threads' filters and actions counted."""
    sums = [0, 0]
    for name in ("thread1.sock", "thread2.sock"):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(str(gateway.run / name))
            line.sendall(b"show slipway tokens\n")
            with line.makefile() as answer:
                for row in filter(None, map(str.split, answer)):
                    sums[0] += int(row[2])
                    sums[1] += int(row[4])
    return sums


def test_a_stream_without_usage_is_estimated_by_its_events_and_the_size_of_the_request(
    counting: Standalone, api: Api
) -> None:
    meter = Meter(counting)
    body = json.dumps({"model": "m1", "x": {"pieces": [chunk("a"), chunk("b") + chunk("c"), DONE], "type": EVENTS}})
    assert api.post(CHAT, data=body).text.endswith(DONE)
    estimate = {"input": len(body) // 4, "output": 4}
    meter.becomes(estimate | {f"~{kind}": tokens for kind, tokens in estimate.items()})


def test_an_answer_to_a_client_that_disconnects_is_counted_up_to_then(
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


EXPECTS = "expect: 100-continue\r\n"


def begin(gateway: Standalone, body: bytes, headers: str = "") -> socket.socket:
    """Sends a whole request, and reads nothing."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n"
    host, port = gateway.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    connection.sendall(f"{head}{headers}\r\n".encode() + body)
    return connection


@pytest.mark.parametrize("headers", ["", EXPECTS], ids=["", "that-expected-a-100"])
def test_a_client_that_leaves_before_the_answer_is_counted_by_its_request(
    counting: Standalone, engine: Engine, headers: str
) -> None:
    meter, busy = Meter(counting), engine.active
    with begin(counting, json.dumps({"model": "m1", "x": {"held": True}}).ljust(400).encode(), headers):
        wait_for(lambda: engine.active > busy)
    meter.becomes({"input": 100, "~input": 100})


def test_a_client_that_leaves_after_an_informational_answer_is_counted_by_its_request(counting: Standalone) -> None:
    meter = Meter(counting)
    with begin(
        counting, json.dumps({"model": "m1", "x": {"held": True, "hinted": True}}).ljust(400).encode()
    ) as client:
        assert client.recv(64).startswith(b"HTTP/1.1 103")
    meter.becomes({"input": 100, "~input": 100})


@pytest.mark.parametrize("headers", ["", EXPECTS], ids=["", "that-expected-a-100"])
def test_a_client_that_leaves_while_no_engine_has_its_request_counts_nothing(
    counting: Standalone, api: Api, headers: str
) -> None:
    meter = Meter(counting)
    with begin(counting, b'{"model":"empty"}', headers):
        wait_for(lambda: waiting(counting) == 1)
    wait_for(lambda: waiting(counting) == 0)
    request(api, *CASES["whole chat"][:3])
    meter.becomes(CASES["whole chat"][3])
    assert counted(counting, "empty") == {}


def test_an_engine_that_stalls_within_a_whole_answer_is_counted_by_the_request(
    make_gateway: Callable[..., Standalone], engine: Engine
) -> None:
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True, threads=2, streamIdleSeconds=1)
    gateway.route({"m1": [engine.endpoint]}, {"tester": KEY})
    with gateway, Api(gateway.url) as api:
        settle(gateway)
        x = {"pieces": ['{"usage":'], "length": 60, "type": "application/json", "held": True}
        assert api.post(CHAT, data=json.dumps({"model": "m1", "x": x}).ljust(400)).status_code == 504
        Meter(gateway, {}).becomes({"input": 100, "~input": 100})


async def test_a_request_that_moves_to_the_next_process_is_counted_once(
    make_gateway: Callable[..., Standalone], engine: Engine
) -> None:
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True, holdSeconds=PATIENCE)
    gateway.route({"m1": []}, {"tester": KEY})
    usage = '{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
    x = {"pieces": [usage], "length": len(usage)}
    with gateway, Api(gateway.url) as api:
        settle(gateway)
        headers = {"x-request-id": "moved"}
        answer = asyncio.create_task(asyncio.to_thread(api.post, CHAT, json={"model": "m1", "x": x}, headers=headers))
        await asyncio.to_thread(wait_for, lambda: waiting(gateway) == 1)
        await haproxy_socket.reload(gateway.run / "master.sock")
        await asyncio.to_thread(wait_for, lambda: waiting(gateway) == 1)
        gateway.route({"m1": [engine.endpoint]}, {"tester": KEY})
        assert (await answer).status_code == 200
        await asyncio.to_thread(wait_for, lambda: len(logged(gateway, "moved")) == 2)
        lines = {line["hold"]: (line["tokens_input"], line["tokens_output"]) for line in logged(gateway, "moved")}
        assert lines == {"moved": ("", ""), "released": (3, 4)}
        Meter(gateway, {}).becomes({"input": 3, "output": 4})


def logged(gateway: Standalone, request_id: str) -> list[dict[str, Any]]:
    """Lines of the access log."""
    lines = (gateway.directory / "haproxy.log").read_text().splitlines()
    return [line for line in map(json.loads, filter(is_whole, lines)) if line["request_id"] == request_id]


def is_whole(line: str) -> bool:
    return line.startswith("{") and line.endswith("}")


def test_counters_do_not_wrap(counting: Standalone, api: Api) -> None:
    meter = Meter(counting)
    usage = {"usage": {"prompt_tokens": 999_999_999, "completion_tokens": 1}}
    for number in range(1, 11):
        request(api, CHAT, [json.dumps(usage)], length=len(json.dumps(usage)))
        meter.becomes({"input": 999_999_999 * number, "output": number})


def test_pairs_that_find_no_room_in_the_table_of_a_new_process_are_counted_from_zero(
    make_gateway: Callable[..., Standalone], engine: Engine
) -> None:
    models = [f"m{number}" for number in range(1, 6)]
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True)
    gateway.route({name: [engine.endpoint] for name in models}, {"tester": KEY})
    usage = '{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
    with gateway, Api(gateway.url) as api:
        settle(gateway)
        for _unused in range(5):
            answer = api.post(CHAT, json={"model": "m1", "x": {"pieces": [usage], "length": len(usage)}})
            assert answer.status_code == 200
        Meter(gateway, {}).becomes({"input": 15, "output": 20})
        gateway.kill_haproxy()
        configuration = gateway.run / "haproxy.cfg"
        text, count = re.subn(r"(len 384 size) 20k", r"\1 2", configuration.read_text())
        assert count == 1
        configuration.write_text(text)
        gateway.start_haproxy()
        gateway.wait_ready()
        settle(gateway)
        for name in models * 2:
            answer = api.post(CHAT, json={"model": name, "x": {"pieces": [usage], "length": len(usage)}})
            assert answer.status_code == 200
        for name in models:
            Meter(gateway, {}, name).becomes({"input": 6, "output": 8})


def test_an_engine_that_dies_within_a_whole_answer_is_counted_by_the_request(counting: Standalone, api: Api) -> None:
    meter = Meter(counting)
    x = {"pieces": ['{"choices": ['], "length": 100, "type": "application/json", "broken": True}
    body = json.dumps({"model": "m1", "x": x}).ljust(400)
    with pytest.raises(requests.exceptions.RequestException):
        api.post(CHAT, data=body)
    meter.becomes({"input": 100, "~input": 100})


def test_an_engine_that_dies_within_a_stream_is_counted_by_its_events(counting: Standalone, api: Api) -> None:
    meter = Meter(counting)
    request(api, CHAT, [chunk("a"), chunk("b")], EVENTS, broken=True)
    wait_for(lambda: meter.since().get("~output") == 2)


def cut_answers(gateway: Standalone, name: str = "cut_answers") -> float:
    text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    return float(re.findall(rf'^slipway_gateway_{name}_total{{model="m1",.*}} (\S+)$', text, re.MULTILINE)[0])


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
def test_no_event_is_added_to_a_complete_answer_or_one_with_a_length(
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
