"""The role preflight, run against an API server: it tells all that is in the way at once, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

IMAGES = ("docker.io/slipway/slipway:0.4.0", "docker.io/library/haproxy:3.4.6")
READY = [{"type": "Ready", "status": "True"}]


@pytest.fixture
def api(api: ClusterApi) -> ClusterApi:
    api.put(node("worker"))
    return api


def node(name: str, *, images: Sequence[str] = IMAGES, **spec: Any) -> dict[str, Any]:
    status = {"conditions": READY, "images": [{"names": [image]} for image in images]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("flags", "writes"),
    [
        (("--check", "--diff"), []),
        ((), ["apply Pod slipway-preflight-1", "delete Pod slipway-preflight-1"]),
    ],
)
def test_without_problems_nothing_is_reported_and_no_pod_is_left(
    tmp_path: Path, api: ClusterApi, flags: tuple[str, ...], writes: list[str]
) -> None:
    """A node that lacks an image is asked for it by a pod, but not in check mode."""
    api.put(node("without", images=IMAGES[:1]))
    output = run_role(tmp_path, api, "preflight", "main", *flags, preflight_images_timeout=1)
    assert "changed=0 " in output
    assert "Nothing was changed" not in output
    assert api.writes == writes


def test_all_that_is_in_the_way_stands_in_one_report(tmp_path: Path, api: ClusterApi) -> None:
    api.version = "v1.29.1"
    api.denied = {"clusterroles", "deployments"}
    api.put(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kubeai", "namespace": "ai", "labels": {"app.kubernetes.io/name": "kubeai"}},
            "spec": {"replicas": 1},
        }
    )
    output = run_role(
        tmp_path,
        api,
        "preflight",
        "main",
        failing=True,
        preflight_gpu_nodes=["gpu-1"],
        gateway_replicas="many",
        controller_kubeai_config={"resourceProfiles": {"small": {"request": {}}}},
        models_catalogue=["nomic-embed-text"],
        models_list=[{"name": "kept", "api": "kubeai", "spec": {"url": "pvc://weights/a"}}],
    )
    report = output[output.index("problems were found") :]
    for problem in (
        "Kubernetes 1.30 or newer is required. This cluster has 1.29.1.",
        "Variables of the role gateway are invalid",
        "resourceProfiles.small has no key request",
        "Did you mean nomic-embed-text-cpu",
        "Missing: patch clusterroles.rbac.authorization.k8s.io, patch deployments.apps.",
        "Two controllers would manage the models of kubeai",
        "kubectl scale --namespace ai deployment/kubeai --replicas 0",
        "Host gpu-1 is not a node of this cluster",
    ):
        assert problem in report
    assert api.writes == []


def test_an_upgrade_without_the_keys_changes_nothing(tmp_path: Path, api: ClusterApi) -> None:
    place = {"name": "slipway-gateway", "namespace": "slipway-system"}
    labels = {"app.kubernetes.io/name": "slipway-gateway", "slipway.inference/version": "0.3.0"}
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"image": "slipway/slipway:0.3.0"}]}}}
    settings = {"gateway.yaml": "apiKeysSecret: gateway-keys\n"}
    api.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**place, "labels": labels}, "spec": spec})
    api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": settings})

    output = run_role(tmp_path, api, "preflight", "main", failing=True, preflight_upgrade=True, preflight_images=False)

    assert "One problem was found. Nothing was changed. 1. The gateway would accept requests without a key" in output
    assert "The installed gateway requires the keys in Secret gateway-keys" in output
    assert api.writes == []
