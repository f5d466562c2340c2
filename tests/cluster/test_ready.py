"""Tools that know nothing of the APIs wait for their resources, by kubectl as people have it."""

from __future__ import annotations

from .cluster import Cluster, condition, observed, unique
from .kubeai import KubeAI
from .llmkube import LLMKube

SECONDS = 110
"""Less than kubectl is given to end."""


def wait_for(cluster: Cluster, namespace: str, resource: str, what: str) -> None:
    """``what``: such as ``Ready``, or ``Stalled=False``."""
    cluster.kubectl("wait", "--namespace", namespace, resource, f"--for=condition={what}", f"--timeout={SECONDS}s")


def test_a_model_of_krypton(cluster: Cluster, namespace: str) -> None:
    name = unique("ready")
    cluster.make_model(namespace, name)
    wait_for(cluster, namespace, f"models.krypton.ai/{name}", "Ready")
    assert cluster.model(namespace, name)["status"]["readyReplicas"] == 1


def test_a_model_of_kubeai(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("ready")
    kubeai.make_model(free_namespace, name)
    wait_for(kubeai, free_namespace, f"models.kubeai.org/{name}", "Ready")
    assert kubeai.model(free_namespace, name)["status"]["replicas"]["ready"] == 1


def test_a_model_that_sleeps(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("asleep")
    kubeai.make_model(free_namespace, name, minReplicas=0)
    wait_for(kubeai, free_namespace, f"models.kubeai.org/{name}", "Ready")
    wait_for(kubeai, free_namespace, f"models.kubeai.org/{name}", "Reconciling=False")
    assert condition(kubeai.model(free_namespace, name), "Available")["reason"] == "ScaledToZero"


def test_a_model_and_a_service_of_llmkube(llmkube: LLMKube, llmkube_namespace: str) -> None:
    weights, name = unique("weights"), unique("ready")
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.make_service(llmkube_namespace, name, weights)
    wait_for(llmkube, llmkube_namespace, f"models.inference.llmkube.dev/{weights}", "Ready")
    wait_for(llmkube, llmkube_namespace, f"inferenceservices.inference.llmkube.dev/{name}", "Ready")
    assert llmkube.model(llmkube_namespace, weights)["status"]["phase"] == "Ready"
    assert llmkube.service(llmkube_namespace, name)["status"]["readyReplicas"] == 1


def test_a_change_that_rolls_out(cluster: Cluster, namespace: str) -> None:
    name = unique("change")
    cluster.make_model(namespace, name)
    wait_for(cluster, namespace, f"models.krypton.ai/{name}", "Ready")
    cluster.change_model(namespace, name, args=["--ctx-size", "512"])
    wait_for(cluster, namespace, f"models.krypton.ai/{name}", "Reconciling=False")
    wait_for(cluster, namespace, f"models.krypton.ai/{name}", "Stalled=False")
    model = cluster.model(namespace, name)
    assert observed(model)
    assert condition(model, "Progressing")["reason"] == "Complete"


def test_a_model_that_fails(cluster: Cluster, namespace: str) -> None:
    name = unique("stalled")
    cluster.make_model(namespace, name, image="registry.invalid/no/such:image")
    wait_for(cluster, namespace, f"models.krypton.ai/{name}", "Stalled")
    model = cluster.model(namespace, name)
    assert condition(model, "Ready")["status"] == "False"
    assert condition(model, "Stalled")["reason"] == condition(model, "Available")["reason"] == "ImagePullBackOff"
