"""A real Prometheus takes what the role makes: it reads gateway, controller and engines, evaluates every rule, and has
an answer to every query of every dashboard. Alerts fire when they should, and only then.

Engines and GPUs that are not here are played by exporters with what theirs show.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.ports import reserved_port

from .cluster import PATIENCE, SYSTEM, Cluster, Object, unique, wait
from .kubeai import MODEL, KubeAI, ask, chat

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "monitoring"
CASES = yaml.safe_load((HERE / "cases.yml").read_text())
SECONDS = 240.0
"""For series to come: models start, and rates want two looks."""
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
pytestmark = pytest.mark.xdist_group("monitoring")


class Prometheus:
    """A Prometheus in a separate namespace, with the role's objects."""

    def __init__(self, cluster: Cluster, namespace: str, model: str) -> None:
        self._cluster = cluster
        self.namespace, self.model = namespace, model

    def get(self, path: str) -> Any:
        answer = json.loads(self._cluster.proxied("GET", self.namespace, "prometheus:9090", f"/api/v1/{path}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, text: str) -> list[Object]:
        """Samples; fails where the query is none."""
        samples: list[Object] = self.get(f"query?query={quote(text)}")["result"]
        return samples

    def read(self, job: str, label: str) -> set[str]:
        """Values of a label of the targets that it reads."""
        return {sample["metric"][label] for sample in self.query(f'up{{job="{job}"}} == 1')}

    def rules(self) -> list[Object]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def panels(self) -> dict[str, str]:
        """Dashboard and title -> query, with everything chosen."""
        queries = {}
        for config_map in self._cluster.list("ConfigMap", self.namespace, "grafana_dashboard=1"):
            for text in config_map["data"].values():
                board = json.loads(text)
                for panel in board["panels"]:
                    for target in panel.get("targets", []):
                        expression = target["expr"].replace("$__rate_interval", "1m")
                        name = f"{board['title']}: {panel['title']} {target['refId']}"
                        queries[name] = re.sub(r"\$\w+", ".*", expression)
        return queries


def role(namespace: str, *arguments: str) -> str:
    """Runs the role for a Prometheus in this namespace."""
    command = ["ansible-playbook", str(HERE / "role.yml"), "-e", f"monitoring_namespace={namespace}", *arguments]
    environment = os.environ | {"K8S_AUTH_KUBECONFIG": os.environ["SLIPWAY_TEST_KUBECONFIG"]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def image() -> str:
    [name] = re.findall(r"^PROMETHEUS_IMAGE=(.+)$", (ROOT / "images/versions.env").read_text(), re.MULTILINE)
    return str(name)


def exporter(namespace: str, name: str, settings: Object) -> list[Object]:
    """A program that shows some metrics, and the text of these."""
    labels = {**settings["labels"], "exporter": name}
    container = {
        "name": "exporter",
        "image": "slipway/test-engines:1",
        "command": ["python3", "-m", "standin.exporter", "--port", "9400", "/metrics/text"],
        "ports": [{"name": settings["port"], "containerPort": 9400}],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "metrics", "mountPath": "/metrics"}],
    }
    pod = {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "metrics", "configMap": {"name": f"exporter-{name}"}}],
    }
    spec = {"selector": {"matchLabels": {"exporter": name}}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    metadata = {"name": f"exporter-{name}", "namespace": namespace}
    return [
        {"kind": "ConfigMap", "metadata": metadata, "data": {"text": settings["metrics"]}},
        {"kind": "Deployment", "metadata": metadata, "spec": spec},
    ]


def cases(name: str) -> list[Object]:
    """promtool's tests of one alert: it fires with its labels, and without that not."""
    case = CASES[name]
    labels = {"alertname": name, "alertstate": "firing", **case["labels"]}
    return [
        one_case(name, case["series"], case["minutes"], [labels]),
        one_case(name, case["series"] | case["otherwise"], case["minutes"], []),
    ]


def one_case(name: str, series: Object, minutes: int, firing: list[Object]) -> Object:
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": f'sum without (severity) (ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": braced(labels), "value": 1} for labels in firing],
            }
        ],
    }


def braced(labels: Object) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, kubeai: KubeAI, gateway_url: str) -> Iterator[Prometheus]:
    """With models of which one answers, one was started by a request and one fails."""
    namespace, models = cluster.namespace("prometheus"), kubeai.namespace()
    tests = {
        "rule_files": ["/etc/prometheus/slipway/rules.yml"],
        "tests": [one for name in CASES for one in cases(name)],
    }
    config_maps = [{"kind": "ConfigMap", "metadata": {"name": "cases"}, "data": {"cases.yml": json.dumps(tests)}}]
    try:
        role(namespace)
        for body in [
            *config_maps,
            *(part for name, settings in exporters().items() for part in exporter(namespace, name, settings)),
        ]:
            body["metadata"]["namespace"] = namespace
            cluster.create(body)
        text = (HERE / "prometheus.yml").read_text().replace("TESTS", namespace).replace("IMAGE", image())
        cluster.kubectl("apply", "-f", "-", stdin=text)
        answering, failing, sleeping = unique("watched"), unique("failing"), unique("sleeping")
        cluster.make_model(namespace, answering)
        cluster.make_model(namespace, failing, image="registry.invalid/none:1")
        spec = {"url": "hf://acme/tiny?model=tiny.gguf", "features": ["TextGeneration"], "engine": "LlamaCpp"}
        body = {"metadata": {"name": sleeping, "namespace": models}, "spec": {**spec, "resourceProfile": "cpu:1"}}
        kubeai.create({"kind": MODEL, **body})
        artifact = {"metadata": {"name": unique("artifact"), "namespace": namespace}}
        source = {"url": "https://huggingface.co/acme/tiny"}
        cluster.create({"kind": "Model.ai.deckhouse.io", **artifact, "spec": {"source": source}})
        cluster.wait_ready(namespace, answering)
        cluster.wait_routed(namespace, answering)
        cluster.kubectl(
            "rollout", "status", "--namespace", namespace, "deployment/prometheus", f"--timeout={PATIENCE:.0f}s"
        )
        # It wakes: so a request has waited.
        assert chat(gateway_url, sleeping).status == 200
        yield Prometheus(cluster, namespace, answering)
    finally:
        role(namespace, "-e", "tests_entry=uninstall")
        for name in (namespace, models):
            cluster.delete("Namespace", "", name)


