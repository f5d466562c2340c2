"""The cluster as tests of OME's models, runtimes and services see it: what they create, read, ask and wait for."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import yaml

from .cluster import PATIENCE, Cluster, Object, condition, observed, wait

MODEL, RUNTIME, SERVICE = "ClusterBaseModel", "ClusterServingRuntime", "InferenceService.ome.io"
BENCHMARK, WEIGHT = "BenchmarkJob", "FineTunedWeight"
JOBS = "ome"
"""Namespace of the Jobs that load models of the cluster."""
ROOT = "/mnt/models"
"""A folder of the nodes below which models may lie."""
TINY, BASE = "hf://acme/tiny", "hf://acme/base"
"""The hub's generated model, and a configuration that the stand-ins of engines take for one."""
LLAMACPP, ENGINES = "ghcr.io/ggml-org/llama.cpp:server-v0.5.0", "slipway/test-engines:1"
ROUTER = "docker.io/lmsysorg/sglang-router:v0.3.2"
ELIGIBLE = "tests.slipway.inference/eligible"
"""Label of nodes that a test has chosen."""
PLAIN: Object = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Of containers whose images say nothing of their user, or root."""
SMALL = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "512Mi"}}
PROBE = {"periodSeconds": 1, "failureThreshold": 300}


class OME(Cluster):
    """One test cluster, its models those of OME."""

    def namespace(self, prefix: str = "ome", restricted: bool = True) -> str:
        """A new namespace at the restricted Pod Security level: pods mount no folders of their node."""
        return super().namespace(prefix, restricted)

    # --- what tests create -------------------------------------------------------------------------------------------

    def make_model(self, name: str, source: str = TINY, storage: Object | None = None, **spec: Any) -> Object:
        """Of the cluster, below :data:`ROOT`; its Jobs run in :data:`JOBS`."""
        where = {"storageUri": source, "path": folder(name), **(storage or {})}
        return self.create({"kind": MODEL, "metadata": {"name": name}, "spec": {"storage": where, **spec}})

    def make_runtime(self, name: str, runner: Object, formats: list[Object], **spec: Any) -> Object:
        """Of the cluster, chosen for models of these formats."""
        supported = [{"autoSelect": True, "priority": 1, **one} for one in formats]
        engine = {"engineConfig": {"runner": {"name": "ome-container", "resources": SMALL, **runner}}}
        full = {"supportedModelFormats": supported, **engine, **spec}
        return self.create({"kind": RUNTIME, "metadata": {"name": name}, "spec": full})

    def make_weight(self, name: str, source: str, base: str) -> Object:
        """An adapter of a model of the cluster."""
        spec = {
            "baseModelRef": {"name": base},
            "modelType": "LoRA",
            "hyperParameters": {"strategy": "lora"},
            "storage": {"storageUri": source, "path": folder(name)},
        }
        return self.create({"kind": WEIGHT, "metadata": {"name": name}, "spec": spec})

    def make_service(self, namespace: str, name: str, model: str, weights: Sequence[str] = (), **spec: Any) -> Object:
        """``weights``: fine-tuned weights of the model."""
        metadata, reference = {"name": name, "namespace": namespace}, {"name": model, "fineTunedWeights": [*weights]}
        full = {"model": reference, "engine": {"minReplicas": 1, "maxReplicas": 1}, **spec}
        return self.create({"kind": SERVICE, "metadata": metadata, "spec": full})

    def change_service(self, namespace: str, name: str, **spec: Any) -> Object:
        return self.patch(SERVICE, namespace, name, {"spec": spec})

    def writable_claim(self, namespace: str, name: str) -> str:
        """A claim that any user may write to, in a folder of a kind node: the class that kind brings has none. Returns
        the name of its volume, which outlives the namespace."""
        volume = f"{namespace}-{name}"
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        on_node(self.nodes()[0], f"mkdir -m 0777 /tmp/{volume}")
        self.create(
            {
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": f"/tmp/{volume}"}},
            }
        )
        claim = {**spec, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": namespace}
        self.create({"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
        return volume

    # --- what they read ----------------------------------------------------------------------------------------------

    def model(self, _namespace: str, name: str) -> Object:
        model = self.get(MODEL, "", name)
        assert model, f"no model {name}"
        return model

    def service(self, namespace: str, name: str) -> Object:
        service = self.get(SERVICE, namespace, name)
        assert service, f"no service {namespace}/{name}"
        return service

    def nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.list("Node")]

    def labels_of_nodes(self, name: str) -> dict[str, str]:
        """Node -> what its label says of a model of the cluster."""
        mark = f"models.ome.io/clusterbasemodel.{name}"
        labels_by_node = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in self.list("Node")}
        return {node: labels[mark] for node, labels in labels_by_node.items() if mark in labels}

    # --- waits -------------------------------------------------------------------------------------------------------

    def wait_model(self, name: str, state: str = "Ready", seconds: float = PATIENCE) -> Object:
        """Until the newest spec of a model has this state; returns the model."""

        def reached(model: Object) -> bool:
            return observed(model) and model["status"].get("state") == state

        return wait(f"{name} is {state}", seconds, lambda: self.model("", name), reached, self._say_model)

    def wait_serving(self, namespace: str, name: str, seconds: float = PATIENCE) -> Object:
        """Waits until all desired replicas run the latest spec. Returns the InferenceService."""

        def serving(service: Object) -> bool:
            complete = condition(service, "Progressing").get("reason") == "Complete"
            return observed(service) and condition(service, "Available").get("status") == "True" and complete

        return wait(f"{name} is served", seconds, lambda: self.service(namespace, name), serving, self._say)

    def wait_for_condition(self, namespace: str, name: str, kind: str, status: str, reason: str) -> Object:
        """Until a condition of an InferenceService has this status and reason; returns the InferenceService."""

        def reached(service: Object) -> bool:
            actual = condition(service, kind)
            return observed(service) and (actual.get("status"), actual.get("reason")) == (status, reason)

        what = f"{name} is {kind}={status}/{reason}"
        return wait(what, PATIENCE, lambda: self.service(namespace, name), reached, self._say)

    def _labels(self, name: str) -> str:
        return f"ome.io/inferenceservice={name}"

    def _say_model(self, model: Object) -> str:
        pods = [(pod["metadata"]["name"], pod.get("status")) for pod in self.list("Pod", JOBS)]
        return yaml.safe_dump({"spec": model["spec"], "status": model.get("status"), "pods": pods}, width=160)


def folder(name: str) -> str:
    """Of a model on the nodes."""
    return f"{ROOT}/{name}"


def files(node: str, path: str) -> list[str]:
    """Files of a folder of a kind node that have their final names; none where it is not there."""
    output = on_node(node, f"cd {path} 2>/dev/null && find . -type f ! -path '*/.slipway*' || true")
    return sorted(line.removeprefix("./") for line in output.splitlines())


def on_node(node: str, script: str) -> str:
    """What a script prints that runs as root on a kind node."""
    command = ["docker", "exec", node, "sh", "-ec", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def llamacpp(file: str = "tiny.gguf") -> Object:
    """The runner of the real engine. Its probes are quick, as the model is tiny."""
    words = ["--model", f"$(MODEL_PATH)/{file}", "--alias", "{{.Name}}", "--host", "0.0.0.0", "--port", "8080"]
    return {
        "image": LLAMACPP,
        "args": [*words, "--ctx-size", "512"],
        "securityContext": PLAIN,
        "startupProbe": {"httpGet": {"path": "/health", "port": 8080}, **PROBE},
    }


def sglang(*words: str, probed: bool = True) -> Object:
    """The runner of SGLang's stand-in. ``words``: further arguments; ``probed``: whether it answers requests."""
    start = ["python3", "-m", "sglang.launch_server", "--host", "0.0.0.0", "--port", "8080"]
    probe = {"startupProbe": {"httpGet": {"path": "/health", "port": 8080}, **PROBE}} if probed else {}
    command = [*start, "--model-path", "$(MODEL_PATH)", *words]
    return {"image": ENGINES, "command": command, "securityContext": PLAIN, **probe}


