"""How many tokens each key used: asked of a Prometheus, and of the pods' metrics."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import promql_parser
import pytest

from ..ansible_files import role_variables
from .cluster_api import ClusterApi
from .role_run import run_role

VARS = role_variables(Path(__file__).parents[3] / "roles/gateway")
MODEL = '=HYPERLINK("https://example.org", "q")'
"""A name with quotes and a comma that is a formula for spreadsheets."""
SERIES = 'slipway_gateway_tokens_total{key="alice",kind="input",model="q",namespace="m"} 12.0'


class Server(BaseHTTPRequestHandler):
    """A Prometheus, and the metrics of a gateway's pod."""

    asked: list[dict[str, list[str]]]

    def do_POST(self) -> None:
        self.asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        labels = {"counted": "all", "key": "-alice", "namespace": "m", "model": MODEL, "kind": "input"}
        result: list[dict[str, Any]] = [{"metric": labels, "value": [1, "12.2"]}]
        self._send(json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}))

    def do_GET(self) -> None:
        self._send(f"# TYPE slipway_gateway_tokens counter\n{SERIES}\nslipway_gateway_haproxy_up 1.0\n")

    def _send(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: object) -> None:
        """Tests are quiet."""


@contextmanager
def served() -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    handler = type("Handler", (Server,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", handler.asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.plays
def test_days_are_reported_and_written_and_the_token_of_prometheus_is_not(tmp_path: Path, api: ClusterApi) -> None:
    file = tmp_path / "usage.csv"
    with served() as (address, questions):
        output = run_role(
            tmp_path,
            api,
            "gateway",
            "usage",
            "-vvv",
            gateway_usage_prometheus_url=f"http://{address}",
            gateway_usage_prometheus_headers={"Authorization": "Bearer of-prometheus"},
            gateway_usage_days=2,
            gateway_usage_file=str(file),
        )
    assert "of-prometheus" not in output
    first, second = (int(question["time"][0]) for question in questions)
    assert first % 86400 == 0, "a day ends at midnight"
    assert second >= first
    names, *rows = csv.reader(file.read_text().splitlines())
    assert names == ["day", "key", "namespace", "model", "input", "cached", "output", "reasoning", "estimated"]
    assert [row[1:] for row in rows] == [["'-alice", "m", f"'{MODEL}", "12", "0", "0", "0", "0"]] * 2
    assert rows[0][0] < rows[1][0]
    for question in questions:
        promql_parser.parse(question["query"][0])


def test_the_question_to_a_pod_finds_its_tokens() -> None:
    with served() as (address, _unused):
        question = VARS["__gateway_usage_question"].replace("127.0.0.1:8081", address)
        done = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True, env={})
    assert done.stdout.splitlines() == [SERIES]
