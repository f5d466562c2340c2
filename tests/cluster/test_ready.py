"""Tools that know nothing of the APIs wait for their resources, by kubectl as people have it.

Those of kinds that take longer to make are waited for where they are made: test_ome.py, test_deckhouse_delivery.py.
"""

from __future__ import annotations

from .cluster import SYSTEM, Cluster, Object, condition, observed, unique
from .kubeai import KubeAI
from .llmkube import LLMKube

ROUTER, POOL, QUOTA, ADAPTER = (
    f"{kind}.inference.llmkube.dev" for kind in ("ModelRouter", "ModelPool", "GPUQuota", "LoRAAdapter")
)


def test_a_model_of_krypton(cluster: Cluster, namespace: str) -> None:
    name = unique("ready")
    cluster.make_model(namespace, name)
    cluster.kubectl_wait(namespace, f"models.krypton.ai/{name}", "Ready")
    assert cluster.model(namespace, name)["status"]["readyReplicas"] == 1


def test_a_model_of_kubeai(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("ready")
    kubeai.make_model(free_namespace, name)
    kubeai.kubectl_wait(free_namespace, f"models.kubeai.org/{name}", "Ready")
    assert kubeai.model(free_namespace, name)["status"]["replicas"]["ready"] == 1


def test_a_model_that_sleeps(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("asleep")
    kubeai.make_model(free_namespace, name, minReplicas=0)
    kubeai.kubectl_wait(free_namespace, f"models.kubeai.org/{name}", "Ready")
    kubeai.kubectl_wait(free_namespace, f"models.kubeai.org/{name}", "Reconciling=False")
    assert condition(kubeai.model(free_namespace, name), "Available")["reason"] == "ScaledToZero"


def test_a_model_a_service_and_a_router_of_llmkube(llmkube: LLMKube, llmkube_namespace: str) -> None:
    weights, name = unique("weights"), unique("ready")
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.make_service(llmkube_namespace, name, weights)
    llmkube.kubectl_wait(llmkube_namespace, f"models.inference.llmkube.dev/{weights}", "Ready")
    llmkube.kubectl_wait(llmkube_namespace, f"inferenceservices.inference.llmkube.dev/{name}", "Ready")
    assert llmkube.model(llmkube_namespace, weights)["status"]["phase"] == "Ready"
    assert llmkube.service(llmkube_namespace, name)["status"]["readyReplicas"] == 1

    router, backend = unique("router"), {"name": "only", "inferenceServiceRef": {"name": name}}
    make(llmkube, ROUTER, llmkube_namespace, router, {"backends": [backend], "defaultRoute": "only"})
    llmkube.kubectl_wait(llmkube_namespace, f"modelrouters.inference.llmkube.dev/{router}", "Ready")
    assert llmkube.get(ROUTER, llmkube_namespace, router)["status"]["backends"][0]["healthy"]


def test_a_pool_of_llmkube_that_nobody_asked_yet(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name, pool = unique("member"), unique("pool")
    make(llmkube, POOL, llmkube_namespace, pool, {"members": [{"inferenceServiceRef": {"name": name}}]})
    llmkube.make_model(llmkube_namespace, "tiny")
    llmkube.make_service(llmkube_namespace, name, "tiny")
    llmkube.kubectl_wait(llmkube_namespace, f"modelpools.inference.llmkube.dev/{pool}", "Ready")
    assert llmkube.get(POOL, llmkube_namespace, pool)["status"]["phase"] == "Pending"


def test_a_quota_of_llmkube(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name = unique("quota")
    make(llmkube, QUOTA, SYSTEM, name, {"namespaceRef": llmkube_namespace, "gpuCount": 1})
    try:
        llmkube.kubectl_wait(SYSTEM, f"gpuquotas.inference.llmkube.dev/{name}", "Ready")
    finally:
        llmkube.delete(QUOTA, SYSTEM, name)


def test_an_adapter_of_llmkube_without_its_service(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name = unique("adapter")
    spec = {"inferenceServiceRef": {"name": "none"}, "name": "sql", "path": "/loras/sql"}
    make(llmkube, ADAPTER, llmkube_namespace, name, spec)
    llmkube.kubectl_wait(llmkube_namespace, f"loraadapters.inference.llmkube.dev/{name}", "Ready=False")


def make(llmkube: LLMKube, kind: str, namespace: str, name: str, spec: Object) -> None:
    llmkube.create({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})


def test_a_change_that_rolls_out(cluster: Cluster, namespace: str) -> None:
    name = unique("change")
    cluster.make_model(namespace, name)
    cluster.kubectl_wait(namespace, f"models.krypton.ai/{name}", "Ready")
    cluster.change_model(namespace, name, args=["--ctx-size", "512"])
    cluster.kubectl_wait(namespace, f"models.krypton.ai/{name}", "Reconciling=False")
    cluster.kubectl_wait(namespace, f"models.krypton.ai/{name}", "Stalled=False")
    model = cluster.model(namespace, name)
    assert observed(model)
    assert condition(model, "Progressing")["reason"] == "Complete"


def test_a_model_that_fails(cluster: Cluster, namespace: str) -> None:
    name = unique("stalled")
    cluster.make_model(namespace, name, image="registry.invalid/no/such:image")
    cluster.kubectl_wait(namespace, f"models.krypton.ai/{name}", "Stalled")
    model = cluster.model(namespace, name)
    assert condition(model, "Ready")["status"] == "False"
    assert condition(model, "Stalled")["reason"] == condition(model, "Available")["reason"] == "ImagePullBackOff"
