"""Prometheus and its adapter in one: ``python3 -m standin.custom_metrics`` serves the custom metrics API for pods.

A metric that is asked for is read from the pods themselves, at the path ``/metrics`` of their port ``http``, at that
moment. Samples of one name are added up. Pods that do not answer, or do not have the metric, are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .web import Answer, Handler, Request, as_json, serve

GROUP = "custom.metrics.k8s.io"
VERSION = f"{GROUP}/v1beta2"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SAMPLE = re.compile(r"(?P<name>[\w:]+)(?:\{.*\})? (?P<value>\S+)(?: \d+)?")
SECONDS = 5
"""For each question that it asks itself."""


class Cluster:
    """The API server, asked with the token of a pod."""

    def __init__(self, url: str, account: Path) -> None:
        self._url, self._account = url, account
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt")) if url.startswith("https") else None

    def pods(self, namespace: str, labels: str) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/namespaces/{quote(namespace)}/pods?labelSelector={quote(labels)}"
        token = (self._account / "token").read_text().strip()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=SECONDS, context=self._tls) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
        return items


def application(cluster: Cluster) -> Handler:
    def handle(request: Request) -> Answer:
        match request.path.strip("/").split("/"):
            case ["apis", group, version] if f"{group}/{version}" == VERSION:
                return as_json(
                    {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": []}
                )
            case ["apis", group, version, "namespaces", namespace, "pods", "*", metric] if (
                f"{group}/{version}" == VERSION
            ):
                pods = cluster.pods(namespace, request.query.get("labelSelector", ""))
                return as_json({"kind": "MetricValueList", "apiVersion": VERSION, "items": list(values(pods, metric))})
            case _:
                return as_json({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, 404)

    return handle


def values(pods: Sequence[Mapping[str, Any]], metric: str) -> Iterator[dict[str, Any]]:
    for pod in pods:
        value = sample(pod, metric)
        if value is not None:
            named = {key: pod["metadata"][key] for key in ("namespace", "name")}
            yield {
                "describedObject": {"kind": "Pod", "apiVersion": "/v1", **named},
                "metric": {"name": metric},
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "value": f"{round(value * 1000)}m",
            }


def sample(pod: Mapping[str, Any], metric: str) -> float | None:
    """The metric of a pod; None where it cannot be had."""
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
    http_ports = [port["containerPort"] for port in ports if port.get("name") == "http"]
    address = pod.get("status", {}).get("podIP")
    if not http_ports or not address:
        return None
    try:
        with urllib.request.urlopen(f"http://{address}:{http_ports[0]}/metrics", timeout=SECONDS) as answer:
            return total(answer.read().decode(), metric)
    except OSError:
        return None


def total(text: str, metric: str) -> float | None:
    """Of all samples of this name in Prometheus' text format; None where there is none."""
    samples = [match for line in text.splitlines() if (match := SAMPLE.fullmatch(line)) and match["name"] == metric]
    return sum(float(match["value"]) for match in samples) if samples else None


def own_certificate() -> ssl.SSLContext:
    """Made anew at each start, as the real one does where it is given none."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = f"{folder}/key", f"{folder}/certificate"
        options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=custom-metrics", "-days", "2"]
        command = ["openssl", "req", *options, "-keyout", key, "-out", certificate]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    return context


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="standin.custom_metrics")
    parser.add_argument("--port", type=int, default=6443)
    parser.add_argument("--api", default="https://kubernetes.default.svc", help="address of the API server")
    parser.add_argument("--account", type=Path, default=ACCOUNT, help="folder with the token and ca.crt")
    flags = parser.parse_args(arguments)
    serve(application(Cluster(flags.api, flags.account)), "0.0.0.0", flags.port, tls=own_certificate())


if __name__ == "__main__":
    main(sys.argv[1:])
