"""The control plane that is measured against: a kind cluster of its own, with the controllers of Kubernetes stopped.

What remains is the API server with its etcd, as in envtest: nobody makes a thousand pods of the Deployments, and what
is written beside the benchmark's own requests was written by the controller under test.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import ssl
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
NAME = "slipway-bench"
NAMESPACE = "bench"
APPS, CORE = f"/apis/apps/v1/namespaces/{NAMESPACE}", f"/api/v1/namespaces/{NAMESPACE}"


@dataclass(frozen=True)
class Dialect:
    """Models of one API, and what is made of them."""

    api: str
    group: str
    version: str
    children: Mapping[str, str]
    """Resource -> path of its collection."""
    prefix: str
    """Of the children's names, before the model's."""
    spec: Callable[[int], Object]
    """The number of a model -> its spec."""
    services: str = ""
    """Resource of the same group that serves each model under the model's name; empty: the model serves itself."""

    @property
    def models(self) -> str:
        return f"/apis/{self.group}/{self.version}/namespaces/{NAMESPACE}/models"

    @property
    def created(self) -> dict[str, str]:
        """What the benchmark makes of each: resource -> path of its collection."""
        resources = (*((self.services,) if self.services else ()), "models")
        return {resource: self.models.replace("/models", f"/{resource}") for resource in resources}

    @property
    def kinds(self) -> dict[str, str]:
        return {**self.created, **self.children}

    def definitions(self) -> list[Object]:
        files = (ROOT / f"roles/crds/files/{self.group}_{resource}.yaml" for resource in self.created)
        return [yaml.safe_load(file.read_text()) for file in files]


KRYPTON = Dialect(
    "krypton",
    "krypton.ai",
    "v1alpha1",
    {
        "deployments": f"{APPS}/deployments",
        "services": f"{CORE}/services",
        "serviceaccounts": f"{CORE}/serviceaccounts",
    },
    "",
    lambda _unused: {"source": {"huggingface": "acme/tiny", "file": "tiny.gguf"}},
)
ENGINES = (
    ("VLLM", "hf://acme/tiny", "TextGeneration"),
    ("OLlama", "ollama://tiny:1b", "TextGeneration"),
    ("FasterWhisper", "hf://acme/whisper", "SpeechToText"),
    ("Infinity", "hf://acme/vectors", "TextEmbedding"),
    ("LlamaCpp", "hf://acme/tiny?model=tiny.gguf", "TextGeneration"),
    ("SGLang", "hf://acme/tiny", "TextGeneration"),
)


def _mixed(number: int) -> Object:
    engine, url, feature = ENGINES[number % len(ENGINES)]
    spec = {"engine": engine, "url": url, "features": [feature], "resourceProfile": "cpu:1", "minReplicas": number % 2}
    return spec | {"targetRequests": 10}


KUBEAI = Dialect(
    "kubeai",
    "kubeai.org",
    "v1",
    {"deployments": f"{APPS}/deployments", "services": f"{CORE}/services"},
    "model-",
    _mixed,
)
LLMKUBE = Dialect(
    "llmkube",
    "inference.llmkube.dev",
    "v1alpha1",
    {
        "deployments": f"{APPS}/deployments",
        "services": f"{CORE}/services",
        "poddisruptionbudgets": f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
    },
    "",
    # The engine fetches it, as there is nobody here who ends Jobs; each has a folder of its own all the same.
    lambda number: {"source": f"acme/tiny-{number}"},
    services="inferenceservices",
)
MANAGERS = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
METRIC = re.compile(
    r'^apiserver_request_total\{.*\bresource="([a-z]+)".*\bsubresource="([a-z]*)".*\bverb="([A-Z]+)".*\} (\S+)$',
    re.MULTILINE,
)
WRITES = frozenset({"APPLY", "CREATE", "DELETE", "DELETECOLLECTION", "PATCH", "POST", "PUT", "UPDATE"})


