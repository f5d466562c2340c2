"""OpenAI's Python client against the gateway: what it calls works, what fails is the exception that it documents."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from .cluster import PATIENCE, Cluster, unique

pytestmark = pytest.mark.xdist_group("openai")  # one model for all of them

CHAT = [{"role": "user", "content": "Say something."}]


@pytest.fixture(scope="module")
def model(cluster: Cluster) -> Iterator[str]:
    """A model that answers chats and embeddings, and that the gateway knows."""
    namespace, name = cluster.namespace("openai"), unique("openai")
    cluster.make_model(namespace, name, args=["--embeddings", "--pooling", "mean"])
    cluster.wait_ready(namespace, name)
    cluster.wait_routed(namespace, name)
    yield name
    cluster.delete("Namespace", "", namespace)


@pytest.fixture(params=["/v1", "/openai/v1"])
def client(request: pytest.FixtureRequest, gateway_url: str) -> openai.OpenAI:
    """Under both of the gateway's addresses."""
    return openai.OpenAI(base_url=f"{gateway_url}{request.param}", api_key="none", max_retries=0)


def test_a_chat_is_answered(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=CHAT, max_tokens=8)
    assert answer.choices[0].message.role == "assistant"
    assert answer.model == model
    assert answer.usage
    assert answer.usage.completion_tokens <= 8


def test_a_chat_is_streamed(client: openai.OpenAI, model: str) -> None:
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model=model, messages=CHAT, max_tokens=8, stream=True, stream_options=options, extra_body={"ignore_eos": True}
    )
    chunks = list(stream)
    assert len([chunk for chunk in chunks if chunk.choices]) > 2
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 8


def test_a_completion_is_answered_and_streamed(client: openai.OpenAI, model: str) -> None:
    assert client.completions.create(model=model, prompt="Once", max_tokens=4).choices
    assert len(list(client.completions.create(model=model, prompt="Once", max_tokens=4, stream=True))) > 1


def test_texts_are_embedded(client: openai.OpenAI, model: str) -> None:
    answer = client.embeddings.create(model=model, input=["one", "two"], encoding_format="float")
    assert [len(item.embedding) for item in answer.data] == [64, 64]


def test_an_answer_of_the_engine_is_passed_on_as_it_is(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=model, messages=[], extra_body={"messages": "no list"})


def test_a_model_without_an_endpoint_makes_its_clients_wait(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("cold")
    cluster.make_model(namespace, name)
    client = openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)
    cluster.wait_routed(namespace, name)
    # Sent while the engine still starts, answered once it has.
    assert client.chat.completions.create(model=name, messages=CHAT, max_tokens=1).choices
