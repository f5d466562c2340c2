"""The main promises to users, tested with real parts: HAProxy, llama.cpp, the registry and a small trained model.

molecule/site installed the models in SITE through a job like AWX's. Tests do not change these; they create
others to change. Most models have generated weights, because their answers need not make sense.
"""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Self

import openai
import pytest

from tests.cluster.cluster import PATIENCE, SYSTEM, Cluster, Object, condition, our_writes, unique, wait
from tests.cluster.kubeai import KubeAI, chat
from tests.cluster.llmkube import LLMKube
from tests.cluster.load import Load
from tests.cluster.ome import OME, files, folder
from tests.cluster.rights import CONTROLLER, CONTROLLER_ONLY, FORBIDDEN, GATEWAY, allowed

SITE = "molecule-site"
TOKEN = "hf_of_the_scenario"
LITTLE: Object = {"requests": {"cpu": "10m", "memory": "32Mi"}}
"""Resource requests of the test models, small enough for all of them to fit on two cores."""
ASLEEP: Object = {"engine": "LlamaCpp", "resourceProfile": "small:1", "minReplicas": 0}
READY = {
    "Krypton": "models.krypton.ai/smol",
    "KubeAI": "models.kubeai.org/sleeps",
    "LLMKube": "models.inference.llmkube.dev/weights",
    "LLMKube's service": "inferenceservices.inference.llmkube.dev/cached",
    "OME": "clusterbasemodels.ome.io/on-nodes",
    "OME's service": "inferenceservices.ome.io/placed",
    "Deckhouse": "models.ai.deckhouse.io/artifact",
}