def exporters() -> dict[str, Object]:
    settings: dict[str, Object] = yaml.safe_load((HERE / "exporters.yml").read_text())
    return settings


def test_it_reads_every_pod_of_the_gateway_and_the_controller_and_every_engine(
    cluster: Cluster, prometheus: Prometheus
) -> None:
    for name in ("slipway-gateway", "slipway-controller"):
        pods = {pod["metadata"]["name"] for pod in cluster.list("Pod", SYSTEM, f"app.kubernetes.io/name={name}")}
        wait(f"all of {name} is read", SECONDS, partial(prometheus.read, name, "pod"), pods.issubset, str)
    engines = {"llamacpp", "vllm", "sglang", "tgi"}
    wait("the engines are read", SECONDS, partial(prometheus.read, "slipway-engines", "runtime"), engines.issubset, str)


def test_every_rule_can_be_evaluated(prometheus: Prometheus) -> None:
    all_rules = wait(
        "all rules were evaluated",
        SECONDS,
        prometheus.rules,
        lambda rules: bool(rules) and all(rule["health"] != "unknown" for rule in rules),
    )

    assert {rule["name"]: rule["lastError"] for rule in all_rules if rule["health"] != "ok"} == {}
    assert {rule["name"] for rule in all_rules if rule["type"] == "alerting"} == set(CASES)


def test_every_panel_and_every_recorded_series_has_data(prometheus: Prometheus, gateway_url: str) -> None:
    queries = prometheus.panels() | {
        rule["name"]: rule["name"] for rule in prometheus.rules() if rule["type"] == "recording"
    }
    # Tokens are counted only where that is asked for, which this installation does not.
    queries = {name: text for name, text in queries.items() if "_tokens_total{" not in text}
    assert len(queries) > 60

    def empty() -> dict[str, str]:
        assert chat(gateway_url, prometheus.model).status == 200
        return {name: text for name, text in queries.items() if not prometheus.query(text)}

    wait("every query has data", SECONDS, empty, lambda missing: not missing)


def test_a_model_that_fails_is_an_alert_that_says_why(prometheus: Prometheus) -> None:
    [alert] = wait(
        "the failed model is seen",
        SECONDS,
        lambda: [one for rule in prometheus.rules() for one in rule.get("alerts", []) if failed(one, prometheus)],
        lambda alerts: len(alerts) == 1,
    )

    assert alert["labels"]["reason"] == "ImagePullBackOff"
    assert alert["labels"]["kind"] == "models.krypton.ai"
    named = f"{prometheus.namespace}/{alert['labels']['name']}"
    assert alert["annotations"]["summary"] == f"{named} has failed: ImagePullBackOff."
    assert alert["annotations"]["runbook_url"].endswith("/docs/reference/monitoring/alerts.md#slipwaymodelfailed")


def failed(alert: Object, prometheus: Prometheus) -> bool:
    labels = alert["labels"]
    return labels["alertname"] == "SlipwayModelFailed" and labels["namespace"] == prometheus.namespace


def test_alerts_fire_when_they_should_and_only_then(cluster: Cluster, prometheus: Prometheus) -> None:
    inside = ("exec", "--namespace", prometheus.namespace, "deployment/prometheus", "--", "/bin/promtool")
    assert "SUCCESS" in cluster.kubectl(*inside, "check", "rules", "/etc/prometheus/slipway/rules.yml")
    assert "SUCCESS" in cluster.kubectl(*inside, "test", "rules", "/cases/cases.yml")


def test_the_role_asks_prometheus_whether_it_has_taken_all_of_it(prometheus: Prometheus) -> None:
    port = reserved_port()
    place = ["--namespace", prometheus.namespace, "service/prometheus", f"{port}:9090"]
    forward = subprocess.Popen(
        ["kubectl", "port-forward", *place], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait("the port is forwarded", 60, partial(answers, f"{url}/-/ready"))
        role(prometheus.namespace, "-e", "tests_entry=verify", "-e", f"monitoring_prometheus_url={url}")
    finally:
        forward.send_signal(signal.SIGTERM)
        forward.wait(30)


def answers(url: str) -> bool:
    try:
        return ask(url, seconds=5).status == 200
    except OSError:
        return False


def test_a_second_run_changes_nothing(prometheus: Prometheus) -> None:
    assert re.search(r"changed=0 .* failed=0", role(prometheus.namespace))
