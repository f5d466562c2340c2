"""A tenant who may edit one namespace and make Models in it does all the harm that he can think of for two minutes.

Meanwhile another namespace's model answers every request, and nothing of ours restarts. Runs alone: what the tenant
writes keeps the API server and the controller busy.
"""

from __future__ import annotations

import itertools
import json
import random
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.dynamic.exceptions import DynamicApiError

from .cluster import PATIENCE, SYSTEM, Cluster, Object, unique, wait
from .load import Load

pytestmark = [pytest.mark.disruptive, pytest.mark.timeout(900)]

SECONDS = 60.0
"""How long the attacks go on, one after the other in an order that changes."""
ROUTE = "slipway.inference/route"
OURS = {"app.kubernetes.io/managed-by": "slipway"}
POD = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "nodeSelector": {"kubernetes.io/hostname": "none"},
    "containers": [
        {
            "name": "server",
            "image": "mallory/forged:1",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
"""One that the restricted Pod Security level takes and no node runs."""
AUTHOR = Path(__file__).parents[2] / "roles/models/files/model-author.yml"


class Tenant(Cluster):
    """Speaks to the API server as a service account of the tenant's namespace."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        super().__init__(kubeconfig, "mallory", namespace)
        self.namespace_ = namespace

    def make(self, kind: str, name: str, /, metadata: Object | None = None, **body: Any) -> None:
        """Makes an object, or changes the one that is there. The API server may refuse it."""
        mine = {"name": name, "namespace": self.namespace_, **(metadata or {})}
        try:
            if self.get(kind, self.namespace_, name):
                self.patch(kind, self.namespace_, name, {"metadata": mine, **body})
            else:
                self.create({"kind": kind, "metadata": mine, **body})
        except DynamicApiError:
            return


class Attacks:
    """Each method is one attack, done once; `turn` varies what it writes."""

    def __init__(self, tenant: Tenant, victim: Object, gateway: str) -> None:
        self.tenant, self.victim, self.gateway = tenant, victim, gateway

    def all(self) -> list[Callable[[int], None]]:
        return [
            self.nested_route,
            self.route_of_36_000_ids,
            self.claim_of_the_victims_ids,
            self.forged_children,
            self.labelled_config_maps,
            self.nested_model,
            self.many_models,
            self.pod_that_claims_to_use_a_cache,
            self.unfinished_bodies,
            self.unfinished_headers,
            self.bad_requests,
        ]

    def nested_route(self, turn: int) -> None:
        depth = 1500 + turn
        self._routed("nested", '{"x":' + "[" * depth + "]" * depth + "}")

    def route_of_36_000_ids(self, turn: int) -> None:
        """As many as the API server takes annotations for."""
        models = [f"t{turn}", *(f"{one:x}" for one in range(36_000))]
        for number in range(2):
            self._routed(f"many-{number}", json.dumps({"models": models}, separators=(",", ":")))

    def claim_of_the_victims_ids(self, _turn: int) -> None:
        name, namespace = self.victim["metadata"]["name"], self.victim["metadata"]["namespace"]
        self._routed("thief", json.dumps({"models": [name, f"{namespace}/{name}", "gpt-4o"], "name": name}))

    def forged_children(self, turn: int) -> None:
        """Objects that name the victim's Model as their owner, under its children's names."""
        owner = {
            "apiVersion": "krypton.ai/v1alpha1",
            "kind": "Model",
            "name": self.victim["metadata"]["name"],
            "uid": self.victim["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"labels": OURS, "ownerReferences": [owner], "finalizers": ["mallory.example/keep"]}
        name = self.victim["metadata"]["name"]
        template = {
            "metadata": {"labels": {"app": "forged", "app.kubernetes.io/name": f"payments-{turn}"}},
            "spec": POD,
        }
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "forged"}}, "template": template}
        self.tenant.make("Deployment", name, metadata, spec=spec)
        self.tenant.make("Service", name, metadata, spec={"ports": [{"port": 80}]})
        self.tenant.make("Job", name, metadata, spec={"template": {"spec": {**POD, "restartPolicy": "Never"}}})

    def labelled_config_maps(self, turn: int) -> None:
        """A hundred of them in the end, 900 KB each."""
        for number in range(10):
            self.tenant.make("ConfigMap", f"large-{turn % 10}-{number}", {"labels": OURS}, data={"x": "x" * 900_000})

    def nested_model(self, turn: int) -> None:
        deep: Object = {"x": turn}
        for _level in range(60):
            deep = {"x": deep}
        self.tenant.make("Model", "nested", spec={"source": {"huggingface": "a/b", "file": "x"}, "resources": deep})
        nested = "[" * 3000 + "]" * 3000
        annotations = {
            f"models.kubeai.org/{self.victim['metadata']['name']}": nested,
            "slipway.inference/weights": nested,
        }
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Mi"}},
        }
        for name in ("llmkube-model-cache", "shared-model-cache-shared"):
            self.tenant.make("PersistentVolumeClaim", name, {"annotations": annotations, "labels": OURS}, spec=claim)

    def many_models(self, turn: int) -> None:
        for number in range(30):
            name = f"many-{turn % 10}-{number}"
            spec = {"url": "hf://mallory/none", "engine": "VLLM", "features": ["TextGeneration"], "minReplicas": 0}
            self.tenant.make("Model.kubeai.org", name, spec={**spec, "resourceProfile": f"none-{turn}:1"})

    def pod_that_claims_to_use_a_cache(self, turn: int) -> None:
        metadata = {"labels": OURS, "annotations": {"slipway.inference/uses": "[" * (1000 + turn)}}
        self.tenant.make("Pod", "user", metadata, spec=POD)

    def unfinished_bodies(self, _turn: int) -> None:
        """Twenty requests of 8 MiB each, whose last byte does not come for a second."""
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {8 << 20}\r\n\r\n".encode()
        with self._connections(20) as connections:
            for connection in connections:
                _send(connection, head + b"x" * (4 << 20))
            time.sleep(1)  # how long the attack lasts, not a wait for something

    def unfinished_headers(self, _turn: int) -> None:
        with self._connections(200) as connections:
            for connection in connections:
                _send(connection, b"POST /v1/chat/completions HTTP/1.1\r\nX-Long: " + b"x" * 20_000)
            time.sleep(1)  # how long the attack lasts, not a wait for something

    def bad_requests(self, turn: int) -> None:
        bodies = [b'{"model":"a\\u0000b"}', b"[" * 50_000, b'{"model":' + b"9" * 5000 + b"}", b"\xff" * 5000]
        for body in [*bodies, json.dumps({"model": f"none-{turn}"}).encode()]:
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            with self._connections(1) as (connection,):
                _send(connection, head.encode() + body)

    def _routed(self, name: str, text: str) -> None:
        metadata = {"labels": {ROUTE: "true"}, "annotations": {ROUTE: text}}
        self.tenant.make("Service", name, metadata, spec={"ports": [{"name": "http", "port": 80}]})

    @contextmanager
    def _connections(self, count: int) -> Iterator[list[socket.socket]]:
        where = urllib.parse.urlsplit(self.gateway)
        with ExitStack() as stack:
            connections = []
            for _number in range(count):
                connection = stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=60))
                connection.settimeout(5)  # the gateway need not take what is sent
                connections.append(connection)
            yield connections


def _send(connection: socket.socket, data: bytes) -> None:
    """The gateway may refuse and close at any time."""
    try:
        connection.sendall(data)
    except OSError:
        return


@pytest.fixture
def tenant(cluster: Cluster, kubeconfig: str, namespace: str) -> Iterator[Tenant]:
    """`edit` and the rights of a model's author, in one namespace."""
    author = yaml.safe_load(AUTHOR.read_text())
    cluster.create({"kind": "ServiceAccount", "metadata": {"name": "mallory", "namespace": namespace}})
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(author))
    for role in ("edit", author["metadata"]["name"]):
        cluster.kubectl(
            *("create", "rolebinding", f"mallory-{role}", "--namespace", namespace),
            *("--clusterrole", role, "--serviceaccount", f"{namespace}:mallory"),
        )
    yield Tenant(kubeconfig, namespace)
    for kind in ("Deployment", "Service", "Job"):  # their finalizers would keep the namespace
        for child in cluster.list(kind, namespace):
            cluster.patch(kind, namespace, child["metadata"]["name"], {"metadata": {"finalizers": None}})


def restarts(cluster: Cluster) -> dict[str, int]:
    """Of every container of ours, by pod and name. A pod that was replaced is a restart, too."""
    return {
        f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
        for pod in cluster.list("Pod", SYSTEM, "app.kubernetes.io/part-of=slipway")
        for status in pod["status"].get("containerStatuses", [])
    }


def test_a_hostile_tenant_harms_no_other_tenant(
    cluster: Cluster, new_namespace: Callable[[], str], tenant: Tenant, gateway_url: str
) -> None:
    quiet, name, chance = new_namespace(), unique("bank"), random.Random(11)
    cluster.make_model(quiet, name)
    cluster.wait_ready(quiet, name)
    cluster.wait_routed(quiet, name, f"{quiet}/{name}")
    victim, before = cluster.model(quiet, name), restarts(cluster)
    children = {kind: child["metadata"]["uid"] for kind, child in cluster.children(quiet, name).items()}
    assert before, "there is something of ours that could restart"

    with Load(gateway_url, name, clients=2) as plain, Load(gateway_url, f"{quiet}/{name}", clients=1) as qualified:
        attacks = Attacks(tenant, victim, gateway_url).all()
        until = time.monotonic() + SECONDS
        for turn in itertools.count():
            for attack in chance.sample(attacks, len(attacks)):
                attack(turn)
            if time.monotonic() > until:
                break
        plain.more(20)
        qualified.more(20)

        later = unique("later")
        cluster.make_model(quiet, later)
        cluster.wait_ready(quiet, later)
        cluster.wait_routed(quiet, later)

    assert plain.failures == []
    assert qualified.failures == []
    assert restarts(cluster) == before
    assert {kind: child["metadata"]["uid"] for kind, child in cluster.children(quiet, name).items()} == children
    wait(
        "the tenant sees the problems of the Services",
        PATIENCE,
        lambda: {
            event["involvedObject"]["name"]
            for event in cluster.list("Event", tenant.namespace_, fields="involvedObject.kind=Service,type=Warning")
        },
        lambda names: {"nested", "many-0"} <= names,
    )


def test_a_model_of_a_hostile_tenant_that_is_deleted_is_gone(cluster: Cluster, tenant: Tenant) -> None:
    """He may keep his own namespace from ending by finalizers of his own, but not ours from being taken off."""
    tenant.make("Model.kubeai.org", "mine", spec={"url": "hf://a/b", "engine": "VLLM", "features": ["TextGeneration"]})
    tenant.make(
        "Pod",
        "user",
        {"annotations": {"slipway.inference/uses": "mine"}, "labels": OURS},
        spec=POD,
    )
    tenant.delete("Model.kubeai.org", tenant.namespace_, "mine")
    cluster.wait_gone("Model.kubeai.org", tenant.namespace_, "mine")