# --- 1 to 5: the five APIs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/v1", "/openai/v1"])
def test_krypton_answers_openais_client(gateway_url: str, prefix: str) -> None:
    client = openai.OpenAI(base_url=f"{gateway_url}{prefix}", api_key="none", max_retries=0, timeout=PATIENCE)
    question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
    request = {"model": "smol", "messages": question, "temperature": 0, "max_tokens": 32}

    answer = client.chat.completions.create(**request)
    stream = client.chat.completions.create(**request, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    embedded = client.embeddings.create(model="smol", input=["one", "two"], encoding_format="float")

    text = answer.choices[0].message.content
    assert text
    assert "Paris" in text
    assert text.rstrip().endswith("."), text
    assert answer.model == "smol"
    assert len(pieces) > 3
    assert "".join(pieces) == text
    assert [len(one.embedding) for one in embedded.data] == [576, 576]


def test_kubeai_starts_from_zero(kubeai: KubeAI, namespace: str, gateway_url: str) -> None:
    names = [unique("zero") for _ in range(2)]
    for name in names:
        kubeai.make_model(namespace, name, **ASLEEP)
    for name in names:
        kubeai.wait_ready(namespace, name)
        assert kubeai.pods(namespace, name) == []
        kubeai.wait_routed(namespace, name)

    for name in names:
        answer = chat(gateway_url, name)
        assert (answer.status, answer.json["model"]) == (200, name)
        kubeai.wait_replicas(namespace, name, 1)

    # The gateway wakes a model at once. The autoscaler also does, but only at its check every ten seconds, which may
    # coincide with one of the two requests.
    assert "slipway-gateway" in {manager for name in names for manager in scaled_by(kubeai.model(namespace, name))}


def scaled_by(model: Object) -> list[str]:
    """Returns who has set the replicas of a model."""
    return [one["manager"] for one in model["metadata"]["managedFields"] if one.get("subresource") == "scale"]


def test_llmkube_serves_from_a_cache_that_is_loaded_once(llmkube: LLMKube, gateway_url: str) -> None:
    answer = chat(gateway_url, "cached")

    assert (answer.status, answer.json["model"]) == (200, "cached")
    [pod] = llmkube.pods(SITE, "cached")
    path = llmkube.model(SITE, "weights")["status"]["path"]
    assert pod["spec"]["containers"][0]["args"][:2] == ["--model", path]
    assert "initContainers" not in pod["spec"]
    assert [*llmkube.loads(SITE).values()] in ([1], []), "expected one load, or none if its Events have expired"
    assert list(llmkube.inventory(SITE)) == [llmkube.model(SITE, "weights")["status"]["cacheKey"]]


def test_ome_downloads_a_model_to_the_node_and_selects_a_runtime(ome: OME, gateway_url: str) -> None:
    answer = chat(gateway_url, "placed")

    assert (answer.status, answer.json["model"]) == (200, "placed")
    [node] = ome.nodes()
    assert ome.model("", "on-nodes")["status"]["nodesReady"] == [node]
    assert ome.labels_of_nodes("on-nodes") == {node: "Ready"}
    assert files(node, folder("on-nodes")) == ["tiny.gguf"]
    runtime = ome.service(SITE, "placed")["status"]["runtime"]
    assert (runtime["name"], runtime["chosen"]) == ("llama-cpp-cpu", "Selection")


def test_deckhouse_publishes_a_model_that_a_workload_can_read(cluster: Cluster) -> None:
    model = cluster.get("Model.ai.deckhouse.io", SITE, "artifact")
    assert model
    assert model["status"]["phase"] == "Ready"
    name = unique("reader")
    program = "import os, time; print(os.listdir('/data/modelcache/models/artifact'), flush=True); time.sleep(3600)"
    container = {"name": "app", "image": "slipway/slipway:0.4.0", "command": ["python3", "-c", program]}
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        },
    }
    annotations = {"ai.deckhouse.io/model": "artifact"}
    metadata = {"name": name, "namespace": SITE, "annotations": annotations}
    claims = {claim["metadata"]["name"] for claim in cluster.list("PersistentVolumeClaim", SITE)}
    cluster.create({"kind": "Deployment", "metadata": metadata, "spec": spec})

    def logs() -> list[str]:
        pods = cluster.list("Pod", SITE, f"app={name}")
        running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
        return [cluster.logs(SITE, pod, "app") for pod in running]

    try:
        wait("the workload reads the model", PATIENCE, logs, lambda outputs: any("tiny.gguf" in log for log in outputs))
    finally:
        cluster.delete("Deployment", SITE, name)
    wait(
        "its claim is deleted with it",
        PATIENCE,
        lambda: {claim["metadata"]["name"] for claim in cluster.list("PersistentVolumeClaim", SITE)} - claims,
        lambda remaining: not remaining,
    )


# --- 6 and 7: status -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", READY.values(), ids=READY.keys())
def test_kubectl_waits_for_each_kind(cluster: Cluster, resource: str) -> None:
    wait_for(cluster, SITE, resource, "Ready")


def wait_for(cluster: Cluster, namespace: str, resource: str, what: str) -> None:
    """Waits like a tool that knows nothing about the APIs. ``what``: for example ``Ready`` or ``Stalled=False``."""
    cluster.kubectl(
        "wait", "--namespace", namespace, resource, f"--for=condition={what}", f"--timeout={int(PATIENCE)}s"
    )


def test_a_bad_image_is_reported_and_can_be_corrected(cluster: Cluster, namespace: str) -> None:
    name = unique("image")
    cluster.make_model(namespace, name, image="registry.invalid/no/such:image", resources=LITTLE)
    message = cluster.wait_failed(namespace, name, "ImagePullBackOff")
    assert "registry.invalid/no/such:image" in message
    wait_for(cluster, namespace, f"models.krypton.ai/{name}", "Stalled")
    model = cluster.model(namespace, name)
    assert condition(model, "Ready")["status"] == "False"
    assert condition(model, "Stalled")["reason"] == condition(model, "Available")["reason"] == "ImagePullBackOff"
    cluster.change_model(namespace, name, image="")
    cluster.wait_ready(namespace, name)
    for what in ("Ready", "Reconciling=False", "Stalled=False"):
        wait_for(cluster, namespace, f"models.krypton.ai/{name}", what)


