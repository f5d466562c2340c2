"""The custom metrics stand-in tells what pods measure at the moment, over TLS, as the API of custom metrics has it."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .conftest import launch

BASE = "/apis/custom.metrics.k8s.io/v1beta2"
METRICS = """\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
llamacpp:requests_processing_total 9
vllm:num_requests_running{engine="0",model_name="a {} b"} 1.5 1700000000000
vllm:num_requests_running{engine="1",model_name="a {} b"} 1
"""
REQUESTS: list[tuple[str, str | None]] = []
"""Paths that the API server was asked for, each with the credentials."""


class Cluster(BaseHTTPRequestHandler):
    """API server and engine in one: three pods, of which one has metrics."""

    def do_GET(self) -> None:
        body = METRICS if self.path == "/metrics" else json.dumps({"items": self._pods()})
        if self.path != "/metrics":
            REQUESTS.append((self.path, self.headers.get("Authorization")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def _pods(self) -> list[dict[str, Any]]:
        port = self.server.server_port  # type: ignore[attr-defined]
        return [
            _pod("answers", port, {"podIP": "127.0.0.1"}),
            _pod("refuses", 1, {"podIP": "127.0.0.1"}),
            _pod("waits", port, {}),
        ]

    def log_message(self, *_arguments: object) -> None:
        """Nothing: the tests say enough."""


def _pod(name: str, port: int, status: dict[str, str]) -> dict[str, Any]:
    container = {"ports": [{"name": "other", "containerPort": 1}, {"name": "http", "containerPort": port}]}
    return {"metadata": {"namespace": "models", "name": name}, "spec": {"containers": [container]}, "status": status}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    account = tmp_path_factory.mktemp("account")
    Path(account / "token").write_text("of-the-pod\n")
    cluster = ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    threading.Thread(target=cluster.serve_forever, daemon=True).start()
    flags = ["--port={port}", "--api", f"http://127.0.0.1:{cluster.server_port}", "--account", str(account)]
    process, http = launch("standin.custom_metrics", *flags)
    address = http.replace("http:", "https:")
    deadline = time.monotonic() + 90
    while process.poll() is None and not _answers(address) and time.monotonic() < deadline:
        time.sleep(0.05)
    yield address
    process.terminate()
    process.wait(60)
    cluster.shutdown()


def _answers(address: str) -> bool:
    try:
        return bool(ask(address, BASE))
    except OSError:
        return False


def ask(address: str, path: str) -> Any:
    """Whatever its certificate: the API server does not look at it either."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(f"{address}{path}", timeout=60, context=context) as answer:
        return json.load(answer)


def test_the_api_answers_discovery_with_its_version(url: str) -> None:
    assert ask(url, BASE) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "custom.metrics.k8s.io/v1beta2",
        "resources": [],
    }


def test_a_metric_is_that_of_each_pod_that_answers(url: str) -> None:
    listing = ask(url, f"{BASE}/namespaces/models/pods/%2A/llamacpp:requests_processing?labelSelector=app%3Dx%2Cb")
    assert listing["kind"] == "MetricValueList"
    [value] = listing["items"]
    assert (value["value"], value["metric"]) == ("3000m", {"name": "llamacpp:requests_processing"})
    assert value["describedObject"] == {
        "kind": "Pod", "apiVersion": "/v1", "namespace": "models", "name": "answers"
    }  # fmt: skip
    assert REQUESTS[-1] == ("/api/v1/namespaces/models/pods?labelSelector=app%3Dx%2Cb", "Bearer of-the-pod")


def test_samples_of_one_name_are_added_up(url: str) -> None:
    [value] = ask(url, f"{BASE}/namespaces/models/pods/*/vllm:num_requests_running")["items"]
    assert value["value"] == "2500m"


def test_a_metric_that_no_pod_has_has_no_values(url: str) -> None:
    assert ask(url, f"{BASE}/namespaces/models/pods/*/requests_processing")["items"] == []


def test_an_unknown_metric_is_not_found(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(url, f"{BASE}/nodes/*/load")
