"""The Model of krypton.ai/v1alpha1 has the fields, defaults and limits that Krypton's documents give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.dynamic.exceptions import DynamicApiError

from ..cluster.cluster import Cluster, Object

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "tests" / "cluster" / "manifests").glob("*.yaml"))

STRING: Object = {"type": "string"}
INTEGER: Object = {"type": "integer"}
OF_KUBERNETES = ("resources.", "env[].", "envFrom[].")
"""What is below these fields is Kubernetes' own: tests/unit/apis/test_schemas.py holds it against its schemas."""
SPEC: dict[str, Object] = {
    "source": {"type": "object", "required": ["huggingface", "file"]},
    "source.huggingface": STRING | {"minLength": 1},
    "source.file": STRING | {"minLength": 1},
    "runtime": STRING | {"enum": ["llama.cpp"], "default": "llama.cpp"},
    "image": STRING,
    "imagePullPolicy": STRING | {"default": "IfNotPresent"},
    "imagePullSecrets": {"type": "array"},
    "imagePullSecrets[]": {"type": "object"},
    "imagePullSecrets[].name": STRING,
    "port": INTEGER | {"minimum": 1, "maximum": 65535, "default": 8080},
    "args": {"type": "array"},
    "args[]": STRING,
    "minReplicas": INTEGER | {"minimum": 1, "default": 1},
    "maxReplicas": INTEGER | {"minimum": 1, "default": 1},
    "resources": {"type": "object"},
    "env": {"type": "array"},
    "env[]": {"type": "object", "required": ["name"]},
    "envFrom": {"type": "array"},
    "envFrom[]": {"type": "object"},
    "serviceAccountName": STRING,
    "startupTimeout": STRING | {"default": "600s"},
}
STATUS: dict[str, Object] = {
    "phase": STRING | {"enum": ["Failed", "Pending", "Ready"]},
    "modelId": STRING,  # ours
    "replicas": INTEGER,
    "readyReplicas": INTEGER,
    "url": STRING,
    "observedGeneration": INTEGER,
    "conditions": {"type": "array"},
    "conditions[]": {"type": "object", "required": ["type", "status"]},
    "conditions[].type": STRING,
    "conditions[].status": STRING,
    "conditions[].reason": STRING,
    "conditions[].message": STRING,
    "conditions[].lastTransitionTime": STRING | {"format": "date-time"},
    "conditions[].observedGeneration": INTEGER,
}
COLUMNS = [
    ("Runtime", "string", ".spec.runtime"),
    ("Source", "string", ".spec.source.huggingface"),
    ("Phase", "string", ".status.phase"),
    ("Replicas", "integer", ".status.replicas"),
    ("Age", "date", ".metadata.creationTimestamp"),
    # Ours, as on every kind: after those of the original, which scripts may count.
    ("State", "string", '.status.conditions[?(@.type=="Ready")].reason'),
    ("Model ID", "string", ".status.modelId"),
]
EVERY_FIELD: Object = {
    "source": {"huggingface": "acme/tiny", "file": "folder/tiny.gguf"},
    "runtime": "llama.cpp",
    "image": "registry.invalid/llama.cpp:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "port": 65535,
    "args": ["--ctx-size", "4096"],
    "minReplicas": 2,
    "maxReplicas": 1,
    "resources": {
        "requests": {"cpu": "500m", "nvidia.com/gpu": 1},
        "limits": {"memory": "1Gi"},
        "claims": [{"name": "gpu"}],
    },
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "envFrom": [{"secretRef": {"name": "hf-token"}}, {"prefix": "X_", "configMapRef": {"name": "c", "optional": True}}],
    "serviceAccountName": "mine",
    "startupTimeout": "1h30m",
}
EVERY_STATUS: Object = {
    "phase": "Failed",
    "replicas": 2,
    "readyReplicas": 0,
    "url": "http://every.test.svc:65535/v1",
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Available",
            "status": "False",
            "reason": "CrashLoopBackOff",
            "message": "two\nlines",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }
    ],
}


def definition() -> Object:
    text = (ROOT / "roles" / "crds" / "files" / "krypton.ai_models.yaml").read_text()
    manifest: Object = yaml.safe_load(text)
    return manifest


