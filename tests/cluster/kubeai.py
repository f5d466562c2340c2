"""The cluster as tests of KubeAI's Models see it: what they create, read, ask and wait for."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from .cluster import PATIENCE, Cluster, Object, condition, observed, unique, wait

MODEL = "Model.kubeai.org"
PROFILE_CLAIM = "shared-model-cache-shared"
"""The claim that the controller creates for the cache profile ``shared``."""
ENGINE_STARTS = {
    "VLLM": {"url": "hf://acme/base", "features": ["TextGeneration"]},
    "OLlama": {"url": "ollama://qwen2:0.5b", "features": ["TextGeneration"]},
    "FasterWhisper": {"url": "hf://Systran/faster-whisper-tiny", "features": ["SpeechToText"]},
    "Infinity": {"url": "hf://BAAI/bge-small-en-v1.5", "features": ["TextEmbedding", "Reranking"]},
    "SGLang": {"url": "hf://acme/base", "features": ["TextGeneration"]},
    "LlamaCpp": {"url": "hf://acme/tiny?model=tiny.gguf", "features": ["TextGeneration"]},
}
"""Engine -> what a Model of it says at least, with weights that the test cluster has."""


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def words(self) -> list[str]:
        """What a stand-in generated: the pod, the mark of who answers, filling."""
        text: str = self.json["choices"][0]["message"]["content"]
        return text.split()


def ask(url: str, body: Any = None, seconds: float = PATIENCE, **headers: str) -> Reply:
    """Sends a GET, or a POST if there is a body: unchanged bytes, or else JSON. Header names have underscores."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **named})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return Reply(answer.status, answer.read(), dict(answer.headers))
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.read(), dict(error.headers))


def chat(gateway: str, model: str, content: str = "hello", seconds: float = PATIENCE, **more: Any) -> Reply:
    """``headers`` among ``more`` are sent as such, all else is part of the body."""
    headers = more.pop("headers", {})
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 2, **more}
    return ask(f"{gateway}/v1/chat/completions", body, seconds, **headers)


def listed(gateway: str, query: str = "", **headers: str) -> dict[str, Object]:
    """Id -> card."""
    cards = ask(f"{gateway}/v1/models{query}", **headers).json["data"]
    return {card["id"]: card for card in cards}


class KubeAI(Cluster):
    """One test cluster, its Models those of KubeAI."""

    def namespace(self, prefix: str = "kubeai", restricted: bool = False) -> str:
        """A new namespace without a Pod Security level: pods of KubeAI are as free as the system configuration says."""
        return super().namespace(prefix, restricted)

    def shared_volume(self, namespace: str, profile: str = "shared") -> str:
        """Creates a volume of the class that the cache profiles name, for this profile's claim in this namespace only.
        Returns its name."""
        name = unique("shared")
        spec = {
            "storageClassName": "test-shared",
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "10Gi"},
            "claimRef": {"namespace": namespace, "name": f"shared-model-cache-{profile}"},
            "hostPath": {"path": f"/tmp/{name}", "type": "DirectoryOrCreate"},
        }
        self.create({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
        return name

    def make_model(self, namespace: str, name: str, **spec: Any) -> Object:
        """With ``engine`` VLLM, or what is given; ``labels`` become the Model's."""
        metadata = {"name": name, "namespace": namespace, "labels": spec.pop("labels", {})}
        engine = spec.setdefault("engine", "VLLM")
        full = {"resourceProfile": "cpu:1", "minReplicas": 1, **ENGINE_STARTS[engine], **spec}
        return self.create({"kind": MODEL, "metadata": metadata, "spec": full})

    def change_model(self, namespace: str, name: str, **spec: Any) -> Object:
        return self.patch(MODEL, namespace, name, {"spec": spec})

    def model(self, namespace: str, name: str) -> Object:
        model = self.get(MODEL, namespace, name)
        assert model, f"no model {namespace}/{name}"
        return model

    def wait_ready(self, namespace: str, name: str, seconds: float = PATIENCE) -> Object:
        """Until the newest spec is served, by no replica where it may be scaled to none."""
        return wait(f"{name} is ready", seconds, lambda: self.model(namespace, name), is_ready, self._say)

    def wait_replicas(self, namespace: str, name: str, count: int, seconds: float = PATIENCE) -> Object:
        """Waits until this number of replicas is desired, exists and is ready."""

        def reached(model: Object) -> bool:
            replicas = model.get("status", {}).get("replicas", {})
            return (model["spec"].get("replicas"), replicas.get("all"), replicas.get("ready")) == (count, count, count)

        what = f"{name} has {count} replicas"
        return wait(what, seconds, lambda: self.model(namespace, name), reached, self._say)

    def _labels(self, name: str) -> str:
        return f"app=model,model={name}"


def is_ready(model: Object) -> bool:
    progressing, available = condition(model, "Progressing"), condition(model, "Available")
    done = (progressing.get("status"), progressing.get("reason")) == ("False", "Complete")
    return observed(model) and done and (available.get("status") == "True" or available.get("reason") == "ScaledToZero")
