"""Models in workloads of others: pods that read them, and authors who go on applying what they wrote.

Most workloads have no replicas: what an apply does to a template needs no pod.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.dynamic.exceptions import DynamicApiError

from .cluster import PATIENCE, SYSTEM, Cluster, Object, holds, wait

GROUP = "ai.deckhouse.io"
ASKS = f"{GROUP}/model"
MODEL, MODELS = "tiny", "/data/modelcache/models"
GATE = f"{GROUP}/model-delivery"
IMAGE = "slipway/slipway:0.4.0"
SHOW = "import os, time; print(sorted(os.listdir('/data/modelcache/models/tiny')), flush=True); time.sleep(3600)"
SECURE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
KINDS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}
APPLY = {"client-side": ["apply"], "server-side": ["apply", "--server-side"]}


class Author:
    """Who wrote a workload, and applies it again and again."""

    def __init__(self, cluster: Cluster, namespace: str, how: str, kind: str = "Deployment", replicas: int = 0) -> None:
        self.cluster, self.namespace, self.how, self.kind = cluster, namespace, how, kind
        containers: list[Object] = [
            {
                "name": "app",
                "image": IMAGE,
                "command": ["python", "-c", SHOW],
                "env": [{"name": "OWN", "value": "1"}],
                "volumeMounts": [{"name": "own", "mountPath": "/own"}],
                "securityContext": SECURE,
            },
            {"name": "beside", "image": IMAGE, "command": ["sleep", "3600"], "securityContext": SECURE},
        ]
        security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
        pod: Object = {"containers": containers, "volumes": [{"name": "own", "emptyDir": {}}]}
        pod |= {"securityContext": security, "terminationGracePeriodSeconds": 0}
        template: Object = {"metadata": {"labels": {"app": "w"}, "annotations": {"own": "1"}}, "spec": pod}
        spec: Object = {"selector": {"matchLabels": {"app": "w"}}, "template": template, "replicas": replicas}
        if kind == "DaemonSet":
            del spec["replicas"]
        if kind == "StatefulSet":
            spec["serviceName"] = "w"
        if kind == "CronJob":
            pod["restartPolicy"] = "Never"
            spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
        metadata = {"name": "w", "namespace": namespace, "annotations": {ASKS: MODEL, "own": "1"}}
        self.manifest = {"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata, "spec": spec}

    def apply(self) -> str:
        return self.cluster.kubectl(*APPLY[self.how], "-f", "-", stdin=json.dumps(self.manifest))

    def live(self) -> Object:
        instance: Object = json.loads(
            self.cluster.kubectl("get", self.kind, "w", "--namespace", self.namespace, "--output", "json")
        )
        return instance

    def delivered(self) -> Object:
        """The workload, as soon as it has the model in every container."""
        return wait(f"{self.kind} {self.namespace}/w has its model", PATIENCE, self.live, has_models)

    def clean(self) -> Object:
        """The workload, as soon as it has nothing of ours any more."""
        return wait(f"{self.kind} {self.namespace}/w has nothing of ours", PATIENCE, self.live, is_clean)


def template(workload: Object) -> Object:
    spec: Object = workload["spec"]
    pod_template: Object = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]
    return pod_template


def has_models(workload: Object) -> bool:
    spec = template(workload)["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    has_env = all(
        any(one["name"] == "AI_MODELS_MODELS" for one in container.get("env", [])) for container in containers
    )
    paths = ([mount["mountPath"] for mount in container.get("volumeMounts", [])] for container in containers)
    return (
        has_env and all(f"{MODELS}/{MODEL}" in mount_paths for mount_paths in paths) and "schedulingGates" not in spec
    )


def is_clean(workload: Object) -> bool:
    annotations = workload["metadata"].get("annotations", {})
    text = json.dumps(template(workload))
    ours = any(name.startswith((f"{GROUP}/", "slipway.inference/")) for name in annotations)
    return not ours and not any(word in text for word in ("ai-models", "AI_MODELS", GROUP))


@pytest.fixture
def place(cluster: Cluster) -> Iterator[str]:
    """A namespace with a Model that is Ready."""
    # Only root can fill a claim on these clusters.
    name = cluster.namespace("delivery", restricted=False)
    source = {"url": "https://huggingface.co/acme/tiny"}
    metadata = {"name": MODEL, "namespace": name}
    model = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Model", "metadata": metadata, "spec": {"source": source}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(model))
    path = ("wait", f"models.{GROUP}/{MODEL}", "--namespace", name, "--for=jsonpath={.status.phase}=Ready")
    cluster.kubectl(*path, f"--timeout={int(PATIENCE)}s")
    yield name
    cluster.delete("Namespace", "", name)


def serves_policies(cluster: Cluster) -> bool:
    return "mutatingadmissionpolicies" in cluster.kubectl("api-resources", "--output", "name")


# What authors do next


def change_an_image(pod: Object, _manifest: Object) -> None:
    pod["containers"][0]["image"] = "slipway/test-engines:1"


def drop_a_container(pod: Object, _manifest: Object) -> None:
    pod["containers"].pop()


def drop_the_variables(pod: Object, _manifest: Object) -> None:
    del pod["containers"][0]["env"]


def drop_all_volumes(pod: Object, _manifest: Object) -> None:
    del pod["volumes"], pod["containers"][0]["volumeMounts"]


def add_a_container(pod: Object, _manifest: Object) -> None:
    pod["containers"].insert(0, {"name": "more", "image": IMAGE, "command": ["sleep", "1"], "securityContext": SECURE})


def add_an_init_container(pod: Object, _manifest: Object) -> None:
    pod["initContainers"] = [{"name": "first", "image": IMAGE, "command": ["true"], "securityContext": SECURE}]


def drop_annotations_of_the_template(_pod: Object, manifest: Object) -> None:
    del template(manifest)["metadata"]["annotations"]


CHANGES: list[Callable[[Object, Object], None]] = [
    change_an_image,
    drop_a_container,
    drop_the_variables,
    drop_all_volumes,
    add_a_container,
    add_an_init_container,
    drop_annotations_of_the_template,
]


@pytest.mark.parametrize("how", APPLY)
def test_authors_go_on_applying_and_the_models_stay(cluster: Cluster, place: str, how: str) -> None:
    author = Author(cluster, place, how)
    original = copy.deepcopy(author.manifest)
    author.apply()
    author.delivered()
    for change in CHANGES:
        if change is drop_all_volumes and how == "client-side" and not serves_policies(cluster):
            continue  # refused for the mounts of the other container: only a policy can put the volume back
        author.manifest = copy.deepcopy(original)
        change(template(author.manifest)["spec"], author.manifest)
        author.apply()
        author.delivered()
        rest(author)
        author.manifest = copy.deepcopy(original)
        author.apply()
        author.delivered()
    del author.manifest["metadata"]["annotations"][ASKS]
    author.apply()
    author.clean()
    wait("the claim is gone", PATIENCE, lambda: cluster.list("PersistentVolumeClaim", place), lambda claims: not claims)


def rest(author: Author) -> None:
    """An apply that changes nothing changes nothing, and is answered by nothing."""
    before = author.live()
    author.apply()
    holds("the spec stays", 3, lambda: author.live()["metadata"]["generation"] == before["metadata"]["generation"])


@pytest.mark.parametrize("how", APPLY)
def test_all_volumes_and_the_annotation_go_in_one_apply(cluster: Cluster, place: str, how: str) -> None:
    if how == "client-side" and not serves_policies(cluster):
        pytest.skip("refused where the API server has no policies that change objects")
    author = Author(cluster, place, how)
    author.apply()
    author.delivered()
    drop_all_volumes(template(author.manifest)["spec"], author.manifest)
    del author.manifest["metadata"]["annotations"][ASKS]
    author.apply()
    author.clean()


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_pods_start_with_their_model_and_never_without(cluster: Cluster, place: str, kind: str) -> None:
    author = Author(cluster, place, "client-side", kind, replicas=1)
    author.apply()
    author.delivered()

    def container_logs() -> list[str]:
        pods = cluster.list("Pod", place, labels="app=w")
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return [cluster.logs(place, pod["metadata"]["name"], "app") for pod in running]

    wait(
        "a pod shows the model's files", PATIENCE, container_logs, lambda logs: any("tiny.gguf" in log for log in logs)
    )
    if serves_policies(cluster):
        assert not any("FileNotFoundError" in log for log in container_logs())
    wait(
        "no pod waits behind the gate",
        PATIENCE,
        lambda: [pod for pod in cluster.list("Pod", place, labels="app=w") if pod["spec"].get("schedulingGates")],
        lambda gated_pods: not gated_pods,
    )


def test_a_cron_job_that_ran_too_early_runs_with_its_model(cluster: Cluster, place: str) -> None:
    author = Author(cluster, place, "client-side", "CronJob")
    author.apply()
    author.delivered()
    cluster.kubectl("create", "job", "now", "--from=cronjob/w", "--namespace", place)
    (pod,) = wait("the Job has a pod", PATIENCE, lambda: cluster.list("Pod", place, labels="job-name=now"))
    wait("it reads the model", PATIENCE, lambda: _log(cluster, place, pod), lambda log: "tiny.gguf" in log)


def _log(cluster: Cluster, namespace: str, pod: Object) -> str:
    try:
        return cluster.logs(namespace, pod["metadata"]["name"], "app")
    except AssertionError:
        return ""


def test_a_workload_without_a_model_waits_and_says_why(cluster: Cluster, namespace: str) -> None:
    author = Author(cluster, namespace, "client-side", replicas=1)
    author.apply()
    reason = f"{GROUP}/model-delivery-blocked-reason"
    workload = wait(
        "the workload shows the reason",
        PATIENCE,
        author.live,
        lambda seen: seen["metadata"]["annotations"].get(reason) == "ModelNotFound",
    )
    if serves_policies(cluster):
        assert template(workload)["spec"]["schedulingGates"] == [{"name": GATE}]
        pods: Callable[[], Any] = lambda: cluster.list("Pod", namespace, labels="app=w")  # noqa: E731
        wait("there is a pod", PATIENCE, pods)
        holds("it does not start", 5, lambda: all(pod["status"]["phase"] == "Pending" for pod in pods()))


def test_the_api_server_holds_the_controller_to_workloads_that_ask(
    cluster: Cluster, namespace: str, kubeconfig: str
) -> None:
    author = Author(cluster, namespace, "client-side")
    del author.manifest["metadata"]["annotations"][ASKS]
    author.apply()
    account = f"system:serviceaccount:{SYSTEM}:slipway-controller"
    patch = (
        "patch",
        "deployment",
        "w",
        "--namespace",
        namespace,
        "--type=merge",
        "--patch",
        '{"spec": {"paused": true}}',
    )
    with pytest.raises(AssertionError, match="may change workloads that ask for models"):
        cluster.kubectl(*patch, f"--as={account}")
    pod = {"name": "alone", "image": IMAGE, "command": ["sleep", "60"], "securityContext": SECURE}
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [pod], "securityContext": security, "terminationGracePeriodSeconds": 0}
    cluster.create({"kind": "Pod", "metadata": {"name": "alone", "namespace": namespace}, "spec": spec})
    with pytest.raises(DynamicApiError, match="may delete pods that wait for models"):
        Cluster(kubeconfig, "slipway-controller").delete("Pod", namespace, "alone")
