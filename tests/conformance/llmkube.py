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
LATER: dict[str, Object] = {
    "Model": {
        "hardware": {"gpu": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}},
        "prefetchTolerations": [{"key": "models", "operator": "Exists"}],
    },
    "InferenceService": {
        "disruption": {"maxUnavailable": 1},
        "endpoint": {"gateway": {"enabled": True, "hostnames": ["chat.example.com"]}},
        "hotCacheMaxSize": "8GB",
        "maxPodLifetimeIdleTimeoutSeconds": 60,
        "maxPodLifetimeSeconds": 86400,
        "pagedSSDCacheDir": "/cache",
        "pagedSSDCacheMaxSize": "100GB",
        "resources": {"gpuSharing": {"mode": "timeSlicing"}},
        "rolloutPolicy": {"drain": {"enabled": True}},
        "sglangConfig": {"memFractionStatic": "0.8"},
        "slo": {"ttft": {"p95": "500ms"}},
        "speculativeDecoding": {"draftModel": "tiny", "nested": {"unheard": [1]}},
        "turboQuantBits": 3,
    },
}
"""Fields of later versions of LLMKube, which ours keeps though nothing follows from them."""
MANIFESTS = [
    pytest.param(found, id=f"{path.stem}-{found['kind']}")
    for path in sorted(SAMPLES.glob("*.yaml"))
    for found in yaml.safe_load_all(path.read_text())
    if isinstance(found, dict) and found.get("kind") in LEAST
]
