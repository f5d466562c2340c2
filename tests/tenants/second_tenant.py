"""The second tenant: models of all five APIs that answer while the hostile tenant attacks, and new ones that load,
answer and publish."""

from __future__ import annotations

import hashlib
import itertools
import json
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.cluster import PATIENCE, Cluster, Object, condition, observed, unique, wait
from tests.cluster.kubeai import KubeAI, ask, chat
from tests.cluster.llmkube import LLMKube
from tests.cluster.ome import JOBS, OME, ROOT, files, llamacpp, on_node

DECKHOUSE = "Model.ai.deckhouse.io"
GGUF: Object = {"modelFormat": {"name": "gguf"}, "modelFramework": {"name": "ggml"}}
TINY = Path(__file__).parents[2] / "tests/output/tiny.gguf"
"""What the hub of the test cluster serves as acme/tiny."""
HUB_PAGE = "https://huggingface.co/acme/tiny"
LONG = 2 * PATIENCE
"""Seconds to wait for a load that queues behind the hostile tenant's models of unknown size."""
PASSWORD = ("aHVudGVyMi9zZWNyZXQ=", "hunter2/secret")
"""A Secret's value, in base64 and decoded."""
DIGEST_OF_MODEL = """
import hashlib, time
text = open("/data/modelcache/models/%s/tiny.gguf", "rb").read()
print(hashlib.sha256(text).hexdigest(), flush=True)
time.sleep(86400)
"""