# --- 8 and 9: changes and failures under load ------------------------------------------------------------------------


def test_changed_arguments_roll_out_without_losing_a_request(
    cluster: Cluster, namespace: str, gateway_url: str
) -> None:
    name = unique("change")
    cluster.make_model(namespace, name, resources=LITTLE)
    cluster.wait_ready(namespace, name)
    cluster.wait_routed(namespace, name)
    before = {pod["metadata"]["name"] for pod in cluster.pods(namespace, name)}
    with Load(gateway_url, name) as load:
        cluster.change_model(namespace, name, args=["--ctx-size", "1024"])
        cluster.wait_ready(namespace, name)
        assert before.isdisjoint(pod["metadata"]["name"] for pod in cluster.pods(namespace, name))
        load.more(20)
    assert load.failures == []
    assert load.answered > 20


class Patient:
    """Sends requests without pause, with the built-in retries of OpenAI's client."""

    def __init__(self, gateway: str, model: str) -> None:
        self._client = openai.OpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=5, timeout=PATIENCE)
        self._model, self._stop = model, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answered, self.lost = 0, ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.more(3)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=PATIENCE)

    def more(self, count: int) -> None:
        """Waits for this many more answers. Fails the test if a request fails."""
        target = self.answered + count
        wait(f"{count} more answers", PATIENCE, lambda: self.answered >= target or bool(self.lost))
        assert self.lost == ""

    def _run(self) -> None:
        question = [{"role": "user", "content": "hello"}]
        while not self._stop.is_set():
            try:
                self._client.chat.completions.create(model=self._model, messages=question, max_tokens=2)
            except openai.OpenAIError as error:
                self.lost = repr(error)
                return
            self.answered += 1


def test_no_answer_is_lost_when_the_controller_and_a_gateway_die(
    cluster: Cluster, kubeai: KubeAI, namespace: str, gateway_url: str
) -> None:
    """The restarted controller finds everything up to date and writes nothing."""
    name, before = "app.kubernetes.io/name", written(cluster)
    with Patient(gateway_url, "smol") as client:
        [controller] = ready(cluster, f"{name}=slipway-controller")
        deaths = restarts(cluster, controller)
        cluster.kill(SYSTEM, controller, "controller")
        client.more(10)
        # The kubelet reports the death late: until then, the pod still counts as ready.
        wait(
            "the controller has restarted",
            PATIENCE,
            lambda: restarts(cluster, controller),
            lambda count: count > deaths,
        )
        gateways = wait(
            "two gateways", PATIENCE, lambda: ready(cluster, f"{name}=slipway-gateway"), lambda pods: len(pods) == 2
        )
        cluster.delete("Pod", SYSTEM, gateways[0], grace=0)
        client.more(10)
        wait(
            "two gateways again",
            PATIENCE,
            lambda: ready(cluster, f"{name}=slipway-gateway"),
            lambda pods: len(pods) == 2 and gateways[0] not in pods,
        )
        client.more(10)
    # The controller handles a new model only after it has reconciled all existing ones.
    marker = unique("marker")
    kubeai.make_model(namespace, marker, **ASLEEP)
    kubeai.wait_ready(namespace, marker)
    assert written(cluster) == before


def written(cluster: Cluster) -> dict[str, list[object]]:
    """Slipway's writes for the models that molecule/site installed."""
    children = [(kind, one) for kind in ("Deployment", "Service") for one in cluster.list(kind, SITE)]
    return {f"{kind} {one['metadata']['name']}": our_writes(one) for kind, one in children}


def restarts(cluster: Cluster, pod: str) -> int:
    live_pod = cluster.get("Pod", SYSTEM, pod)
    assert live_pod, f"{pod} is gone"
    return sum(status["restartCount"] for status in live_pod["status"].get("containerStatuses", []))


def ready(cluster: Cluster, labels: str) -> list[str]:
    """Names of the ready pods."""
    pods = [pod for pod in cluster.list("Pod", SYSTEM, labels) if "deletionTimestamp" not in pod["metadata"]]
    return [pod["metadata"]["name"] for pod in pods if condition(pod, "Ready").get("status") == "True"]


