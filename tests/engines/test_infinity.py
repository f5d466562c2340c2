"""Infinity behind the gateway: its answers match the recorded ones."""

from __future__ import annotations

import json

import pytest

from tests.cluster.kubeai import KubeAI

from .conftest import OWN, RECORDED, kubeai_model
from .exchanges import EMBEDS, RANKS, Exchange, differences
from .record import ask

VECTORS = json.loads((RECORDED / "infinity-0.0.77-embeds.json").read_text())["answers"]
RANKED = json.loads((RECORDED / "infinity-0.0.77-ranks.json").read_text())["answers"]
OTHER_TASK = {"rerank"}
"""What the gateway answers of a model that makes vectors."""


@pytest.fixture(scope="module")
def vectors(kubeai: KubeAI, kubeai_namespace: str) -> str:
    spec = {"url": "hf://tiny/bert", "engine": "Infinity", "features": ["TextEmbedding"]}
    return kubeai_model(kubeai, kubeai_namespace, "vectors", **spec)


@pytest.fixture(scope="module")
def ranker(kubeai: KubeAI, kubeai_namespace: str) -> str:
    spec = {"url": "hf://tiny/ranker", "engine": "Infinity", "features": ["Reranking"]}
    return kubeai_model(kubeai, kubeai_namespace, "ranker", **spec)


@pytest.mark.parametrize(
    "exchange", [one for one in EMBEDS if one.name not in OWN | OTHER_TASK], ids=lambda one: one.name
)
def test_infinity_makes_vectors_as_it_was_recorded(vectors: str, gateway_url: str, exchange: Exchange) -> None:
    assert differences(VECTORS[exchange.name], ask(gateway_url, exchange, vectors, "")) == []


@pytest.mark.parametrize("name", ["rerank", "rerank_best", "no_query"])
def test_infinity_ranks_as_it_was_recorded(ranker: str, gateway_url: str, name: str) -> None:
    [exchange] = [one for one in RANKS if one.name == name]
    assert differences(RANKED[name], ask(gateway_url, exchange, ranker, "")) == []
