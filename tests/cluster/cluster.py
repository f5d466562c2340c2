"""The cluster as the tests see it: what they create, read and wait for.

An independent reader: the official synchronous client, and kubectl where a person would use it. Nothing of the product
is imported, so that a fault in it cannot hide itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import yaml
from kubernetes import config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, DynamicApiError, NotFoundError

Object = dict[str, Any]
T = TypeVar("T")

SYSTEM = "slipway-system"
TINY = {"huggingface": "acme/tiny", "file": "tiny.gguf"}
"""The generated model that the hub of the test cluster serves: real llama.cpp loads it within a second."""
TOKEN = "hf_reader_of_the_tests"
"""A token that the test cluster's hub accepts. It allows reading the gated repository acme/gated."""
PODS = "krypton.ai/model"
"""Label of a model's pods."""
API_VERSIONS = {
    "Model": "krypton.ai/v1alpha1",
    "Model.kubeai.org": "kubeai.org/v1",
    "Model.inference.llmkube.dev": "inference.llmkube.dev/v1alpha1",
    "Model.ai.deckhouse.io": "ai.deckhouse.io/v1alpha1",
    "InferenceService.inference.llmkube.dev": "inference.llmkube.dev/v1alpha1",
    "ModelPool.inference.llmkube.dev": "inference.llmkube.dev/v1alpha1",
    "BaseModel": "ome.io/v1beta1",
    "ClusterBaseModel": "ome.io/v1beta1",
    "FineTunedWeight": "ome.io/v1beta1",
    "ServingRuntime": "ome.io/v1beta1",
    "ClusterServingRuntime": "ome.io/v1beta1",
    "InferenceService.ome.io": "ome.io/v1beta1",
    "BenchmarkJob": "ome.io/v1beta1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Event": "v1",
    "SubjectAccessReview": "authorization.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "Job": "batch/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "ScaledObject": "keda.sh/v1alpha1",
}
"""Kinds outside ``v1``; a kind that two groups have is written with its group."""
PATIENCE = 150.0
"""Seconds that a wait may take on a slow machine; most take two or three."""
DISCOVERED = tempfile.TemporaryDirectory(prefix="slipway-tests-")
"""Discovery caches. By default, all processes of a user share one file, but tests change the available kinds."""
GATEWAY = "app.kubernetes.io/name=slipway-gateway"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}


