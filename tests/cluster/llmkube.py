"""The cluster as tests of LLMKube's Models and InferenceServices see it: what they create, read, ask and wait for."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import yaml

from .cluster import PATIENCE, Cluster, Object, condition, observed, unique, wait

MODEL, SERVICE = "Model.inference.llmkube.dev", "InferenceService.inference.llmkube.dev"
CLAIM = "llmkube-model-cache"
RECORD = re.compile(r"inference\.llmkube\.dev/([0-9a-f]{16})")
"""Annotation of a Model with what is known of a folder of the cache."""
HUB = "hf://acme/tiny/tiny.gguf"
"""The generated model on the hub of the test cluster."""
ENGINES = "slipway/test-engines:1"
"""Image with stand-ins of the engines that do not run here."""
STORES = "test-stores"
REVALIDATE_SECONDS = 40
"""How often the controller of the test cluster asks sources whether they have changed."""


class LLMKube(Cluster):
    """One test cluster, its Models those of LLMKube."""

    def namespace(self, prefix: str = "llmkube", restricted: bool = False) -> str:
        """Creates a namespace without a Pod Security level, because engine images set their own users."""
        return super().namespace(prefix, restricted)

    # --- what tests create -------------------------------------------------------------------------------------------

    def make_model(self, namespace: str, name: str, **spec: Any) -> Object:
        """With the hub's generated model, or what is given."""
        metadata = {"name": name, "namespace": namespace}
        return self.create({"kind": MODEL, "metadata": metadata, "spec": {"source": HUB, **spec}})

    def change_model(self, namespace: str, name: str, **spec: Any) -> Object:
        return self.patch(MODEL, namespace, name, {"spec": spec})

    def make_service(self, namespace: str, name: str, model: str, **spec: Any) -> Object:
        metadata = {"name": name, "namespace": namespace}
        return self.create({"kind": SERVICE, "metadata": metadata, "spec": {"modelRef": model, **spec}})

    def change_service(self, namespace: str, name: str, **spec: Any) -> Object:
        return self.patch(SERVICE, namespace, name, {"spec": spec})

    # --- what they read ----------------------------------------------------------------------------------------------

    def model(self, namespace: str, name: str) -> Object:
        model = self.get(MODEL, namespace, name)
        assert model, f"no model {namespace}/{name}"
        return model

    def service(self, namespace: str, name: str) -> Object:
        service = self.get(SERVICE, namespace, name)
        assert service, f"no service {namespace}/{name}"
        return service

    def loads(self, namespace: str) -> Counter[str]:
        """Job that loads weights -> pods that it ever had."""
        events = self.list("Event", namespace, fields="involvedObject.kind=Job,reason=SuccessfulCreate")
        counts: Counter[str] = Counter()
        for event in events:
            if event["involvedObject"]["name"].endswith("-download"):
                counts[event["involvedObject"]["name"]] += event.get("count") or 1
        return counts

    def inventory(self, namespace: str) -> dict[str, Object]:
        """Cache key -> what the Models of the namespace have on record of its folder."""
        annotations = (model["metadata"].get("annotations", {}) for model in self.list(MODEL, namespace))
        written = (item for carried in annotations for item in carried.items())
        return {match[1]: json.loads(text) for name, text in written if (match := RECORD.fullmatch(name))}

    def files(self, namespace: str, claim: str = CLAIM) -> list[str]:
        """Paths of the files on a claim that have their final names."""
        output = self.on_claim(
            namespace, claim, "cd /volume && find . -type f ! -name '.slipway*' ! -path '*/.slipway/*'"
        )
        return sorted(line.removeprefix("./") for line in output.splitlines())

    def on_claim(self, namespace: str, claim: str, script: str) -> str:
        """What a script prints that runs as root with a claim at /volume."""
        name = unique("look")
        container = {
            "name": "look",
            "image": ENGINES,
            "command": ["bash", "-ec", script],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
        }
        volume = {"name": "volume", "persistentVolumeClaim": {"claimName": claim}}
        spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
        self.create({"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
        pod = wait(
            f"the script runs: {script}",
            PATIENCE,
            lambda: self.get("Pod", namespace, name) or {"status": {}},
            lambda live_pod: live_pod["status"].get("phase") in ("Succeeded", "Failed"),
        )
        log = self.logs(namespace, name)
        self.delete("Pod", namespace, name, grace=0)
        assert pod["status"]["phase"] == "Succeeded", log
        return log

    def ask_inside(self, url: str, body: object) -> Any:
        """The answer to a POST by a pod of the cluster; it waits for the nodes to know a Service that has just come."""
        script = (
            "import sys, urllib.request as web\n"
            "asked = web.Request(sys.argv[1], sys.argv[2].encode(), {'Content-Type': 'application/json'})\n"
            "try: print(web.urlopen(asked, timeout=60).read().decode())\n"
            "except OSError as error: print(error, file=sys.stderr)"
        )
        pod = ["deployment/stores", "--container", "registry", "--namespace", STORES]
        command = ["exec", *pod, "--", "python3", "-c", script, url, json.dumps(body)]
        return json.loads(wait(f"{url} answers", PATIENCE, lambda: self.kubectl(*command)))

    # --- waits -------------------------------------------------------------------------------------------------------

    def wait_model(self, namespace: str, name: str, phase: str = "Ready", reason: str = "") -> Object:
        """Until the newest spec has this phase, and Available this reason where one is given; returns the Model."""
        return self._wait_phase(MODEL, namespace, name, phase, reason)

    def wait_phase(self, namespace: str, name: str, phase: str, reason: str = "") -> Object:
        """The same of an InferenceService."""
        return self._wait_phase(SERVICE, namespace, name, phase, reason)

    def wait_serving(self, namespace: str, name: str, seconds: float = PATIENCE) -> Object:
        """Waits until all desired replicas run the latest spec. Returns the InferenceService."""

        def serving(service: Object) -> bool:
            complete = condition(service, "Progressing").get("reason") == "Complete"
            return observed(service) and service["status"]["phase"] == "Ready" and complete

        return wait(f"{name} is served", seconds, lambda: self.service(namespace, name), serving, self._say)

    def wait_for_condition(self, namespace: str, name: str, kind: str, status: str, reason: str) -> Object:
        """Until a condition of an InferenceService has this status and reason; returns the InferenceService."""

        def reached(service: Object) -> bool:
            actual = condition(service, kind)
            return observed(service) and (actual.get("status"), actual.get("reason")) == (status, reason)

        what = f"{name} is {kind}={status}/{reason}"
        return wait(what, PATIENCE, lambda: self.service(namespace, name), reached, self._say)

    def _wait_phase(self, kind: str, namespace: str, name: str, phase: str, reason: str) -> Object:
        def look() -> Object:
            instance = self.get(kind, namespace, name)
            assert instance, f"no {kind} {namespace}/{name}"
            return instance

        def reached(instance: Object) -> bool:
            actual = condition(instance, "Available").get("reason")
            return observed(instance) and instance["status"].get("phase") == phase and reason in ("", actual)

        return wait(f"{name} is {phase} {reason}", PATIENCE, look, reached, self._say)

    def _labels(self, name: str) -> str:
        return f"inference.llmkube.dev/service={name}"

    def _say(self, model: Object) -> str:
        """Beside a resource the pods of its namespace, as those of Jobs and of what waits belong to it."""
        pods = [
            (pod["metadata"]["name"], pod.get("status")) for pod in self.list("Pod", model["metadata"]["namespace"])
        ]
        return yaml.safe_dump({"spec": model["spec"], "status": model.get("status"), "pods": pods}, width=160)


class Shelf:
    """A file of the stores' web server, at an address that only this test asks."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._path = cluster, f"{name}/tiny.gguf"

    @property
    def url(self) -> str:
        return f"http://shelf.{STORES}.svc/{self._path}"

    def change(self, **settings: int) -> None:
        """``edition``, ``bytesPerSecond``."""
        self._control("put", settings)

    def look(self) -> Any:
        """``sha256`` and ``size`` of what it gives, and the ``requests`` that came."""
        return json.loads(self._control("get"))

    def _control(self, method: str, body: object = None) -> str:
        """By way of the API server, as the stores have no port that this machine reaches."""
        return self._cluster.proxied(method, STORES, "shelf:80", f"/-/{self._path}", body)