def _playbook(kubeconfig: Path, state: str, port: int) -> None:
    settings = {
        "local_cluster_name": NAME,
        "local_cluster_kubeconfig": str(kubeconfig),
        "local_cluster_gateway_port": port,
        "local_cluster_state": state,
    }
    command = ["ansible-playbook", "playbooks/local.yml", "-e", json.dumps(settings)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SystemExit(f"the cluster of the benchmark cannot be made ({state}):\n{done.stdout[-3000:]}{done.stderr}")


@contextlib.contextmanager
def cluster(port: int) -> Iterator[Path]:
    """Makes the cluster, stops its controllers and removes it at the end. Yields the kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        try:
            _playbook(kubeconfig, "present", port)
            subprocess.run(
                ["docker", "exec", f"{NAME}-control-plane", "mv", MANAGERS, "/root/"], timeout=30, check=True
            )
            yield kubeconfig
        finally:
            _playbook(kubeconfig, "absent", port)


class Api:
    """The API server, by bare requests: the load and the measurement are to cost as little as they can."""

    def __init__(self, session: aiohttp.ClientSession, dialect: Dialect = KRYPTON) -> None:
        self.session, self.dialect = session, dialect
        self._made = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, kubeconfig: Path) -> AsyncIterator[Api]:
        server, user = _credentials(kubeconfig)
        connector = aiohttp.TCPConnector(ssl=_tls(server, user), limit=64)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(server["server"], connector=connector, timeout=timeout) as session:
            yield cls(session)

    async def create(self, path: str, body: Object, accepted: tuple[int, ...] = (201,)) -> None:
        async with self.session.post(path, json=body) as answer:
            if answer.status not in accepted:
                raise RuntimeError(f"POST {path}: {answer.status} {await answer.text()}")

    async def prepare(self) -> None:
        """The definition, and the namespaces of the models and of the leader's Lease."""
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for definition in self.dialect.definitions():
            await self.create(definitions, definition, (201, 409))
        for name in (NAMESPACE, "slipway-system"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.create("/api/v1/namespaces", body, (201, 409))
        async with asyncio.timeout(30):
            while True:
                answers = [await self.session.get(path) for path in self.dialect.created.values()]
                if all(answer.status == 200 for answer in answers):
                    return
                await asyncio.sleep(0.2)

    async def model(self, name: str) -> None:
        one, self._made = self.dialect, self._made + 1
        metadata = {"name": name, "namespace": NAMESPACE}
        version = f"{one.group}/{one.version}"
        body = {"apiVersion": version, "kind": "Model", "metadata": metadata, "spec": one.spec(self._made)}
        if one.services:
            served = {"kind": "InferenceService", "spec": {"modelRef": name, "runtime": "vllm"}}
            await self.create(one.created[one.services], {**body, **served})
        await self.create(one.models, body)

    async def change(self, name: str) -> None:
        """One change of a Model that follows to nothing but itself."""
        headers = {"Content-Type": "application/merge-patch+json"}
        data = json.dumps({"metadata": {"labels": {"changed": "yes"}}})
        async with self.session.patch(f"{self.dialect.models}/{name}", data=data, headers=headers) as answer:
            answer.raise_for_status()

    async def clean(self) -> None:
        """Removes all models, and their children: there is no garbage collector."""
        for path in self.dialect.kinds.values():
            async with self.session.delete(path) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"DELETE {path}: {answer.status} {await answer.text()}")

    async def writes(self) -> Counter[str]:
        """The writes among the requests."""
        requests = await self.requests()
        return Counter({what: count for what, count in requests.items() if what.partition(" ")[0] in WRITES})

    async def requests(self) -> Counter[str]:
        """``verb resource/subresource`` -> requests that the API server has answered so far, leases left out."""
        async with self.session.get("/metrics") as answer:
            text = await answer.text()
        counts: Counter[str] = Counter()
        for resource, subresource, verb, count in METRIC.findall(text):
            if resource in (*self.dialect.kinds, "events"):
                counts[f"{verb} {resource}/{subresource}".rstrip("/")] += int(float(count))
        return counts


def _credentials(kubeconfig: Path) -> tuple[Object, Object]:
    """Cluster and user of a kubeconfig as kind writes it."""
    config = yaml.safe_load(kubeconfig.read_text())
    return config["clusters"][0]["cluster"], config["users"][0]["user"]


def _tls(server: Object, user: Object) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=base64.b64decode(server["certificate-authority-data"]).decode())
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        context.load_cert_chain(pair)
    return context


def environment(kubeconfig: Path) -> dict[str, str]:
    """For a controller as a process: its way to the API server and the package."""
    return os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "src")}
