"""Every engine of KubeAI becomes ready and answers through the gateway; OpenAI's client gets what it asks for."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator

import openai
import pytest

from .cluster import PATIENCE, Object, unique, wait
from .kubeai import ENGINE_STARTS, KubeAI, ask, chat, listed

pytestmark = pytest.mark.xdist_group("engines")  # one model of each for all of them

Models = dict[str, str]
"""Engine -> name of its Model."""


@pytest.fixture(scope="module")
def namespace_of_all(kubeai: KubeAI) -> Iterator[str]:
    name = kubeai.namespace("engines")
    yield name
    kubeai.delete("Namespace", "", name)


@pytest.fixture(scope="module")
def models(kubeai: KubeAI, namespace_of_all: str, gateway_url: str) -> Models:
    names = {engine: unique(engine.lower()) for engine in ENGINE_STARTS}
    for engine, name in names.items():
        kubeai.make_model(namespace_of_all, name, engine=engine, owner="tests")
    for name in names.values():
        kubeai.wait_ready(namespace_of_all, name)
    kubeai.wait_routed(namespace_of_all, *names.values())
    return names


@pytest.fixture(scope="module", params=["/v1", "/openai/v1"])
def client(request: pytest.FixtureRequest, gateway_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway_url}{request.param}", api_key="none", max_retries=0)


@pytest.mark.parametrize("engine", ["VLLM", "OLlama", "SGLang", "LlamaCpp"])
def test_an_engine_that_generates_chats_and_completes(client: openai.OpenAI, models: Models, engine: str) -> None:
    messages = [{"role": "user", "content": "Say something."}]
    answer = client.chat.completions.create(model=models[engine], messages=messages, max_tokens=4)
    assert answer.model == models[engine]
    assert answer.choices[0].message.role == "assistant"
    stream = client.chat.completions.create(
        model=models[engine], messages=messages, max_tokens=64, stream=True, extra_body={"ignore_eos": True}
    )
    assert len([chunk for chunk in stream if chunk.choices]) > 1
    assert client.completions.create(model=models[engine], prompt="Once", max_tokens=4).choices


def test_infinity_embeds_and_ranks(client: openai.OpenAI, models: Models, gateway_url: str) -> None:
    name = models["Infinity"]
    vectors = client.embeddings.create(model=name, input=["one", "two"], encoding_format="float")
    assert [len(item.embedding) for item in vectors.data] == [384, 384]
    body = {"model": name, "query": "red fish", "documents": ["a bird", "one red fish"]}
    assert ask(f"{gateway_url}/v1/rerank", body).json["results"][0]["index"] == 1


def test_speech_is_transcribed_by_the_model_of_the_form(client: openai.OpenAI, models: Models) -> None:
    """The engine would take a form's model for the name of other weights, so that field is left out on the way."""
    sound = bytes(range(256)) * 2000
    file = ("speech.wav", io.BytesIO(sound))
    heard = client.audio.transcriptions.create(model=models["FasterWhisper"], file=file, language="en")
    digest = hashlib.sha256(sound).hexdigest()
    assert heard.text.startswith(f"speech.wav {len(sound)} bytes sha256 {digest}")
    assert "language=en" in heard.text
    assert "model=" not in heard.text


def test_models_are_listed_by_what_they_can_do(client: openai.OpenAI, models: Models, gateway_url: str) -> None:
    generating = {models[engine] for engine in ("VLLM", "OLlama", "SGLang", "LlamaCpp")}
    ours = set(models.values())
    assert {card.id for card in client.models.list()} & ours == generating
    assert set(listed(gateway_url, "?feature=SpeechToText")) & ours == {models["FasterWhisper"]}
    cards = listed(gateway_url, "?feature=TextEmbedding&feature=SpeechToText")
    assert set(cards) & ours == {models["Infinity"], models["FasterWhisper"]}
    card = listed(gateway_url)[models["VLLM"]]
    assert (card["object"], card["owned_by"], card["features"]) == ("model", "tests", ["TextGeneration"])
    assert card["created"] > 1_600_000_000


