"""KubeAI's own manifests become pods as they are, as far as one node can run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.apis.kubeai import KubeAI
from slipway.serving.plan import Invalid, Reference, World
from slipway.serving.settings import Settings

SAMPLES = Path(__file__).parents[5] / "shared/reference/samples/kubeai"
SETTINGS = Settings(system_namespace="slipway-system")
CONFIG = {
    "cacheProfiles": {
        name: {"sharedFilesystem": {"storageClassName": "any"}} for name in ("e2e-test-kind-pv", "standard-filestore")
    },
    "resourceProfiles": {"google-tpu-v5e-1x1": {"imageName": "google-tpu", "limits": {"google.com/tpu": 1}}},
}
"""What the samples' own clusters add to the defaults."""
REFUSED_BY_THE_DEFINITION = {"dev/kind-cpu-adapters.yaml"}
"""Adapters on Ollama, which KubeAI's definition refuses as ours does."""
PATHS = sorted(path for folder in ("models", "dev", "e2e", "examples") for path in SAMPLES.glob(f"{folder}/*.yaml"))
MODELS = [
    pytest.param(model, id=f"{path.parent.name}-{path.stem}")
    for path in PATHS
    if str(path.relative_to(SAMPLES)) not in REFUSED_BY_THE_DEFINITION
    for model in yaml.safe_load_all(path.read_text())
    if model and model["kind"] == "Model"
]


def world(model: dict[str, Any]) -> World:
    metadata = {"namespace": "models", "uid": "1", "generation": 1, "creationTimestamp": "2026-11-21T09:00:00Z"}
    resource = model | {"metadata": model["metadata"] | metadata}
    config = {"data": {"system.yaml": yaml.safe_dump(CONFIG)}}
    references: dict[Reference, Any] = {KubeAI().references(resource, SETTINGS)[0]: config}
    return World(resource=resource, children={}, pods=[], routed=[], settings=SETTINGS, now=0.0, referenced=references)


@pytest.mark.skipif(not SAMPLES.exists(), reason="the reference samples are not there")
@pytest.mark.parametrize("model", MODELS)
def test_a_sample_is_planned(model: dict[str, Any]) -> None:
    made = KubeAI().plan(world(model)).children
    kinds = [child["kind"] for child in made]
    assert "Service" in kinds
    assert ("Job" if model["spec"].get("cacheProfile") else "Deployment") in kinds


@pytest.mark.skipif(not SAMPLES.exists(), reason="the reference samples are not there")
@pytest.mark.parametrize("name", sorted(REFUSED_BY_THE_DEFINITION))
def test_what_the_definition_refuses_is_refused_here_too(name: str) -> None:
    model = next(yaml.safe_load_all((SAMPLES / name).read_text()))
    with pytest.raises(Invalid, match="VLLM"):
        KubeAI().plan(world(model))
