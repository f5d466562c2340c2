"""vLLM behind the gateway: its answers match the recorded ones, and its pods end when their streams have ended."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.cluster.cluster import condition, observed, unique, wait
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube

from .conftest import OWN, PATIENCE, RECORDED, kubeai_model, stream_over_deletion
from .exchanges import EMBEDS, GENERATES, Exchange, differences
from .record import ask

GENERATED = json.loads((RECORDED / "vllm-0.32.0.json").read_text())["answers"]
VECTORS = json.loads((RECORDED / "vllm-0.32.0-embeds.json").read_text())["answers"]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
SMALL = {"args": ["--enforce-eager"], "env": ENVIRONMENT}
LIMITED = {"args": ["--max-model-len=1024", "--enforce-eager"], "env": ENVIRONMENT}
ADAPTER = {"name": "wiki", "url": "hf://tiny/adapter"}


@pytest.fixture(scope="module")
def vllm(kubeai: KubeAI, kubeai_namespace: str) -> str:
    """KubeAI's Model, with an adapter."""
    spec = {"url": "hf://tiny/llama", "features": ["TextGeneration"], "adapters": [ADAPTER]}
    return kubeai_model(kubeai, kubeai_namespace, "vllm", **spec, **LIMITED)


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
def vectors(kubeai: KubeAI, kubeai_namespace: str) -> str:
    return kubeai_model(kubeai, kubeai_namespace, "vectors", url="hf://tiny/bert", features=["TextEmbedding"], **SMALL)


@pytest.mark.parametrize("exchange", [one for one in GENERATES if one.name not in OWN], ids=lambda one: one.name)
@pytest.mark.parametrize("owner", ["vllm", "service"])
def test_vllm_answers_through_the_gateway_as_it_was_recorded(
    request: pytest.FixtureRequest, gateway_url: str, owner: str, exchange: Exchange
) -> None:
    answered = ask(gateway_url, exchange, request.getfixturevalue(owner), "")
    assert differences(GENERATED[exchange.name], answered) == []


@pytest.mark.parametrize("exchange", [one for one in EMBEDS if one.name not in OWN], ids=lambda one: one.name)
def test_vllm_makes_vectors_as_it_was_recorded(vectors: str, gateway_url: str, exchange: Exchange) -> None:
    assert differences(VECTORS[exchange.name], ask(gateway_url, exchange, vectors, "")) == []


@pytest.mark.parametrize("owner", ["vllm", "service", "vectors"])
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


def test_a_stream_ends_whole_though_its_pod_is_deleted(
    kubeai: KubeAI, kubeai_namespace: str, vllm: str, gateway_url: str
) -> None:
    """vLLM cuts streams at SIGTERM: the hook before it waits until there is none."""
    assert stream_over_deletion(kubeai, kubeai_namespace, vllm, gateway_url, 900) == "length"