def test_pods_and_children_bear_the_names_of_kubeai(kubeai: KubeAI, namespace_of_all: str, models: Models) -> None:
    name = models["VLLM"]
    [pod] = kubeai.pods(namespace_of_all, name)
    labels = {
        "app": "model",
        "model": name,
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": f"vllm-{name}",
        "app.kubernetes.io/managed-by": "kubeai",
        "features.kubeai.org/TextGeneration": "true",
    }
    assert pod["metadata"]["labels"].items() >= labels.items()
    assert pod["metadata"]["annotations"]["model-pod-port"] == "8000"
    [server] = pod["spec"]["containers"]
    assert (server["name"], server["ports"]) == (
        "server",
        [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
    )
    assert {"mountPath": "/dev/shm", "name": "dshm"} in server["volumeMounts"]
    assert kubeai.get("Deployment", namespace_of_all, f"model-{name}")
    assert kubeai.get("Service", namespace_of_all, f"model-{name}")


def test_kubectl_shows_what_a_person_wants_to_know(kubeai: KubeAI, namespace_of_all: str, models: Models) -> None:
    lines = kubeai.kubectl("get", "models.kubeai.org", "--namespace", namespace_of_all).splitlines()
    assert {"NAME", "ENGINE", "URL", "REPLICAS", "READY"} <= set(lines[0].split())
    [row] = [line.split() for line in lines if line.startswith(models["OLlama"])]
    assert {"OLlama", "ollama://qwen2:0.5b", "1"} <= set(row)


def test_the_status_describes_a_ready_model(kubeai: KubeAI, namespace_of_all: str, models: Models) -> None:
    status: Object = kubeai.model(namespace_of_all, models["VLLM"])["status"]
    assert (status["replicas"]["all"], status["replicas"]["ready"]) == (1, 1)
    seen = {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}
    assert seen == {
        "Accepted": ("True", "Valid"),
        "Available": ("True", "Ready"),
        "Progressing": ("False", "Complete"),
        "Routed": ("True", "Routed"),
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Complete"),
        "Stalled": ("False", "AsExpected"),
    }


def test_a_prompt_goes_to_the_pod_that_has_its_prefix(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    name = unique("prefix")
    settings = {"args": ["--enable-prompt-tokens-details"], "loadBalancing": {"strategy": "PrefixHash"}}
    kubeai.make_model(free_namespace, name, minReplicas=3, maxReplicas=3, **settings)
    kubeai.wait_ready(free_namespace, name)
    kubeai.wait_replicas(free_namespace, name, 3)

    def chosen(prompt: str) -> str:
        return chat(gateway_url, name, prompt).words[0]

    def alike() -> int:
        """Pods that were chosen, 0 where a prompt went to two of them: a gateway does not know all pods yet."""
        first, second = ([chosen(f"any prompt {number}") for number in range(40)] for _round in range(2))
        return len(set(first)) if first == second else 0

    wait("both gateways know three pods", PATIENCE, alike, lambda count: count == 3)
    for conversation in range(4):
        text = f"conversation {conversation} " * 20
        answers = []
        for turn in range(6):
            answers.append(chat(gateway_url, name, text + "and on " * turn))
            # An answer is read; one that is still on its way counts as load, which moves the next.
            wait("no request is in flight", PATIENCE, lambda: kubeai.in_flight(free_namespace, f"model-{name}") == 0)
        assert len({answer.words[0] for answer in answers}) == 1
        assert all(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 60 for answer in answers[1:])


def test_a_request_may_choose_by_labels(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    names = {team: unique(team) for team in ("red", "blue")}
    for team, name in names.items():
        kubeai.make_model(free_namespace, name, labels={"team": team, "tests": free_namespace})
    for name in names.values():
        kubeai.wait_ready(free_namespace, name)
    kubeai.wait_routed(free_namespace, *names.values())

    def ask_red(selector: str) -> int:
        return chat(gateway_url, names["red"], headers={"X_Label_Selector": selector}).status

    assert ask_red("team=red") == 200
    assert ask_red("team in (red,green),tests") == 200
    assert ask_red("team=blue") == 404
    assert ask_red("!tests") == 404
    assert set(listed(gateway_url, X_Label_Selector=f"tests={free_namespace},team!=blue")) == {names["red"]}