# --- 10 to 12: tokens, rights, deletion ------------------------------------------------------------------------------


def test_a_token_opens_a_gated_repository_and_appears_nowhere(cluster: Cluster, namespace: str) -> None:
    name, variable = unique("gated"), "HUGGINGFACE_HUB_TOKEN"
    secret = {"kind": "Secret", "metadata": {"name": "hub", "namespace": namespace}, "stringData": {variable: TOKEN}}
    cluster.create(secret)
    source = {"huggingface": "acme/gated", "file": "tiny.gguf"}
    cluster.make_model(namespace, name, source=source, envFrom=[{"secretRef": {"name": "hub"}}], resources=LITTLE)
    cluster.wait_ready(namespace, name)
    [pod] = cluster.pods(namespace, name)
    shown = {
        "model": cluster.model(namespace, name),
        "children": cluster.children(namespace, name),
        "pod": pod,
        "events": cluster.list("Event", namespace),
        "engine's log": cluster.logs(namespace, pod["metadata"]["name"]),
        "our settings": cluster.list("ConfigMap", SYSTEM),
        **cluster.our_logs(),
    }
    assert any(name.startswith("slipway-controller") for name in shown)
    assert [place for place, content in shown.items() if TOKEN in json.dumps(content, default=str)] == []


def test_service_accounts_have_only_the_permissions_that_they_need(cluster: Cluster) -> None:
    needed = {"slipway-controller": CONTROLLER, "slipway-gateway": GATEWAY}
    refused = {
        "slipway-controller": FORBIDDEN,
        "slipway-gateway": [*FORBIDDEN, *CONTROLLER_ONLY],
        "slipway-registry": [*FORBIDDEN, *CONTROLLER_ONLY],
    }
    missing = [(one, right) for one, rights in needed.items() for right in rights if not allowed(cluster, one, *right)]
    excessive = [(one, right) for one, rights in refused.items() for right in rights if allowed(cluster, one, *right)]
    assert (missing, excessive) == ([], [])


def test_deleted_models_leave_nothing_behind(
    cluster: Cluster, kubeai: KubeAI, llmkube: LLMKube, ome: OME, namespace: str
) -> None:
    one, two, three, four = unique("krypton"), unique("kubeai"), unique("llmkube"), unique("ome")
    cluster.make_model(namespace, one, resources=LITTLE)
    kubeai.make_model(namespace, two, **ASLEEP)
    llmkube.make_model(namespace, three)
    llmkube.make_service(namespace, three, three, resources={"cpu": "10m"})
    runner = {"name": "ome-container", "resources": LITTLE}
    ome.make_service(namespace, four, "on-nodes", engine={"minReplicas": 1, "maxReplicas": 1, "runner": runner})
    wait(
        "all have Deployments",
        PATIENCE,
        lambda: cluster.list("Deployment", namespace),
        lambda deployments: len(deployments) == 4,
    )

    kinds = {
        "Model": one,
        "Model.kubeai.org": two,
        "InferenceService.inference.llmkube.dev": three,
        "Model.inference.llmkube.dev": three,
        "InferenceService.ome.io": four,
    }
    for kind, name in kinds.items():
        cluster.delete(kind, namespace, name)
    for kind, name in kinds.items():
        cluster.wait_gone(kind, namespace, name)

    def leftovers() -> list[str]:
        child_kinds = ("Deployment", "Service", "Job", "Pod", "NetworkPolicy", "PodDisruptionBudget", "Secret")
        objects = [(kind, one["metadata"]["name"]) for kind in child_kinds for one in cluster.list(kind, namespace)]
        accounts = [("ServiceAccount", one["metadata"]["name"]) for one in cluster.list("ServiceAccount", namespace)]
        return [f"{kind} {name}" for kind, name in objects + accounts if name != "default"]

    wait("nothing is left", PATIENCE, leftovers, lambda names: not names)
