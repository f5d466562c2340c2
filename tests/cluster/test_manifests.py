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
    """A namespace that replaces the one in the manifests, with the Secret that one of them needs."""
    name = cluster.namespace("manifests", restricted=False)
    secret = {"kind": "Secret", "metadata": {"name": "hf-token", "namespace": name}}
    cluster.create(secret | {"stringData": {"HUGGINGFACE_HUB_TOKEN": TOKEN}})
    yield name
    cluster.delete("Namespace", "", name)


def test_manifests_written_for_krypton_apply_unchanged(cluster: Cluster, models_namespace: str) -> None:
    for manifest in ("minimal", "usual", "every-field", "other-repository"):
        text = (
            (MANIFESTS / f"{manifest}.yaml").read_text().replace("namespace: models", f"namespace: {models_namespace}")
        )
        name, written = yaml.safe_load(text)["metadata"]["name"], yaml.safe_load(text)["spec"]
        cluster.kubectl("apply", "--filename", "-", stdin=text)
        model = cluster.wait_ready(models_namespace, name)
        assert {field: model["spec"][field] for field in written} == written, manifest
        # Each asks for half a CPU: a small machine has no room for two of them.
        cluster.delete("Model", models_namespace, name)
        for pod in cluster.pods(models_namespace, name):
            cluster.delete("Pod", models_namespace, pod["metadata"]["name"], grace=0)
        cluster.wait_gone("Deployment", models_namespace, name)