def vllm() -> Object:
    """The runner of vLLM's stand-in."""
    words = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--host", "0.0.0.0", "--port", "8080"]
    return {
        "image": ENGINES,
        "command": [*words, "--model", "$(MODEL_PATH)"],
        "securityContext": PLAIN,
        "startupProbe": {"httpGet": {"path": "/health", "port": 8080}, **PROBE},
    }


def router(*, parts: bool = False) -> Object:
    """The runner of the real router, which finds the engines of its service by their labels; of ``parts``, those that
    read prompts and those that write answers."""
    words = ["python3", "-m", "sglang_router.launch_router", "--host", "0.0.0.0", "--port", "8080"]
    discovery = ["--service-discovery", "--service-discovery-namespace", "$(NAMESPACE)"]
    mine = "ome.io/inferenceservice=$(INFERENCESERVICE_NAME)"
    selector = ["--selector", "component=engine", mine]
    if parts:
        selectors = ["--prefill-selector", "component=engine", mine, "--decode-selector", "component=decoder", mine]
        selector = ["--pd-disaggregation", *selectors]
    quick = ["--worker-startup-check-interval", "1", "--health-check-interval-secs", "1", "--policy", "round_robin"]
    return {
        "name": "router",
        "image": ROUTER,
        "command": [*words, *discovery, "--service-discovery-port", "8080", *selector, *quick],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {
                "name": "INFERENCESERVICE_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ome.io/inferenceservice']"}},
            },
        ],
        "readinessProbe": {"httpGet": {"path": "/readiness", "port": 8080}, "periodSeconds": 1},
        "resources": SMALL,
        "securityContext": PLAIN,
    }
