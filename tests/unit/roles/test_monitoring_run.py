"""The role monitoring, run against an API server with Prometheus' operator and without, and beside a Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from .cluster_api import PROMETHEUS, ClusterApi

ROOT = Path(__file__).parents[3]
CORE = ROOT / ".venv/collections/ansible_collections/kubernetes/core"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slipway-system"}}
MONITORS = {
    ("PodMonitor", "slipway-system", f"slipway-{target}")
    for target in (
        "gateway", "controller", "engines-krypton", "engines-kubeai", "engines-llmkube",
        "gpus-nvidia", "gpus-dcgm", "gpus-amd",
    )
}  # fmt: skip
DASHBOARDS = {
    ("ConfigMap", "slipway-system", f"slipway-dashboard-{name}")
    for name in ("gateway", "controller", "engines", "gpus")
}
RULES = ("PrometheusRule", "slipway-system", "slipway")
FILES = ("ConfigMap", "slipway-system", "slipway-prometheus")


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    server = ClusterApi()
    server.put(NAMESPACE)
    yield server
    server.stop()


@pytest.fixture
def operated(api: ClusterApi) -> ClusterApi:
    """With the operator, and a Prometheus as its usual chart makes it."""
    api.kinds += PROMETHEUS
    api.put(prometheus({"matchLabels": {"release": "stack"}}))
    return api


def prometheus(selector: object, namespaces: object = None) -> dict[str, Any]:
    spec = {"podMonitorSelector": selector, "ruleSelector": selector}
    spaces = {} if namespaces is None else namespaces
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "main", "namespace": "monitoring"},
        "spec": {**spec, "podMonitorNamespaceSelector": spaces, "ruleNamespaceSelector": spaces},
    }


def made(api: ClusterApi) -> set[tuple[str, str, str]]:
    return {key for key in api.objects if key[0] not in ("Namespace", "Prometheus")}


def play(
    folder: Path, api: ClusterApi | None, entry: str, *flags: str, failing: bool = False, **variables: object
) -> str:
    """Output of a play that runs an entry point of the role, in one line."""
    if shutil.which("ansible-playbook") is None or not CORE.exists():
        pytest.skip("needs ansible-playbook and the collection kubernetes.core")
    home = folder / "ansible_collections"
    for name, target in (("slipway/inference", ROOT), ("kubernetes/core", CORE)):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(target)
    role = {"ansible.builtin.import_role": {"name": "slipway.inference.monitoring", "tasks_from": entry}}
    plays = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "environment": {"K8S_AUTH_HOST": api.url if api else "", "K8S_AUTH_API_KEY": "of-nobody"},
            "vars": {"ansible_python_interpreter": sys.executable, "monitoring_wait_timeout": 3, **variables},
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


def test_with_the_operator_it_makes_monitors_rules_and_dashboards_once_and_takes_them_away(
    tmp_path: Path, operated: ClusterApi
) -> None:
    play(tmp_path, operated, "main")
    assert made(operated) == MONITORS | DASHBOARDS | {RULES}
    assert {operated.objects[key]["metadata"]["labels"]["release"] for key in MONITORS | {RULES}} == {"stack"}

    operated.writes.clear()
    assert "changed=0 " in play(tmp_path, operated, "main", "--check", "--diff")
    play(tmp_path, operated, "verify")
    assert operated.writes == []

    play(tmp_path, operated, "uninstall")
    assert made(operated) == set()
    assert "changed=0 " in play(tmp_path, operated, "uninstall")


def test_without_the_operator_it_makes_files_in_a_configmap_and_says_so(tmp_path: Path, api: ClusterApi) -> None:
    said = play(tmp_path, api, "main", monitoring_service_accounts=["monitoring/prometheus"])

    assert "Prometheus' operator is not there" in said
    assert "The ConfigMap slipway-prometheus in namespace slipway-system has what to scrape and the rules." in said
    rights = {("ClusterRole", "", "slipway-monitoring"), ("ClusterRoleBinding", "", "slipway-monitoring")}
    assert made(api) == {FILES, *DASHBOARDS, *rights}
    assert set(api.objects[FILES]["data"]) == {"scrape.yml", "rules.yml"}
    play(tmp_path, api, "verify", monitoring_service_accounts=["monitoring/prometheus"])


def test_what_is_no_longer_wanted_goes(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main", monitoring_service_accounts=["monitoring/prometheus"])
    api.kinds += PROMETHEUS
    play(tmp_path, api, "main", monitoring_dashboards=False, monitoring_targets=["gateway"])

    assert made(api) == {("PodMonitor", "slipway-system", "slipway-gateway"), RULES}


def test_the_operator_that_is_asked_for_and_missing_is_an_error(tmp_path: Path, api: ClusterApi) -> None:
    said = play(tmp_path, api, "main", failing=True, monitoring_mode="operator")

    assert "monitoring_mode is operator, and the cluster has no PodMonitor or PrometheusRule" in said
    assert made(api) == set()


def test_a_namespace_that_is_to_come_is_foretold_and_one_that_is_missing_an_error(
    tmp_path: Path, api: ClusterApi
) -> None:
    said = play(tmp_path, api, "main", "--check", monitoring_namespace="later")
    assert "would be created: ConfigMap" in said

    said = play(tmp_path, api, "main", failing=True, monitoring_namespace="later")
    assert "There is no namespace later" in said
    assert made(api) == set()


@pytest.mark.parametrize(
    ("selector", "namespaces"),
    [
        ({"matchLabels": {"team": "other"}}, None),
        ({}, {"matchLabels": {"watched": "yes"}}),
        (None, None),
    ],
    ids=["labels", "namespace", "nothing"],
)
def test_where_no_prometheus_takes_what_is_made_the_reason_is_told(
    tmp_path: Path, operated: ClusterApi, selector: object, namespaces: object
) -> None:
    play(tmp_path, operated, "main")
    operated.put(prometheus(selector, namespaces))
    another = prometheus({"matchLabels": {"release": "third"}})
    another["metadata"]["name"] = "another"
    operated.put(another)
    said = play(tmp_path, operated, "verify", failing=True)

    assert "No Prometheus on the cluster takes both the PodMonitors and the rules in namespace slipway-system." in said
    assert "monitoring/main selects" in said
    assert "monitoring/another selects" in said


def test_what_is_missing_is_told(tmp_path: Path, api: ClusterApi) -> None:
    said = play(tmp_path, api, "verify", failing=True)

    assert "These are missing in namespace slipway-system: slipway-prometheus, slipway-dashboard-gateway" in said


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_need_no_cluster_and_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    variables: dict[str, Any] = {
        "monitoring_directory": str(folder),
        "monitoring_disabled_alerts": ["SlipwayGpuHot"],
        "monitoring_alert_labels": {"team": "inference"},
        "monitoring_discovery": {"api_server": "https://cluster.example.com"},
        "monitoring_targets": ["gateway"],
    }
    assert "failed=0" in play(tmp_path, None, "files", **variables)
    assert "changed=0 " in play(tmp_path, None, "files", **variables)

    [job] = yaml.safe_load((folder / "scrape.yml").read_text())["scrape_configs"]
    assert job["job_name"] == "slipway-gateway"
    assert [found["api_server"] for found in job["kubernetes_sd_configs"]] == ["https://cluster.example.com"]
    groups = yaml.safe_load((folder / "rules.yml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert "SlipwayGpuHot" not in {rule["alert"] for rule in alerts}
    assert {rule["labels"]["team"] for rule in alerts} == {"inference"}
    assert len(list((folder / "dashboards").iterdir())) == len(DASHBOARDS)


# --- a Prometheus that can be asked -----------------------------------------------------------------------------------


class Prometheus(BaseHTTPRequestHandler):
    """Reads what ``health`` says, and has the rules of ``groups``."""

    health: dict[str, str]
    groups: list[dict[str, Any]]
    asked: list[str | None]

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization"))
        targets = [
            {
                "labels": {"job": job},
                "health": health,
                "scrapeUrl": f"http://{job}:8081/metrics",
                "lastError": "refused",
            }
            for job, health in self.health.items()
        ]
        data = {"activeTargets": targets} if "targets" in self.path else {"groups": self.groups}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def asked(tmp_path: Path, api: ClusterApi) -> Iterator[Any]:
    """A Prometheus that has taken all that the role has made, and its URL."""
    play(tmp_path, api, "main")
    groups = yaml.safe_load(api.objects[FILES]["data"]["rules.yml"])["groups"]
    rules = [{"name": "SlipwayGatewayDown", "health": "ok"}]
    state = {
        "health": {"slipway-gateway": "up", "slipway-controller": "up"},
        "groups": [{"name": group["name"], "rules": rules} for group in groups],
        "asked": [],
    }
    handler = type("Handler", (Prometheus,), state)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_prometheus_that_reads_gateway_and_controller_is_fine_and_its_token_is_not_shown(
    tmp_path: Path, api: ClusterApi, asked: Any
) -> None:
    handler, url = asked
    headers = {"Authorization": "Bearer of-prometheus"}
    said = play(tmp_path, api, "verify", "-vvv", monitoring_prometheus_url=url, monitoring_prometheus_headers=headers)

    assert set(handler.asked) == {"Bearer of-prometheus"}
    assert "of-prometheus" not in said


def test_one_that_does_not_reach_the_controller_is_told_of(tmp_path: Path, api: ClusterApi, asked: Any) -> None:
    handler, url = asked
    handler.health = {"slipway-gateway": "up", "slipway-controller": "down"}
    said = play(tmp_path, api, "verify", failing=True, monitoring_prometheus_url=url)

    assert f"Prometheus at {url} reads no pod of slipway-controller after 3 s." in said
    assert "slipway-controller http://slipway-controller/metrics: refused" in said


def test_one_that_lacks_rules_or_cannot_evaluate_them_is_told_of(tmp_path: Path, api: ClusterApi, asked: Any) -> None:
    handler, url = asked
    handler.groups[0]["rules"] = [{"name": "SlipwayGatewayDown", "health": "err", "lastError": "many-to-many"}]
    said = play(tmp_path, api, "verify", failing=True, monitoring_prometheus_url=url)
    assert "cannot evaluate SlipwayGatewayDown (many-to-many)" in said

    del handler.groups[0]
    said = play(tmp_path, api, "verify", failing=True, monitoring_prometheus_url=url)
    assert "has no group slipway.gateway" in said