def rules(schema: Object, path: str = "") -> dict[str, Object]:
    """Path -> constraints of every field below a schema; ``[]`` is an item of a list."""
    constraints = {
        path: {key: value for key, value in schema.items() if key not in ("description", "properties", "items")}
    }
    for name, below in schema.get("properties", {}).items():
        constraints |= rules(below, f"{path}.{name}".removeprefix("."))
    if "items" in schema:
        constraints |= rules(schema["items"], f"{path}[]")
    return constraints


@pytest.mark.parametrize(("part", "documented"), [("spec", SPEC), ("status", STATUS)])
def test_fields_defaults_and_limits_are_the_documented_ones(part: str, documented: dict[str, Object]) -> None:
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    ours = rules(schema)
    assert ours.pop("")["type"] == "object"
    assert {path: without_order(rule) for path, rule in ours.items() if not path.startswith(OF_KUBERNETES)} == {
        path: without_order(rule) for path, rule in documented.items()
    }


def without_order(rule: Object) -> Object:
    return {key: sorted(value) if key in ("enum", "required") else value for key, value in rule.items()}


def test_kubectl_addresses_and_shows_it_as_documented() -> None:
    spec = definition()["spec"]
    version = spec["versions"][0]
    assert (spec["group"], spec["scope"], version["name"]) == ("krypton.ai", "Namespaced", "v1alpha1")
    assert spec["names"] | {"categories": None} == {
        "kind": "Model",
        "listKind": "ModelList",
        "plural": "models",
        "singular": "model",
        "shortNames": ["mdl"],
        "categories": None,
    }
    plain = [column for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert [(column["name"], column["type"], column["jsonPath"]) for column in plain] == COLUMNS
    assert version["subresources"] == {"status": {}}


@pytest.fixture(scope="module")
def cluster(kubeconfig: str) -> Cluster:
    return Cluster(kubeconfig)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_documented_manifest_is_taken_as_it_is(cluster: Cluster, manifest: Path) -> None:
    text = manifest.read_text().replace("namespace: models", "namespace: default")
    answer = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "--output", "yaml", "--filename", "-", stdin=text
    )
    spec, written = yaml.safe_load(answer)["spec"], yaml.safe_load(text)["spec"]
    assert {field: spec[field] for field in written} == written
    assert {field: spec[field] for field in set(spec) - set(written)}.items() <= DEFAULTS.items()


DEFAULTS: Object = {path: rule["default"] for path, rule in SPEC.items() if "default" in rule}


def test_every_field_survives_the_api_server(cluster: Cluster) -> None:
    namespace = cluster.namespace("fields")
    # What the patch itself answers counts: a controller may write its own status a moment later.
    model = cluster.make_model(namespace, "every", **EVERY_FIELD)
    assert model["spec"] == EVERY_FIELD
    command = ("patch", "models.krypton.ai", "every", "--namespace", namespace, "--subresource=status", "--type=merge")
    answer = cluster.kubectl(*command, "--output=yaml", "--patch", yaml.safe_dump({"status": EVERY_STATUS}))
    assert yaml.safe_load(answer)["status"] == EVERY_STATUS
    cluster.delete("Namespace", "", namespace)


@pytest.mark.parametrize(
    "change",
    [
        {"source": None},
        {"source": {"huggingface": "", "file": "tiny.gguf"}},
        {"source": {"huggingface": "acme/tiny"}},
        {"source": {"huggingface": "acme/tiny", "file": ""}},
        {"runtime": "vllm"},
        {"port": 0},
        {"port": 65536},
        {"port": "8080"},
        {"minReplicas": 0},
        {"maxReplicas": 0},
        {"args": "--ctx-size 4096"},
        {"args": [4096]},
        {"startupTimeout": 600},
        {"imagePullSecrets": ["registry"]},
    ],
    ids=str,
)
def test_the_api_server_refuses_what_is_not_documented(cluster: Cluster, change: dict[str, Any]) -> None:
    spec = EVERY_FIELD | change
    spec = {field: value for field, value in spec.items() if value is not None}
    with pytest.raises(DynamicApiError) as caught:
        cluster.make_model("default", "refused", **({"source": {}} | spec))
    assert caught.value.status == 422
