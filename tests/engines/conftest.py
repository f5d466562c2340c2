"""Fixtures of the tests with real engines: a model of each, which all tests ask."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import unique, wait
from tests.cluster.fixtures import kubeai, llmkube
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube

__all__ = ["kubeai", "llmkube"]
PATIENCE = 1500
"""Seconds for an engine's start: on two busy cores vLLM takes minutes."""
SECONDS = 3600
"""For a test, which may wait for several engines."""
RECORDED = Path(__file__).parent / "recorded"
OWN = frozenset(("health", "models", "unknown_model", "unknown_model_message", "unknown_path", "wrong_method"))
"""The exchanges that the gateway answers itself."""


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


def kubeai_model(kubeai: KubeAI, namespace: str, prefix: str, **spec: Any) -> str:
    """The name of a new Model that is ready and routed to."""
    name = unique(prefix)
    kubeai.make_model(namespace, name, **spec)
    kubeai.wait_ready(namespace, name, PATIENCE)
    kubeai.wait_routed(namespace, name)
    return name


def stream_over_deletion(kubeai: KubeAI, namespace: str, model: str, gateway: str, tokens: int) -> str:
    """Deletes the pod of a model during a stream, and returns why the stream ended, as its last chunk says."""
    lines: list[bytes] = []
    reader = threading.Thread(target=read_stream, args=(gateway, model, tokens, lines.append))
    reader.start()
    wait("the stream has begun", PATIENCE, lambda: len(lines) > 5)
    [pod] = kubeai.pods(namespace, model)
    kubeai.delete("Pod", namespace, pod["metadata"]["name"])
    reader.join(PATIENCE)
    kubeai.wait_ready(namespace, model, PATIENCE)
    assert lines[-1] == b"data: [DONE]\n"
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    [reason] = {choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]} - {None}
    return str(reason)


def read_stream(gateway: str, model: str, tokens: int, take: Callable[[bytes], None]) -> None:
    connection = http.client.HTTPConnection(gateway.removeprefix("http://"), timeout=PATIENCE)
    body = {"model": model, "prompt": "hello", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if line.strip():
            take(line)
