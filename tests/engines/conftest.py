"""Fixtures of the tests with real engines: a model of each, which all tests ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.fixtures import kubeai, llmkube
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube

__all__ = ["kubeai", "llmkube"]
PATIENCE = 1500
"""Seconds for an engine's start: on two busy cores vLLM takes minutes."""
SECONDS = 3600
"""For a test, which may wait for several engines."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def kubeai_namespace(kubeai: KubeAI) -> Iterator[str]:
    name = kubeai.namespace("engines")
    yield name
    kubeai.delete("Namespace", "", name)


@pytest.fixture(scope="session")
def llmkube_namespace(llmkube: LLMKube) -> Iterator[str]:
    name = llmkube.namespace("engines")
    yield name
    llmkube.delete("Namespace", "", name)
