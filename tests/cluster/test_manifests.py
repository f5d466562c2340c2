"""Manifests as people have them for Krypton apply unchanged, and their models answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .cluster import TOKEN, Cluster

MANIFESTS = Path(__file__).parent / "manifests"


@pytest.fixture
def models_namespace(cluster: Cluster) -> Iterator[str]:
    """The namespace that all those manifests name, with the Secret that one of them needs; the models go afterwards."""
    if cluster.get("Namespace", "", "models") is None:
        cluster.create({"kind": "Namespace", "metadata": {"name": "models"}})
    secret = {"kind": "Secret", "metadata": {"name": "hf-token", "namespace": "models"}}
    cluster.delete("Secret", "models", "hf-token")
    cluster.create(secret | {"stringData": {"HUGGINGFACE_HUB_TOKEN": TOKEN}})
    yield "models"
    for name in ("qwen2-0-5b", "tinyllama-1-1b"):
        cluster.delete("Model", "models", name)


def test_manifests_written_for_krypton_apply_unchanged(cluster: Cluster, models_namespace: str) -> None:
    for manifest in ("minimal", "usual", "every-field", "other-repository"):
        text = (MANIFESTS / f"{manifest}.yaml").read_text()
        name, written = yaml.safe_load(text)["metadata"]["name"], yaml.safe_load(text)["spec"]
        cluster.kubectl("apply", "--filename", "-", stdin=text)
        model = cluster.wait_ready(models_namespace, name)
        assert {field: model["spec"][field] for field in written} == written, manifest
        # Each asks for half a CPU: a small machine has no room for two of them.
        cluster.delete("Model", models_namespace, name)
        for pod in cluster.pods(models_namespace, name):
            cluster.delete("Pod", models_namespace, pod["metadata"]["name"], grace=0)
        cluster.wait_gone("Deployment", models_namespace, name)
