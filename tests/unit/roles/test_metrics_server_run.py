"""The role metrics_server, run against an API server: it installs, foretells, leaves others alone, and removes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

API = "v1beta1.metrics.k8s.io"
OF_ANOTHER: dict[str, Any] = {
    "apiVersion": "apiregistration.k8s.io/v1",
    "kind": "APIService",
    "metadata": {"name": API, "labels": {"k8s-app": "metrics-server"}},
    "spec": {"group": "metrics.k8s.io", "service": {"name": "metrics-server", "namespace": "kube-system"}},
}
INSTALLED = {
    ("Namespace", "", "slipway-system"),
    ("ServiceAccount", "slipway-system", "slipway-metrics-server"),
    ("ConfigMap", "slipway-system", "slipway-metrics-server"),
    ("Deployment", "slipway-system", "slipway-metrics-server"),
    ("Service", "slipway-system", "slipway-metrics-server"),
    ("PodDisruptionBudget", "slipway-system", "slipway-metrics-server"),
    ("Role", "slipway-system", "slipway-metrics-server"),
    ("RoleBinding", "slipway-system", "slipway-metrics-server"),
    ("RoleBinding", "kube-system", "slipway-metrics-server"),
    ("ClusterRole", "", "slipway-metrics-server"),
    ("ClusterRoleBinding", "", "slipway-metrics-server"),
    ("ClusterRole", "", "slipway-metrics-reader"),
    ("APIService", "", API),
}


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
    """Output of a play that runs an entry point of the role, in one line."""
    variables = {"metrics_server_wait_timeout": 10, **variables}
    return run_role(folder, api, "metrics_server", entry, *flags, failing=failing, **variables)


def test_a_foreign_server_is_named_and_stays_unchanged(tmp_path: Path, api: ClusterApi) -> None:
    api.failing = "failing or missing response"
    api.put(OF_ANOTHER)
    output = play(tmp_path, api, "main")
    assert (
        f"{API} is already served by Service metrics-server in namespace kube-system, so nothing was installed"
        in output
    )
    assert "It does not answer: failing or missing response" in output
    play(tmp_path, api, "uninstall")
    assert api.writes == []


def test_if_the_api_server_cannot_reach_it_the_reason_is_reported(tmp_path: Path, api: ClusterApi) -> None:
    api.failing = "dial tcp: i/o timeout"
    output = play(tmp_path, api, "main", failing=True, metrics_server_wait_timeout=3)
    assert "The API server does not reach metrics-server after 3 s: dial tcp: i/o timeout" in output
