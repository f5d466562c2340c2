"""The role monitoring, run against an API server with Prometheus' operator and without, and beside a Prometheus."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import documents

from .cluster_api import PROMETHEUS, ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays
"""Several plays a test."""
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slipway-system"}}
MONITORS = {
    ("PodMonitor", "slipway-system", f"slipway-{target}")
    for target in (
        "gateway", "controller", "depot", "engines-krypton", "engines-kubeai", "engines-llmkube", "engines-ome",
        "gpus-nvidia", "gpus-dcgm", "gpus-amd",
    )
}  # fmt: skip
DASHBOARDS = {
    ("ConfigMap", "slipway-system", f"slipway-dashboard-{name}")
    for name in ("gateway", "controller", "engines", "gpus")
}
RULES = ("PrometheusRule", "slipway-system", "slipway")
FILES = ("ConfigMap", "slipway-system", "slipway-prometheus")
RIGHTS = {("ClusterRole", "", "slipway-monitoring"), ("ClusterRoleBinding", "", "slipway-monitoring")}


@pytest.fixture
def api(api: ClusterApi) -> ClusterApi:
    api.put(NAMESPACE)
    return api


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
    return run_role(folder, api, "monitoring", entry, *flags, failing=failing, **variables)


def created_objects(api: ClusterApi) -> set[tuple[str, str, str]]:
    return {key for key in api.objects if key[0] not in ("Namespace", "Prometheus")}


def prometheus(name: str, **labels: str) -> dict[str, Any]:
    """One of the operator that looks into all namespaces."""
    selectors = {"podMonitorSelector": {"matchLabels": labels}, "ruleSelector": {"matchLabels": labels}}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": name, "namespace": "monitoring"},
        "spec": {**selectors, "podMonitorNamespaceSelector": {}, "ruleNamespaceSelector": {}},
    }


def test_with_the_operator_it_makes_what_its_prometheus_takes_once_and_removes_it_whole(
    tmp_path: Path, api: ClusterApi
) -> None:
    api.kinds += PROMETHEUS
    api.put(prometheus("main", release="stack"))
    play(tmp_path, api, "main")
    assert created_objects(api) == MONITORS | DASHBOARDS | {RULES}
    assert {api.objects[key]["metadata"]["labels"]["release"] for key in MONITORS | {RULES}} == {"stack"}

    api.writes.clear()
    assert "changed=0 " in play(tmp_path, api, "main", "--check", "--diff")
    assert api.writes == []

    api.put(prometheus("main", release="other"))
    api.put(prometheus("second", release="third"))
    output = play(tmp_path, api, "verify", failing=True)
    assert (
        "No Prometheus on the cluster selects both the PodMonitors and the rules in namespace slipway-system." in output
    )
    assert 'monitoring/main selects PodMonitors by {"matchLabels": {"release": "other"}} in namespaces {}' in output

    play(tmp_path, api, "uninstall")
    assert created_objects(api) == set()


def test_the_role_writes_files_and_reports_it_until_the_prometheus_operator_is_installed(
    tmp_path: Path, api: ClusterApi
) -> None:
    assert "changed=1 " in play(tmp_path, api, "main", "--check", "--diff")
    assert created_objects(api) == set()
    output = play(tmp_path, api, "main", monitoring_service_accounts=["monitoring/prometheus"])
    assert "The cluster has no Prometheus Operator" in output
    assert (
        "The ConfigMap slipway-prometheus in namespace slipway-system contains the scrape configuration and the rules."
        in output
    )
    assert created_objects(api) == {FILES, *DASHBOARDS, *RIGHTS}
    assert set(api.objects[FILES]["data"]) == {"scrape.yml", "rules.yml"}

    api.kinds += PROMETHEUS
    play(tmp_path, api, "main", monitoring_dashboards=False, monitoring_targets=["gateway"])
    assert created_objects(api) == {("PodMonitor", "slipway-system", "slipway-gateway"), RULES}


def test_the_differences_of_a_single_object_are_shown(tmp_path: Path, api: ClusterApi) -> None:
    output = play(tmp_path, api, "main", "--diff", monitoring_dashboards=False)

    assert created_objects(api) == {FILES}
    assert "ConfigMap slipway-system/slipway-prometheus" in output
    assert "failed=0" in output


def test_the_operator_that_is_asked_for_and_missing_is_an_error(tmp_path: Path, api: ClusterApi) -> None:
    output = play(tmp_path, api, "main", failing=True, monitoring_mode="operator")

    assert "monitoring_mode is operator, but the cluster has no PodMonitor or PrometheusRule" in output
    assert created_objects(api) == set()


def test_a_namespace_that_a_task_will_create_is_predicted_and_a_missing_one_is_an_error(
    tmp_path: Path, api: ClusterApi
) -> None:
    assert "would be created: ConfigMap" in play(tmp_path, api, "main", "--check", monitoring_namespace="later")
    assert "There is no namespace later" in play(tmp_path, api, "main", failing=True, monitoring_namespace="later")
    assert created_objects(api) == set()


def test_files_come_once(tmp_path: Path, api: ClusterApi) -> None:
    folder = tmp_path / "prometheus"
    assert "changed=3 " in play(tmp_path, api, "files", "--check", monitoring_directory=str(folder))
    assert "failed=0" in play(tmp_path, api, "files", monitoring_directory=str(folder))
    assert "changed=0 " in play(tmp_path, api, "files", monitoring_directory=str(folder))

    assert documents.read(folder / "scrape.yml")["scrape_configs"]
    assert documents.read(folder / "rules.yml")["groups"]
    boards = [json.loads(file.read_text()) for file in (folder / "dashboards").iterdir()]
    assert {board["uid"] for board in boards} == {name.replace("-dashboard", "") for _kind, _space, name in DASHBOARDS}


class Prometheus(BaseHTTPRequestHandler):
    """Reads what ``health`` says, and has the rules of ``groups``."""

    health: dict[str, str]
    groups: list[dict[str, Any]]
    asked: list[str | None]

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization"))
        targets = [
            {"labels": {"job": job}, "health": health, "scrapeUrl": f"http://{job}/metrics", "lastError": "refused"}
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


def test_a_prometheus_is_asked_whether_it_reads_and_evaluates_and_its_token_is_not_shown(
    tmp_path: Path, api: ClusterApi
) -> None:
    play(tmp_path, api, "main")
    groups = documents.load(api.objects[FILES]["data"]["rules.yml"])["groups"]
    rules = [{"name": "SlipwayGatewayDown", "health": "ok"}]
    state = {
        "health": {"slipway-gateway": "up", "slipway-controller": "up"},
        "groups": [{"name": group["name"], "rules": rules} for group in groups],
        "asked": [],
    }
    handler: Any = type("Handler", (Prometheus,), state)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    asking: dict[str, Any] = {"monitoring_prometheus_url": url, "monitoring_wait_timeout": 2}
    try:
        headers = {"Authorization": "Bearer of-prometheus"}
        output = play(tmp_path, api, "verify", "-vvv", monitoring_prometheus_headers=headers, **asking)
        assert set(handler.asked) == {"Bearer of-prometheus"}
        assert "of-prometheus" not in output

        handler.health = {"slipway-gateway": "up", "slipway-controller": "down"}
        output = play(tmp_path, api, "verify", failing=True, **asking)
        assert f"Prometheus at {url} scrapes no pod of slipway-controller after 2 s." in output
        assert "slipway-controller http://slipway-controller/metrics: refused" in output
    finally:
        server.shutdown()
        server.server_close()
