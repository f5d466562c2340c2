"""The role status, run against an API server: one report of all there is, or of what may be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import OPENSHIFT, ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

OURS = {"app.kubernetes.io/part-of": "slipway"}


def put(api: ClusterApi, kind: str, name: str, namespace: str = "", **parts: Any) -> None:
    version = next(api_kind.version for api_kind in api.kinds if api_kind.name == kind)
    labels = {**OURS, **parts.pop("labels", {})}
    metadata = {"name": name, "labels": labels} | ({"namespace": namespace} if namespace else {})
    api.put({"apiVersion": version, "kind": kind, "metadata": metadata, **parts})


def part(image: str, replicas: int) -> dict[str, Any]:
    return {"spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}


def test_the_report_shows_the_parts_and_how_to_send_requests(tmp_path: Path, api: ClusterApi) -> None:
    system = "slipway-system"
    put(api, "Deployment", "slipway-controller", system, **part("slipway/slipway:1", 1))
    named = {"app.kubernetes.io/name": "slipway-gateway", "slipway.inference/version": "9.1.0"}
    put(api, "Deployment", "slipway-gateway", system, labels=named, **part("slipway/slipway:1", 2))
    service = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}
    put(api, "Service", "slipway-gateway", system, labels=named, spec=service)
    put(
        api,
        "Node",
        "worker",
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4"},
            "allocatable": {"cpu": "4", "nvidia.com/gpu": "2", "vpc.amazonaws.com/pod-eni": "9"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": "worker"}],
        },
    )
    put(api, "CustomResourceDefinition", "models.krypton.ai", spec={})
    put(api, "CustomResourceDefinition", "models.kubeai.org", labels={"app.kubernetes.io/part-of": "kubeai"}, spec={})

    output = run_role(tmp_path, api, "status", "main")
    for line in (
        "Slipway 9.1.0 in namespace slipway-system",
        "gateway 2 of 2 ready slipway/slipway:1",
        "Nodes: 1 of 1 ready, Kubernetes v1.36.4",
        "nvidia.com/gpu 2",
        "APIs: krypton, kubeai (served by another installation), llmkube (not installed)",
        "Models: none yet",
        "outside at http://10.0.0.7:30080/v1",
    ):
        assert line in output
    assert "pod-eni" not in output
    assert "changed=0 " in output
    assert api.writes == []


def test_a_configured_address_is_the_only_one_shown(tmp_path: Path, api: ClusterApi) -> None:
    named = {"app.kubernetes.io/name": "slipway-gateway"}
    put(api, "Deployment", "slipway-gateway", "slipway-system", labels=named, **part("slipway/slipway:1", 2))
    ports = [{"port": 80, "nodePort": 30080}]
    put(api, "Service", "slipway-gateway", "slipway-system", labels=named, spec={"type": "NodePort", "ports": ports})
    ready = {"type": "Ready", "status": "True"}
    addresses = [{"type": "InternalIP", "address": "10.0.0.7"}]
    put(
        api,
        "Node",
        "worker",
        status={"conditions": [ready], "nodeInfo": {"kubeletVersion": "v1"}, "addresses": addresses},
    )

    output = run_role(tmp_path, api, "status", "main", status_urls=["http://127.0.0.1:8080/v1"])
    assert "outside at http://127.0.0.1:8080/v1" in output
    assert "10.0.0.7:30080" not in output


def test_a_route_that_a_router_has_taken_is_the_address_to_ask(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds += OPENSHIFT
    named = {"app.kubernetes.io/name": "slipway-gateway"}
    put(api, "Deployment", "slipway-gateway", "slipway-system", labels=named, **part("slipway/slipway:1", 2))
    put(api, "Route", "slipway-gateway", "slipway-system", labels=named, spec={"host": "models.example.com"})

    assert "outside at https://models.example.com/v1" in run_role(tmp_path, api, "status", "main")