@dataclass
class SecondTenant:
    """All that it does is that of a usual user; the operator made its runtime."""

    cluster: Cluster
    kubeai: KubeAI
    llmkube: LLMKube
    ome: OME
    gateway: str
    namespace: str
    name: str = "bank"
    runtime: str = field(default_factory=lambda: unique("llamacpp"))
    cluster_model: str = field(default_factory=lambda: unique("operators"))
    """A ClusterBaseModel of the operator."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    # --- before the attacks ------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """One model of each API that answers, and what attackers are after."""
        self.ome.make_runtime(self.runtime, llamacpp(), [GGUF])
        self.ome.make_model(self.cluster_model)
        self.cluster.make_model(self.namespace, f"{self.name}-krypton")
        self.kubeai.make_model(self.namespace, f"{self.name}-kubeai", engine="LlamaCpp")
        self.llmkube.make_model(self.namespace, self.name)
        self.llmkube.make_service(self.namespace, f"{self.name}-llmkube", self.name)
        self.make_base_model(self.name)
        self._make_published(self.name)
        secret = {"kind": "Secret", "metadata": {"name": "vault", "namespace": self.namespace}}
        self.cluster.create({**secret, "data": {"password": PASSWORD[0]}})
        self.cluster.create(self._reader("reader", self.name))

        self.wait_loaded(self.name)
        self.ome.wait_model(self.cluster_model)
        body = {"model": {"name": self.name, "kind": "BaseModel"}, "engine": {"minReplicas": 1, "maxReplicas": 1}}
        metadata = {"name": f"{self.name}-ome", "namespace": self.namespace}
        self.cluster.create({"kind": "InferenceService.ome.io", "metadata": metadata, "spec": body})
        self.cluster.wait_ready(self.namespace, f"{self.name}-krypton")
        self.kubeai.wait_ready(self.namespace, f"{self.name}-kubeai")
        self.llmkube.wait_serving(self.namespace, f"{self.name}-llmkube")
        self.ome.wait_serving(self.namespace, f"{self.name}-ome")
        self._wait_published(self.name)
        self.cluster.wait_routed(self.namespace, *self.ids)

    def tear_down(self) -> None:
        self.ome.delete("InferenceService.ome.io", self.namespace, f"{self.name}-ome")
        self.ome.delete("BaseModel", self.namespace, self.name)
        self.ome.delete("ClusterBaseModel", "", self.cluster_model)
        self.ome.wait_gone("BaseModel", self.namespace, self.name)
        self.ome.delete("ClusterServingRuntime", "", self.runtime)
        self.cluster.delete("Namespace", "", self.namespace)

    @property
    def ids(self) -> list[str]:
        """Of the models that answer, one of each API that serves requests."""
        return [f"{self.namespace}/{self.name}-{api}" for api in ("krypton", "kubeai", "llmkube", "ome")]

    @property
    def plain_id(self) -> str:
        """An id without a namespace, which the second tenant had first."""
        return f"{self.name}-krypton"

    @property
    def folder(self) -> str:
        """Of its BaseModel on the nodes."""
        return f"{ROOT}/{self.namespace}/{self.name}"

    @property
    def node(self) -> str:
        return self.ome.nodes()[0]

    @property
    def repository(self) -> str:
        """Of its published model."""
        model = self.cluster.get(DECKHOUSE, self.namespace, self.name)
        assert model
        return f"namespaced/{self.namespace}/{self.name}/{model['metadata']['uid']}"

    # --- meanwhile ---------------------------------------------------------------------------------------------------

    def work(self) -> str:
        """One new model each that loads onto a node, is published, and answers. Returns what went wrong."""
        try:
            self.load_a_model()
            self.publish_a_model()
            self.start_a_model()
        except Exception:  # noqa: BLE001 - the report of all attacks comes first
            return traceback.format_exc()
        return ""

    def load_a_model(self, source: str = "hf://acme/tiny", expected: str = "", **storage: Any) -> None:
        """A BaseModel comes onto the node and leaves it. ``expected``: SHA-256 of its file."""
        name = self._unique("loads")
        self.make_base_model(name, source, **storage)
        self.wait_loaded(name)
        folder = f"{ROOT}/{self.namespace}/{name}"
        assert set(digests_of(self.node, folder).values()) == {expected or digest_of_tiny()}
        self.cluster.delete("BaseModel", self.namespace, name)
        self.cluster.wait_gone("BaseModel", self.namespace, name)

    def publish_a_model(self) -> None:
        name = self._unique("published")
        self._make_published(name)
        self._wait_published(name)
        self.cluster.delete(DECKHOUSE, self.namespace, name)

    def start_a_model(self) -> None:
        name = self._unique("starts")
        self.cluster.make_model(self.namespace, name)
        self.cluster.wait_ready(self.namespace, name)
        self.cluster.wait_routed(self.namespace, name)
        assert chat(self.gateway, f"{self.namespace}/{name}").status == 200
        self.cluster.delete("Model", self.namespace, name)

    def has_a_turn(self, api: str) -> None:
        """The controller looks at a new resource of this API. Nothing is started for it."""
        name = self._unique("noticed")
        kind, spec = {
            "ome": ("BaseModel", {"storage": {"storageUri": "vendor://bank"}, **GGUF}),
            "deckhouse": (DECKHOUSE, {"source": {"url": "https://huggingface.co/acme"}}),
            "kubeai": (
                "Model.kubeai.org",
                {"url": "hf://acme/base", "engine": "VLLM", "features": ["TextGeneration"], "resourceProfile": "cpu:1"},
            ),
        }[api]
        if api == "kubeai":
            spec = {**spec, "minReplicas": 0}
        self.cluster.create({"kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec})
        wait(
            f"the controller looks at {kind} {name}",
            PATIENCE,
            lambda: self.cluster.get(kind, self.namespace, name) or {"metadata": {}},
            lambda resource: observed(resource) if "generation" in resource["metadata"] else False,
        )
        self.cluster.delete(kind, self.namespace, name)

    # --- afterwards --------------------------------------------------------------------------------------------------

    def foreign_bytes(self) -> dict[str, str]:
        """Files that are not what the second tenant loaded: of its models on the node, and in its workload."""
        expected = digest_of_tiny()
        seen = {
            **{f"{self.folder}/{name}": one for name, one in digests_of(self.node, self.folder).items()},
            **{
                f"{ROOT}/{self.cluster_model}/{name}": one
                for name, one in digests_of(self.node, f"{ROOT}/{self.cluster_model}").items()
            },
        }
        assert len(seen) == 2, f"not one file each: {seen}"
        return {name: digest for name, digest in seen.items() if digest != expected}

    def delivered(self, name: str) -> str:
        """SHA-256 of the model that a workload got. The Deployment is made first if there is none."""
        if not self.cluster.get("Deployment", self.namespace, name):
            self.cluster.create(self._reader(name, self.name))

        def log() -> str:
            pods = self.cluster.list("Pod", self.namespace, f"app={name}")
            running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
            return self.cluster.logs(self.namespace, running[0]).strip() if running else ""

        return wait(f"the workload {name} reads its model", PATIENCE, log)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _unique(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    def make_base_model(self, name: str, source: str = "hf://acme/tiny", **storage: Any) -> None:
        where = {"storageUri": source, "path": f"{ROOT}/{self.namespace}/{name}", **storage}
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.create({"kind": "BaseModel", "metadata": metadata, "spec": {"storage": where}})

    def wait_loaded(self, name: str, path: str = "") -> None:
        self._wait(
            "BaseModel", name, lambda model: observed(model) and model["status"].get("state") == "Ready", "is loaded"
        )
        assert files(self.node, path or f"{ROOT}/{self.namespace}/{name}")

    def _make_published(self, name: str) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.create({"kind": DECKHOUSE, "metadata": metadata, "spec": {"source": {"url": HUB_PAGE}}})

    def _wait_published(self, name: str) -> None:
        self._wait(
            DECKHOUSE,
            name,
            lambda model: model.get("status", {}).get("phase") == "Ready" and condition(model, "Ready") != {},
            "is published",
        )

    def _wait(self, kind: str, name: str, good: Any, what: str) -> None:
        def say(model: Object) -> str:
            there = [*self.cluster.list("Pod", self.namespace), *self.cluster.list("Pod", JOBS)]
            pods = [(pod["metadata"]["name"], pod.get("status")) for pod in there]
            return json.dumps({"status": model.get("status"), "pods": pods}, indent=1)

        wait(f"{kind} {name} {what}", LONG, lambda: self.cluster.get(kind, self.namespace, name) or {}, good, say)

    def _reader(self, name: str, model: str) -> Object:
        """A Deployment that asks for a model, and prints the digest of its file."""
        container = {
            "name": "app",
            "image": "slipway/slipway:0.4.0",
            "command": ["python", "-c", DIGEST_OF_MODEL % model],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        pod = {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        }
        metadata = {"name": name, "namespace": self.namespace, "annotations": {"ai.deckhouse.io/model": model}}
        spec = {"selector": {"matchLabels": {"app": name}}, "replicas": 1}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        return {"kind": "Deployment", "metadata": metadata, "spec": {**spec, "template": template}}


def digest_of_tiny() -> str:
    return hashlib.sha256(TINY.read_bytes()).hexdigest()


def digests_of(node: str, path: str) -> dict[str, str]:
    """File -> SHA-256, of all files in a folder of a node, without the loader's own."""
    script = f"cd '{path}' 2>/dev/null && find . -type f ! -path '*/.slipway*' -exec sha256sum {{}} + || true"
    lines = [line.split(maxsplit=1) for line in on_node(node, script).splitlines()]
    return {name.removeprefix("./"): digest for digest, name in lines}


def card_of(gateway: str, model: str) -> Any:
    """What the gateway says of a model."""
    reply = ask(f"{gateway}/v1/models/{model}")
    return reply.json if reply.status == 200 else {}
