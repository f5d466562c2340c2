"""OpenAI's Python client against the gateway: what it calls works, what fails is the exception that it documents."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

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


def test_models_are_listed_and_fetched(client: openai.OpenAI, model: str) -> None:
    assert model in [card.id for card in client.models.list()]
    card = client.models.retrieve(model)
    assert (card.id, card.object, card.owned_by) == (model, "model", "krypton")
    assert card.created > 1_600_000_000


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


def test_an_unknown_model_is_not_found(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=CHAT)
    assert caught.value.code == "model_not_found"
    assert "no-such-model" in str(caught.value)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_an_answer_of_the_engine_is_passed_on_as_it_is(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=model, messages=[], extra_body={"messages": "no list"})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": []}', b'{"model": 7}', b'{"model": ""}'])
def test_a_body_without_a_model_is_a_bad_request(gateway_url: str, body: bytes) -> None:
    request = urllib.request.Request(f"{gateway_url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=PATIENCE)
    assert caught.value.code == 400
    assert b'"type"' in caught.value.read()


def test_a_body_above_the_limit_is_refused(gateway_url: str) -> None:
    address = urlsplit(gateway_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(17 * 1024 * 1024))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert b'"error"' in answer.read()
    connection.close()


def test_a_model_without_an_endpoint_makes_its_clients_wait(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("cold")
    cluster.make_model(namespace, name)
    client = openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)
    cluster.wait_routed(namespace, name)
    # Sent while the engine still starts, answered once it has.
    assert client.chat.completions.create(model=name, messages=CHAT, max_tokens=1).choices
