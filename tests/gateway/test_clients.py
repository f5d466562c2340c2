"""The official clients of OpenAI and Anthropic with the gateway: their requests arrive, and they raise their errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.conftest import KEY, Engine, settle
from tests.gateway.standalone import PATIENCE, Standalone

if TYPE_CHECKING:
    import anthropic
    import openai

ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
USAGE = {"input_tokens": 9, "output_tokens": 3}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m1", "stop_sequence": None, "usage": USAGE}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}


@pytest.fixture(scope="module", autouse=True)
def clients() -> None:
    """Imports them here, so that only one worker does: together they take seconds."""
    globals().update({name: import_module(name) for name in ("anthropic", "openai")})


@pytest.fixture(scope="module")
def gateway(keyed: Standalone, engine: Engine) -> Standalone:
    embedder = {"endpoints": [engine.endpoint], "route": {"paths": ["/v1/embeddings"]}}
    keyed.route({"m1": [engine.endpoint], "embedder": embedder, "empty": []}, {"tester": KEY})
    settle(keyed)
    return keyed


@pytest.fixture
def chat(gateway: Standalone) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def claude(gateway: Standalone) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=KEY, max_retries=0, timeout=PATIENCE) as client:
        yield client


def answering(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of a body that makes the engine send this answer."""
    return {"x": {"pieces": [json.dumps(answer)]}}


def streaming(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The same as events of Anthropic's protocol, each sent by itself."""
    pieces = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return {"x": {"pieces": pieces, "type": "text/event-stream"}}


def test_openai_streams(chat: openai.OpenAI) -> None:
    stream = chat.chat.completions.create(model="m1", messages=ASKED, stream=True, extra_body={"x": {"events": 5}})
    assert [chunk.choices[0].delta.content for chunk in stream] == [f"{number} " for number in range(5)]


def test_openai_calls_tools(chat: openai.OpenAI, engine: Engine) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [CALL]}}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m1", "choices": [choice]}
    completion = chat.chat.completions.create(model="m1", messages=ASKED, tools=tools, extra_body=answering(answer))
    call: Any = (completion.choices[0].message.tool_calls or [])[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    assert json.loads(engine.bodies[-1])["tools"] == tools


@pytest.mark.parametrize(
    ("model", "error", "code"),
    [
        ("nope", "NotFoundError", "model_not_found"),
        ("embedder", "NotFoundError", "unsupported_endpoint"),
        ("empty", "InternalServerError", "model_not_ready"),
    ],
)
def test_the_openai_client_raises_its_own_errors(chat: openai.OpenAI, model: str, error: str, code: str) -> None:
    with pytest.raises(getattr(openai, error)) as raised:
        chat.chat.completions.create(model=model, messages=ASKED)
    assert raised.value.code == code
    assert raised.value.request_id


def test_openai_reads_stored_responses_with_the_model_in_its_query(gateway: Standalone, engine: Engine) -> None:
    engine.responses.add("resp_mine")
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, default_query={"model": "m1"}) as client:
        client.responses.retrieve("resp_mine")
        assert engine.paths[-1] == "/v1/responses/resp_mine"
        client.responses.cancel("resp_mine")
        assert engine.paths[-1] == "/v1/responses/resp_mine/cancel"
        client.responses.input_items.list("resp_mine")
        assert engine.paths[-1] == "/v1/responses/resp_mine/input_items"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve("resp_other")


def test_anthropic_gets_messages(claude: anthropic.Anthropic, engine: Engine) -> None:
    answer = MESSAGE | {"content": [{"type": "text", "text": "Rain."}], "stop_reason": "end_turn"}
    message: Any = claude.messages.create(model="m1", max_tokens=9, messages=ASKED, extra_body=answering(answer))
    assert (message.content[0].text, message.usage.output_tokens) == ("Rain.", 3)
    assert engine.headers[-1]["anthropic-version"]
    assert not {"x-api-key", "authorization"} & set(engine.headers[-1])


def test_anthropic_streams(claude: anthropic.Anthropic) -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": MESSAGE | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
            for text in ("Ra", "in", ".")
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    with claude.messages.stream(model="m1", max_tokens=9, messages=ASKED, extra_body=streaming(events)) as stream:
        assert list(stream.text_stream) == ["Ra", "in", "."]
        assert stream.get_final_message().stop_reason == "end_turn"


def test_anthropic_calls_tools_over_many_turns_with_beta_headers(claude: anthropic.Anthropic, engine: Engine) -> None:
    tools: list[Any] = [{"name": "weather", "input_schema": SCHEMA, "description": "long " * 10_000}]
    answer = MESSAGE | {"content": [TOOL_USE], "stop_reason": "tool_use"}
    turns = list(ASKED)
    for turn in range(20):
        message: Any = claude.beta.messages.create(
            model="m1", max_tokens=9, messages=turns, tools=tools, betas=["tools-1"], extra_body=answering(answer)
        )
        assert message.content[0].input == {"city": "Oslo"}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"{turn} degrees"}
        turns += [{"role": "assistant", "content": [TOOL_USE]}, {"role": "user", "content": [result]}]
    body = json.loads(engine.bodies[-1])
    assert (len(body["messages"]), body["tools"]) == (39, tools)
    assert engine.headers[-1]["anthropic-beta"] == "tools-1"


def test_anthropic_counts_tokens(claude: anthropic.Anthropic, engine: Engine) -> None:
    count = claude.messages.count_tokens(model="m1", messages=ASKED, extra_body=answering({"input_tokens": 9}))
    assert (count.input_tokens, engine.paths[-1]) == (9, "/v1/messages/count_tokens")


@pytest.mark.parametrize(
    ("model", "error", "kind"),
    [
        ("nope", "NotFoundError", "not_found_error"),
        ("embedder", "NotFoundError", "not_found_error"),
        ("empty", "InternalServerError", "overloaded_error"),
    ],
)
def test_the_anthropic_client_raises_its_own_errors(
    claude: anthropic.Anthropic, model: str, error: str, kind: str
) -> None:
    with pytest.raises(getattr(anthropic, error)) as raised:
        claude.messages.create(model=model, max_tokens=9, messages=ASKED)
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", kind)


def test_anthropic_may_send_its_key_in_either_header(gateway: Standalone) -> None:
    answer = answering({"input_tokens": 9})
    with anthropic.Anthropic(base_url=gateway.url, auth_token=KEY, max_retries=0) as client:
        assert client.messages.count_tokens(model="m1", messages=ASKED, extra_body=answer).input_tokens == 9
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key="wrong", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError),
    ):
        client.messages.count_tokens(model="m1", messages=ASKED)
