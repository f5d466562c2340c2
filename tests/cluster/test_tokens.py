"""Gated repositories: a token comes in by the ways that Krypton documents, and is seen nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .cluster import SYSTEM, TOKEN, Cluster, unique

GATED = {"huggingface": "acme/gated", "file": "tiny.gguf"}
VARIABLE = "HUGGINGFACE_HUB_TOKEN"


def make_secret(cluster: Cluster, namespace: str, key: str = VARIABLE) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "hub", "namespace": namespace}, "stringData": {key: TOKEN}}
    cluster.create(secret)


@pytest.mark.parametrize(
    "way",
    [
        {"envFrom": [{"secretRef": {"name": "hub"}}]},
        {"env": [{"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "hub", "key": VARIABLE}}}]},
        {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": VARIABLE}}}]},
    ],
    ids=["envFrom", "env", "env-under-its-newer-name"],
)
def test_a_token_reaches_the_hub(cluster: Cluster, namespace: str, way: dict[str, Any]) -> None:
    name = unique("gated")
    make_secret(cluster, namespace)
    cluster.make_model(namespace, name, source=GATED, **way)
    cluster.wait_ready(namespace, name)


def test_a_missing_token_is_reported_and_the_secret_fixes_it(cluster: Cluster, namespace: str) -> None:
    name = unique("token")
    optional = [{"secretRef": {"name": "hub", "optional": True}}]
    cluster.make_model(namespace, name, source=GATED, envFrom=optional)
    message = cluster.wait_failed(namespace, name, "DownloadFailed")
    assert VARIABLE in message or "token" in message
    make_secret(cluster, namespace)
    # The kubelet waits longer after each failure. The next container that it starts gets the Secret.
    cluster.wait_ready(namespace, name, 240)


def test_a_token_shows_nowhere(cluster: Cluster, namespace: str) -> None:
    name = unique("hidden")
    make_secret(cluster, namespace)
    cluster.make_model(namespace, name, source=GATED, envFrom=[{"secretRef": {"name": "hub"}}])
    cluster.wait_ready(namespace, name)
    contents = {
        "model": cluster.model(namespace, name),
        "children": cluster.children(namespace, name),
        "pods": cluster.pods(namespace, name),
        "events": cluster.list("Event", namespace),
        "engine's log": [cluster.logs(namespace, pod["metadata"]["name"]) for pod in cluster.pods(namespace, name)],
        "our logs": cluster.our_logs(),
        "our settings": cluster.list("ConfigMap", SYSTEM, "app.kubernetes.io/name"),
    }
    assert [place for place, content in contents.items() if TOKEN in json.dumps(content, default=str)] == []
