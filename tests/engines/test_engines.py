"""Real engines behind the gateway: they answer as they were recorded to, and stop as the drain expects them to."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.cluster.cluster import condition, observed, unique, wait
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube

from .conftest import PATIENCE
from .exchanges import EMBEDS, GENERATES, Exchange, differences
from .record import ask

RECORDED = json.loads((Path(__file__).parent / "recorded/vllm-0.32.0.json").read_text())["answers"]
PASSED = ("chat", "chat_stream", "completion", "completion_stream", "response", "no_messages", "no_prompt", "too_long")
"""What the gateway leaves to the engine."""
LIMITS = ["--max-model-len=1024", "--enforce-eager"]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
ADAPTER = {"name": "wiki", "url": "hf://tiny/adapter"}


@pytest.fixture(scope="module")
def vllm(kubeai: KubeAI, kubeai_namespace: str) -> str:
    """KubeAI's Model, with an adapter."""
    name = unique("vllm")
    features = ["TextGeneration"]
    spec = {"url": "hf://tiny/llama", "engine": "VLLM", "features": features, "args": LIMITS, "env": ENVIRONMENT}
    kubeai.make_model(kubeai_namespace, name, **spec, adapters=[ADAPTER])
    kubeai.wait_ready(kubeai_namespace, name, PATIENCE)
    kubeai.wait_routed(kubeai_namespace, name)
    return name


@pytest.fixture(scope="module")
def service(llmkube: LLMKube, llmkube_namespace: str) -> str:
    """LLMKube's InferenceService."""
    name = unique("service")
    llmkube.make_model(llmkube_namespace, name, source="tiny/llama", format="safetensors")
    resources = {"cpu": "100m", "memory": "1Gi"}
    config = {"maxModelLen": 1024, "dtype": "bfloat16", "enablePrefixCaching": True}
    settings: dict[str, Any] = {"vllmConfig": config, "extraArgs": ["--enforce-eager"], "resources": resources}
    variables = [{"name": key, "value": value} for key, value in ENVIRONMENT.items()]
    llmkube.make_service(llmkube_namespace, name, name, runtime="vllm", env=variables, **settings)
    llmkube.wait_serving(llmkube_namespace, name, PATIENCE)
    return name


@pytest.fixture(scope="module")
def infinity(kubeai: KubeAI, kubeai_namespace: str) -> str:
    name = unique("infinity")
    kubeai.make_model(
        kubeai_namespace, name, url="hf://tiny/bert", engine="Infinity", features=["TextEmbedding"]
    )  # fmt: skip
    kubeai.wait_ready(kubeai_namespace, name, PATIENCE)
    kubeai.wait_routed(kubeai_namespace, name)
    return name


@pytest.mark.parametrize("exchange", [one for one in GENERATES if one.name in PASSED], ids=lambda one: one.name)
@pytest.mark.parametrize("owner", ["vllm", "service"])
def test_vllm_answers_through_the_gateway_as_it_was_recorded(
    request: pytest.FixtureRequest, gateway_url: str, owner: str, exchange: Exchange
) -> None:
    answered = ask(gateway_url, exchange, request.getfixturevalue(owner), "-")
    assert differences(RECORDED[exchange.name], answered) == []


@pytest.mark.parametrize("owner", ["vllm", "service", "infinity"])
def test_a_model_is_known_by_its_name(request: pytest.FixtureRequest, gateway_url: str, owner: str) -> None:
    name = request.getfixturevalue(owner)
    assert openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none").models.retrieve(name).id == name


def test_an_adapter_is_loaded_while_vllm_runs_and_answers(
    kubeai: KubeAI, kubeai_namespace: str, vllm: str, gateway_url: str
) -> None:
    def loaded() -> bool:
        model = kubeai.model(kubeai_namespace, vllm)
        return observed(model) and condition(model, "AdaptersLoaded").get("status") == "True"

    wait("the adapter is loaded", PATIENCE, loaded)
    client = openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none")
    answer = client.completions.create(model=f"{vllm}_wiki", prompt="hello", max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


def test_infinity_embeds(infinity: str, gateway_url: str) -> None:
    exchange = next(one for one in EMBEDS if one.name == "embeddings")
    body = ask(gateway_url, exchange, infinity, "-")["body"]
    assert [item["object"] for item in body["data"]] == ["embedding", "embedding"]


def test_a_stream_ends_whole_though_its_pod_is_deleted(
    kubeai: KubeAI, kubeai_namespace: str, vllm: str, gateway_url: str
) -> None:
    """vLLM leaves streams as they are at SIGTERM: the hook before it waits until there is none."""
    lines: list[bytes] = []
    reader = threading.Thread(target=stream, args=(gateway_url, vllm, lines.append))
    reader.start()
    wait("the stream has begun", PATIENCE, lambda: len(lines) > 5)
    [pod] = kubeai.pods(kubeai_namespace, vllm)
    kubeai.delete("Pod", kubeai_namespace, pod["metadata"]["name"])
    reader.join(PATIENCE)
    assert lines[-1] == b"data: [DONE]\n"
    kubeai.wait_ready(kubeai_namespace, vllm, PATIENCE)


def stream(gateway: str, model: str, take: Callable[[bytes], None]) -> None:
    connection = http.client.HTTPConnection(gateway.removeprefix("http://"), timeout=PATIENCE)
    body = {"model": model, "prompt": "hello", "max_tokens": 900, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if line.strip():
            take(line)