class Cluster:
    """One test cluster. Objects are plain dictionaries, as the API server sends them."""

    def __init__(self, kubeconfig: str, account: str = "", namespace: str = SYSTEM) -> None:
        """``account``: a service account of the namespace, as which all operations on objects run."""
        self.kubeconfig = kubeconfig
        connection = config.new_client_from_config(kubeconfig)
        if account:
            connection.set_default_header("Impersonate-User", f"system:serviceaccount:{namespace}:{account}")
        self._client = DynamicClient(connection, cache_file=os.path.join(DISCOVERED.name, unique("kinds")))

    # --- objects -----------------------------------------------------------------------------------------------------

    def _resource(self, kind: str) -> Any:
        return self._client.resources.get(api_version=API_VERSIONS.get(kind, "v1"), kind=kind.partition(".")[0])

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        try:
            instance: Object = self._resource(kind).get(name=name, namespace=namespace or None).to_dict()
        except NotFoundError:
            return None
        return instance

    def list(self, kind: str, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        items: list[Object] = (
            self._resource(kind)
            .get(namespace=namespace or None, label_selector=labels or None, field_selector=fields or None)
            .to_dict()["items"]
        )
        return items

    def create(self, body: Object, *, rehearsed: bool = False) -> Object:
        """``rehearsed``: the API server checks and fills it in, but keeps nothing."""
        kind = body["kind"]
        body = body | {"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind.partition(".")[0]}
        options = {"dry_run": "All"} if rehearsed else {}
        instance: Object = (
            self._resource(kind).create(body=body, namespace=body["metadata"].get("namespace"), **options).to_dict()
        )
        return instance

    def patch(self, kind: str, namespace: str, name: str, body: Object) -> Object:
        """A merge patch: a value of None takes a field away."""
        body = {"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind.partition(".")[0], **body}
        resource = self._resource(kind)
        instance: Object = resource.patch(
            body=body, name=name, namespace=namespace or None, content_type="application/merge-patch+json"
        ).to_dict()
        return instance

    def delete(self, kind: str, namespace: str, name: str, grace: int | None = None) -> None:
        """In the background: what it owned goes a little later. It is no fault if it is gone already."""
        options = {"propagationPolicy": "Background"} | ({} if grace is None else {"gracePeriodSeconds": grace})
        try:
            self._resource(kind).delete(name=name, namespace=namespace or None, body=options)
        except (NotFoundError, ConflictError):
            return

    def send(self, method: str, path: str, body: object, content_type: str = "application/json") -> tuple[int, str]:
        """Status and text of the answer to a request."""
        try:
            answer = self._client.request(method, path, body=body, content_type=content_type, serialize=False)
        except DynamicApiError as error:
            return error.status, f"{error.reason} {error.body}"
        return answer.status, answer.data.decode()

    def namespace(self, prefix: str = "test", restricted: bool = True) -> str:
        """Creates a namespace with a unique name, at the restricted Pod Security level."""
        name = unique(prefix)
        labels = RESTRICTED if restricted else {}
        self.create({"kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        return name

    def logs(self, namespace: str, pod: str, container: str = "") -> str:
        return self.kubectl("logs", "--namespace", namespace, pod, *(["--container", container] if container else []))

    def our_logs(self) -> dict[str, str]:
        """Pod and container -> log, for all started containers in the system namespace whose pods still exist."""
        logs = {}
        for pod in self.list("Pod", SYSTEM):
            for status in pod["status"].get("containerStatuses", []):
                name = pod["metadata"]["name"]
                if status.get("containerID") and self.get("Pod", SYSTEM, name):
                    options = ["--ignore-errors", "--container", status["name"]]
                    logs[f"{name}/{status['name']}"] = self.kubectl("logs", "--namespace", SYSTEM, name, *options)
        return logs

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Standard output; fails the test with standard error where kubectl fails."""
        command = ["kubectl", "--kubeconfig", self.kubeconfig, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def kill(self, namespace: str, pod: str, container: str) -> None:
        """SIGKILL to the first process of a container, as the kernel does it when memory is short.

        From the kind node: inside its own container a first process cannot be killed.
        """
        live_pod = self.get("Pod", namespace, pod)
        statuses = live_pod["status"].get("containerStatuses", []) if live_pod else []
        ids = [status.get("containerID", "") for status in statuses if status["name"] == container]
        if not live_pod or not ids or not ids[0]:
            return
        kill = ["ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", ids[0].split("//")[1]]
        subprocess.run(
            ["docker", "exec", live_pod["spec"]["nodeName"], *kill], capture_output=True, timeout=120, check=False
        )

    # --- models ------------------------------------------------------------------------------------------------------

    def make_model(self, namespace: str, name: str, **spec: Any) -> Object:
        body = {"kind": "Model", "metadata": {"name": name, "namespace": namespace}, "spec": {"source": TINY, **spec}}
        return self.create(body)

    def change_model(self, namespace: str, name: str, **spec: Any) -> Object:
        return self.patch("Model", namespace, name, {"spec": spec})

    def model(self, namespace: str, name: str) -> Object:
        model = self.get("Model", namespace, name)
        assert model, f"no model {namespace}/{name}"
        return model

    def pods(self, namespace: str, name: str) -> list[Object]:
        """The pods of a model that are not on their way out."""
        pods = self.list("Pod", namespace, self._labels(name))
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def children(self, namespace: str, name: str) -> dict[str, Object]:
        """Kind -> child, of those that exist."""
        children = {kind: self.get(kind, namespace, name) for kind in ("Deployment", "Service", "ServiceAccount")}
        return {kind: child for kind, child in children.items() if child}

    def events(self, namespace: str, name: str) -> list[Object]:
        """The Events about a model."""
        return self.list("Event", namespace, fields=f"involvedObject.kind=Model,involvedObject.name={name}")

    def _labels(self, name: str) -> str:
        """Selects a model's pods."""
        return f"{PODS}={name}"

    # --- waits -------------------------------------------------------------------------------------------------------

    def wait_ready(self, namespace: str, name: str, seconds: float = PATIENCE) -> Object:
        """Until all replicas of the newest spec answer; returns the model."""
        return wait(f"{name} is Ready", seconds, lambda: self.model(namespace, name), is_ready, self._say)

    def wait_failed(self, namespace: str, name: str, reason: str, seconds: float = PATIENCE) -> str:
        """Until the newest spec has failed for this reason; returns the message."""

        def failed(model: Object) -> bool:
            return observed(model) and condition(model, "Progressing").get("reason") == reason

        model = wait(f"{name} fails with {reason}", seconds, lambda: self.model(namespace, name), failed, self._say)
        # Where nothing answers any more, Available has the message; while older replicas do, Progressing has it.
        available, progressing = condition(model, "Available"), condition(model, "Progressing")
        message: str = (available if available.get("reason") == reason else progressing)["message"]
        return message

    def wait_condition(
        self, namespace: str, name: str, kind: str, status: str, reason: str, seconds: float = PATIENCE
    ) -> Object:
        """Until a condition has this status and reason; returns the condition."""

        def reached(model: Object) -> bool:
            actual = condition(model, kind)
            return observed(model) and (actual.get("status"), actual.get("reason")) == (status, reason)

        what = f"{name} is {kind}={status}/{reason}"
        return condition(wait(what, seconds, lambda: self.model(namespace, name), reached, self._say), kind)

    def wait_gone(self, kind: str, namespace: str, name: str, seconds: float = PATIENCE) -> None:
        wait(
            f"{kind} {name} is gone",
            seconds,
            lambda: self.get(kind, namespace, name),
            lambda instance: instance is None,
        )

    def wait_routed(self, namespace: str, *ids: str, seconds: float = PATIENCE) -> None:
        """Until every gateway lists these models and has all Services of their namespace.

        A client meets any of the gateways: what one of them knows, another one may learn a moment later.
        """
        wait(
            f"all gateways know {', '.join(ids)}", seconds, lambda: self._unknown(namespace, ids), lambda seen: not seen
        )

    def _unknown(self, namespace: str, ids: Iterable[str]) -> list[str]:
        services = [
            service["metadata"]["name"] for service in self.list("Service", namespace, "slipway.inference/route")
        ]
        unknown = [] if services else ["no Service"]
        pods = self.gateways()
        unknown += [] if pods else ["no gateway"]
        for pod in pods:
            series = self.answer_of(pod, 8081, "/metrics")
            backends = [f'model="{name}",namespace="{namespace}"' for name in services]
            unknown += [f"{pod}: {backend}" for backend in backends if backend not in series]
            unknown += [f"{pod}: {name}" for name in ids if not self.answer_of(pod, 8080, f"/v1/models/{name}")]
        return unknown

    def wait_unrouted(self, model: str, seconds: float = PATIENCE) -> None:
        """Until no gateway lists this model."""

        def gateways_with_model() -> list[str]:
            return [pod for pod in self.gateways() if self.answer_of(pod, 8080, f"/v1/models/{model}")]

        wait(f"no gateway knows {model}", seconds, gateways_with_model, lambda pods: not pods)

    def in_flight(self, namespace: str, service: str) -> float:
        """The number of requests that servers of a Service are answering."""
        return self._gauge("slipway_gateway_requests_in_flight", namespace, service)

    def waiting(self, namespace: str, service: str) -> float:
        """The number of requests that wait for a ready server of a Service."""
        return self._gauge("slipway_gateway_requests_waiting", namespace, service)

    def _gauge(self, metric: str, namespace: str, service: str) -> float:
        """The sum over all gateways."""
        name = f'{metric}{{model="{service}",namespace="{namespace}"}}'
        lines = [line for pod in self.gateways() for line in self.answer_of(pod, 8081, "/metrics").splitlines()]
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def gateways(self) -> list[str]:
        """Names of the gateway's pods that are not on their way out."""
        pods = [pod["metadata"] for pod in self.list("Pod", SYSTEM, GATEWAY)]
        return [pod["name"] for pod in pods if "deletionTimestamp" not in pod]

    def answer_of(self, pod: str, port: int, path: str) -> str:
        """What one pod of our namespace answers, by way of the API server; empty where it answers with an error."""
        address = f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:{port}/proxy{path}"
        try:
            answer: str = self._client.request("get", address, serialize=False).data.decode()
        except DynamicApiError:
            return ""
        return answer

    def proxied(self, method: str, namespace: str, service: str, path: str, body: object = None) -> str:
        """What ``<service>:<port>`` answers, by way of the API server."""
        address = f"/api/v1/namespaces/{namespace}/services/{service}/proxy{path}"
        answer: str = self._client.request(method, address, body=body, serialize=False).data.decode()
        return answer

    def _say(self, model: Object) -> str:
        """What a person needs to see why a model is not where a test wants it."""
        namespace, name = model["metadata"]["namespace"], model["metadata"]["name"]
        pods = [pod.get("status", {}) for pod in self.list("Pod", namespace, self._labels(name))]
        seen = {
            "metadata": {"generation": model["metadata"]["generation"]},
            "status": model.get("status"),
            "pods": pods,
        }
        return yaml.safe_dump(seen, width=160)


def unique(prefix: str) -> str:
    """A model name that no other test uses: names are known in the whole cluster."""
    return f"{prefix}-{uuid.uuid4().hex[:6]}"


def wait(
    what: str,
    seconds: float,
    look: Callable[[], T],
    good: Callable[[T], bool] = bool,
    say: Callable[[T], str] = lambda seen: json.dumps(seen, indent=1, default=str),
) -> T:
    """Looks until ``good``; fails the test with the last that was seen. Returns what was good."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if good(seen):
            return seen
        if time.monotonic() > deadline:
            _fail(f"not within {seconds:.0f} s: {what}. Last seen:\n{say(seen)}")
        time.sleep(0.25)


def holds(what: str, seconds: float, look: Callable[[], T], good: Callable[[T], bool] = bool) -> None:
    """Fails the test when something stops to be so within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = look()
        assert good(seen), f"no longer so: {what}. Seen:\n{json.dumps(seen, indent=1, default=str)}"
        time.sleep(0.25)


def _fail(message: str) -> NoReturn:
    raise AssertionError(message)


def condition(model: Object, kind: str) -> Object:
    conditions: list[Object] = model.get("status", {}).get("conditions", [])
    return next((candidate for candidate in conditions if candidate["type"] == kind), {})


def observed(model: Object) -> bool:
    """Whether the status speaks of the newest spec."""
    seen: bool = model.get("status", {}).get("observedGeneration") == model["metadata"]["generation"]
    return seen


def is_ready(model: Object) -> bool:
    progressing = condition(model, "Progressing")
    done = (progressing.get("status"), progressing.get("reason")) == ("False", "Complete")
    return observed(model) and done and model["status"]["phase"] == "Ready"


def our_writes(instance: Object) -> list[object]:
    """The generation and the times of Slipway's own writes. Kubernetes also writes, for example after a late probe on a
    busy machine."""
    fields = instance["metadata"].get("managedFields", [])
    ours = [one for one in fields if one["manager"].startswith("slipway")]
    assert ours, f"Slipway has not written {instance['metadata']['name']}"
    written = [(one["manager"], one.get("subresource"), one.get("time")) for one in ours]
    return [instance["metadata"].get("generation"), *written]


def owners(child: Object) -> Sequence[tuple[str, str, bool]]:
    """(kind, uid, whether it controls) of each owner."""
    references: Iterable[Object] = child["metadata"].get("ownerReferences", [])
    return [(owner["kind"], owner["uid"], owner.get("controller", False)) for owner in references]


def container(deployment: Object) -> Object:
    """The engine's container."""
    engine: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return engine


def site(*arguments: str, playbook: str = "site") -> str:
    """Runs the site playbook with the test cluster's variables; fails the test with its output, or returns that."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # The second file contains the installed parts and the image build. Without the build, this run and the next one
    # that sets it would replace the pods.
    variables = ["-e", "@tests/cluster/site.yml", "-e", "@tests/output/parts.yml"]
    command = ["ansible-playbook", f"playbooks/{playbook}.yml", *variables, *arguments]
    environment = os.environ | {"K8S_AUTH_KUBECONFIG": os.environ["SLIPWAY_TEST_KUBECONFIG"]}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def built_image() -> str:
    """The image build that scripts/cluster.sh installed."""
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", "slipway/slipway:0.4.0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
