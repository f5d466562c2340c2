"""What is put to the API server about LLMKube's kinds, and to their types and schemas without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ..cluster.cluster import Object

HERE = Path(__file__).parent
SAMPLES = HERE.parents[2] / "shared" / "reference" / "samples" / "llmkube"
"""Manifests of the original, where they lie beside this checkout."""

LEAST: dict[str, Object] = {"Model": {"source": "/srv/models/tiny.gguf"}, "InferenceService": {"modelRef": "tiny"}}
CASES: list[tuple[str, Object]] = [
    (kind, case) for kind, cases in yaml.safe_load((HERE / "llmkube_cases.yaml").read_text()).items() for case in cases
]
UNKNOWN: list[tuple[str, Object, str]] = [
    ("Model", {"sourc": "/x"}, "spec.sourc"),
    ("InferenceService", {"endpoint": {"ports": 1}}, "spec.endpoint.ports"),
    ("InferenceService", {"tolerations": [{"keys": "a"}]}, "spec.tolerations[0].keys"),
    ("InferenceService", {"probeOverrides": {"startup": {"http": {}}}}, "spec.probeOverrides.startup.http"),
]
MANIFESTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}")
    for path in sorted(SAMPLES.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if isinstance(document, dict) and document.get("kind") in LEAST
]
