"""The API server takes and refuses Models of kubeai.org/v1 as KubeAI's documents say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..cluster.cluster import Cluster, Object
from .cases import judged, laid_over

HERE = Path(__file__).parent
SAMPLES = HERE.parents[2] / "shared" / "reference" / "samples" / "kubeai"
KIND = "Model.kubeai.org"
LEAST: Object = {"url": "hf://acme/tiny", "engine": "VLLM", "features": ["TextGeneration"]}
CASES: list[Object] = yaml.safe_load((HERE / "kubeai_cases.yaml").read_text())
DEFAULTS: Object = {
    "targetRequests": 100,
    "scaleDownDelaySeconds": 30,
    "minReplicas": 0,
    "loadBalancing": {
        "strategy": "LeastLoad",
        "prefixHash": {"meanLoadFactor": 125, "replication": 20, "prefixCharLength": 100},
    },
}
STATUS: Object = {
    "replicas": {"all": 2, "ready": 1},
    "selector": "app=model,model=every",
    "cache": {"loaded": False, "doneBytes": 2**40, "totalBytes": 2**41, "message": "2 of 3 files"},
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Available",
            "status": "False",
            "reason": "LoadingCache",
            "message": "two\nlines",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }
    ],
}


@pytest.fixture(scope="module")
def cluster(kubeconfig: str) -> Cluster:
    return Cluster(kubeconfig)


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    name = cluster.namespace("kubeai")
    yield name
    cluster.delete("Namespace", "", name)


def model(namespace: str, name: str, spec: Object) -> Object:
    return {"kind": KIND, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_model_is_taken_or_refused_with_the_reason(cluster: Cluster, namespace: str, case: Object) -> None:
    spec = laid_over(LEAST, case.get("spec", {}))
    name = case.get("name", f"case-{CASES.index(case)}")
    message = judged(cluster, model(namespace, name, spec), case.get("update"))
    assert case["says"] in message if "says" in case else not message


def test_omitted_fields_get_the_documented_defaults(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(model(namespace, "defaults", LEAST), rehearsed=True)["spec"] == LEAST | DEFAULTS


def test_every_field_of_the_status_survives_the_api_server(cluster: Cluster, namespace: str) -> None:
    cluster.create(model(namespace, "every", LEAST | {"autoscalingDisabled": True}))
    command = ("patch", "models.kubeai.org", "every", "--namespace", namespace, "--subresource=status", "--type=merge")
    answer = cluster.kubectl(*command, "--output=yaml", "--patch", yaml.safe_dump({"status": STATUS}))
    assert yaml.safe_load(answer)["status"] == STATUS


def test_kubectl_scale_sets_the_replicas(cluster: Cluster, namespace: str) -> None:
    cluster.create(model(namespace, "scaled", LEAST | {"autoscalingDisabled": True, "replicas": 0}))
    cluster.kubectl("scale", "models.kubeai.org/scaled", "--namespace", namespace, "--replicas=3")
    live_model = cluster.get(KIND, namespace, "scaled")
    assert live_model
    assert live_model["spec"]["replicas"] == 3


def test_kubectl_shows_what_a_person_looks_for(cluster: Cluster, namespace: str) -> None:
    cluster.create(model(namespace, "shown", LEAST))
    table = cluster.kubectl("get", "models.kubeai.org", "shown", "--namespace", namespace)
    assert table.splitlines()[0].split() == [
        "NAME",
        "ENGINE",
        "URL",
        "REPLICAS",
        "READY",
        "REASON",
        "AGE",
        "STATE",
        "MODEL",
        "ID",
    ]
    assert table.splitlines()[1].split()[:3] == ["shown", "VLLM", "hf://acme/tiny"]


# --- the original's own cases and manifests, where they lie beside this checkout --------------------------------------

ORIGINAL: list[Object] = (
    yaml.safe_load(cases.read_text())["cases"] if (cases := SAMPLES / "validation-cases.yaml").exists() else []
)
MANIFESTS = sorted(
    path for folder in ("models", "dev", "e2e", "examples", "next") for path in (SAMPLES / folder).glob("*.yaml")
)
REFUSED_THERE_TOO = {"kind-cpu-adapters.yaml"}
"""Ollama with an adapter."""


def repeated(value: Any) -> Any:
    """``@repeat:a:3`` is how these cases write a long text."""
    if isinstance(value, str) and value.startswith("@repeat:"):
        letter, times = value.split(":")[1:]
        return letter * int(times)
    if isinstance(value, dict):
        return {name: repeated(below) for name, below in value.items()}
    return [repeated(below) for below in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", ORIGINAL, ids=lambda case: case["model"]["metadata"]["name"])
def test_a_case_of_the_original_is_decided_as_there(cluster: Cluster, namespace: str, case: Object) -> None:
    body = model(namespace, case["model"]["metadata"]["name"], repeated(case["model"]["spec"]))
    message = judged(cluster, body, case.get("update"))
    assert bool(message) == (case["expect"] == "reject")
    assert all(text in message for text in case.get("errorContains", []))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_manifest_of_the_original_is_taken_as_it_is(cluster: Cluster, path: Path) -> None:
    models = [manifest for manifest in yaml.safe_load_all(path.read_text()) if manifest and manifest["kind"] == "Model"]
    for manifest in models:
        command = ("create", "--dry-run=server", "--validate=strict", "--output=yaml", "--filename=-")
        if path.name in REFUSED_THERE_TOO:
            with pytest.raises(AssertionError, match="adapters are only supported with the VLLM engine"):
                cluster.kubectl(*command, stdin=yaml.safe_dump(manifest))
            continue
        spec = yaml.safe_load(cluster.kubectl(*command, stdin=yaml.safe_dump(manifest)))["spec"]
        assert spec == DEFAULTS | manifest["spec"]
