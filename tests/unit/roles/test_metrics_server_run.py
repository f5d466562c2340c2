"""The role metrics_server, run against an API server: it installs, foretells, leaves others alone, and removes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi

ROOT = Path(__file__).parents[3]
CORE = ROOT / ".venv/collections/ansible_collections/kubernetes/core"
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


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    server = ClusterApi()
    yield server
    server.stop()


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
    """Output of a play that runs an entry point of the role, in one line."""
    if shutil.which("ansible-playbook") is None or not CORE.exists():
        pytest.skip("needs ansible-playbook and the collection kubernetes.core")
    home = folder / "ansible_collections"
    for name, target in (("slipway/inference", ROOT), ("kubernetes/core", CORE)):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(target)
    role = {"ansible.builtin.import_role": {"name": "slipway.inference.metrics_server", "tasks_from": entry}}
    plays = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "environment": {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "of-nobody"},
            "vars": {"ansible_python_interpreter": sys.executable, "metrics_server_wait_timeout": 10, **variables},
            "tasks": [role],
        }
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    environment = os.environ | {
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(folder / "home"),
    }
    for name in ("PYTHONPATH", "ANSIBLE_CONFIG"):
        environment.pop(name, None)
    command = ["ansible-playbook", "-i", "localhost,", "play.yml", *flags]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    output = done.stdout + done.stderr
    assert (done.returncode != 0) is failing, output
    return " ".join(output.split())


def test_it_is_installed_once_and_removed_whole(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    assert set(api.objects) == INSTALLED
    assert api.writes[-1] == f"apply APIService {API}"

    api.writes.clear()
    assert "changed=0 " in play(tmp_path, api, "main", "--check", "--diff")
    assert api.writes == []

    play(tmp_path, api, "uninstall")
    assert set(api.objects) == {("Namespace", "", "slipway-system")}
    assert api.writes[0] == f"delete APIService {API}"


def test_where_another_one_serves_it_is_named_and_left_alone(tmp_path: Path, api: ClusterApi) -> None:
    api.failing = "failing or missing response"
    api.put(OF_ANOTHER)
    said = play(tmp_path, api, "main")
    assert f"{API} is served by Service metrics-server in namespace kube-system: it is left to that one" in said
    assert "It does not answer: failing or missing response" in said
    play(tmp_path, api, "uninstall")
    assert api.writes == []


def test_where_the_api_server_does_not_reach_it_the_reason_is_told(tmp_path: Path, api: ClusterApi) -> None:
    api.failing = "dial tcp: i/o timeout"
    said = play(tmp_path, api, "main", failing=True, metrics_server_wait_timeout=3)
    assert "The API server does not reach metrics-server after 3 s: dial tcp: i/o timeout" in said
