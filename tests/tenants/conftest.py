"""Fixtures: both tenants on a cluster where engines take requests of the gateway only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.dynamic.exceptions import DynamicApiError

from tests.cluster.cluster import PATIENCE, Cluster, Object, site, wait
from tests.cluster.fixtures import cluster, kubeai, llmkube, ome
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube
from tests.cluster.ome import OME

from .clients import REACH_SCRIPT
from .folders import BUCKET, bucket
from .freedoms import PRIVILEGED, privileged_runtime
from .scene import MALLORY, STORES, TOOL, Scene, token_kubeconfig, tool_pod, wait_running
from .second_tenant import SecondTenant

__all__ = ["cluster", "kubeai", "llmkube", "ome"]
ROOT = Path(__file__).parents[2]
AUTHOR = ROOT / "roles/models/files/model-author.yml"
ACCOUNTS = ("slipway-controller", "slipway-gateway", "slipway-depot")
SCALED_OBJECTS = ROOT / "tests/cluster/manifests/keda/scaledobjects.yaml"


@pytest.fixture(scope="module")
def guarded() -> Iterator[None]:
    """The setting of docs/explain/security.md for shared clusters."""
    site("--extra-vars", "controller_model_network_policies=true")
    yield
    site()


@pytest.fixture(scope="module")
def second(
    guarded: None, cluster: Cluster, kubeai: KubeAI, llmkube: LLMKube, ome: OME, gateway_url: str
) -> Iterator[SecondTenant]:
    namespace = cluster.namespace("bank", restricted=False)
    tenant = SecondTenant(cluster, kubeai, llmkube, ome, gateway_url, namespace)
    tenant.set_up()
    yield tenant
    tenant.tear_down()


@pytest.fixture(scope="module")
def scene(
    cluster: Cluster, ome: OME, second: SecondTenant, gateway_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    home = cluster.namespace("mallory")
    folders, slow = (cluster.namespace(f"mallory-{name}", restricted=False) for name in ("folders", "slow"))
    for namespace in (folders, slow):
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        cluster.patch("Namespace", "", namespace, {"metadata": {"labels": labels}})
    _make_account(cluster, home, {home: ("edit", "model-author"), folders: ("model-author",), slow: ("model-author",)})
    kubeconfig = token_kubeconfig(cluster, home, MALLORY, tmp_path_factory.mktemp("mallory") / "kubeconfig")
    tenant = Cluster(kubeconfig)
    wait("the tenant has its rights", PATIENCE, lambda: _has_rights(tenant, home))
    tenant.create(tool_pod(home))
    keys = {"AWS_ACCESS_KEY_ID": "mallory", "AWS_SECRET_ACCESS_KEY": "mallory"}
    keys |= {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": BUCKET}
    # A Secret of the tenant, who may only write models in this namespace.
    cluster.create({"kind": "Secret", "metadata": {"name": "bucket", "namespace": folders}, "stringData": keys})
    for body in bucket():
        cluster.create(body)
    definition = yaml.safe_load(SCALED_OBJECTS.read_text())
    cluster.create(definition)
    _make_vault(cluster, second.namespace)
    enforced = _is_enforced(cluster, tenant, home)
    accounts = {name: Cluster(cluster.kubeconfig, name) for name in ACCOUNTS}
    prepared = Scene(cluster, ome, tenant, home, folders, slow, second, gateway_url, ome.nodes()[0], enforced, accounts)
    privileged_runtime(prepared)
    model = {"kind": "Model.inference.llmkube.dev", "metadata": {"name": "code", "namespace": folders}}
    tenant.create({**model, "spec": {"source": "hf://acme/tiny/tiny.gguf"}})
    yield prepared
    cluster.delete("CustomResourceDefinition", "", definition["metadata"]["name"])
    ome.delete("ClusterServingRuntime", "", PRIVILEGED)
    for body in reversed(bucket()):
        cluster.delete(body["kind"], STORES, "mallory")
    for namespace in (folders, slow, home):
        for base in cluster.list("BaseModel", namespace):
            cluster.delete("BaseModel", namespace, base["metadata"]["name"])
    for namespace in (folders, slow, home):
        _wait_empty(cluster, namespace)
        cluster.delete("Namespace", "", namespace)


def _wait_empty(cluster: Cluster, namespace: str) -> None:
    """Later, no Job can run there that removes files of the nodes."""
    wait("no BaseModel is left", PATIENCE, lambda: cluster.list("BaseModel", namespace), lambda models: not models)


def _make_account(cluster: Cluster, home: str, roles: dict[str, tuple[str, ...]]) -> None:
    author = yaml.safe_load(AUTHOR.read_text())
    cluster.create({"kind": "ServiceAccount", "metadata": {"name": MALLORY, "namespace": home}})
    cluster.kubectl("apply", "--filename", str(AUTHOR))
    assert author["metadata"]["name"] == "model-author"
    for namespace, names in roles.items():
        for role in names:
            cluster.kubectl(
                *("create", "rolebinding", f"mallory-{role}", "--namespace", namespace),
                *("--clusterrole", role, "--serviceaccount", f"{home}:{MALLORY}"),
            )


def _has_rights(tenant: Cluster, namespace: str) -> bool:
    try:
        tenant.list("BaseModel", namespace)
        tenant.list("ServiceAccount", namespace)
    except DynamicApiError:
        return False
    return True


def _make_vault(cluster: Cluster, namespace: str) -> None:
    """What the second tenant made without Slipway."""
    place = {"name": "vault", "namespace": namespace}
    labels = {"app": "vault"}
    container = {"name": "c", "image": "example.com/never:1"}
    template: Object = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    cluster.create({"kind": "Deployment", "metadata": place, "spec": spec})
    cluster.create({"kind": "ServiceAccount", "metadata": place})
    cluster.create({"kind": "ConfigMap", "metadata": place, "data": {"x": "y"}})


def _is_enforced(cluster: Cluster, tenant: Cluster, home: str) -> bool:
    """Whether the network enforces policies: one closes a pod of the tenant that answers without it."""
    cluster.kubectl("wait", "--namespace", home, f"pod/{TOOL}", "--for=condition=Ready", f"--timeout={int(PATIENCE)}s")
    pod = tool_pod(home)
    pod["metadata"] = {"name": "probed", "namespace": home, "labels": {"app": "probed"}}
    pod["spec"]["containers"][0]["command"] = ["python3", "-m", "http.server", "8000"]
    tenant.create(pod)
    address = f"http://{wait_running(tenant, home, 'probed')['status']['podIP']}:8000/"

    def reached() -> str:
        command = ("exec", "--namespace", home, TOOL, "--", "python3", "-c", REACH_SCRIPT, "GET", address, "")
        return tenant.kubectl(*command).strip()

    wait("the pod answers", PATIENCE, reached, lambda answer: answer == "200")
    spec = {"podSelector": {"matchLabels": {"app": "probed"}}, "policyTypes": ["Ingress"]}
    tenant.create({"kind": "NetworkPolicy", "metadata": {"name": "probed", "namespace": home}, "spec": spec})
    try:
        # A network that enforces policies does so within seconds.
        return any(reached() == "unreachable" for _attempt in range(5))
    finally:
        tenant.delete("NetworkPolicy", home, "probed")
        tenant.delete("Pod", home, "probed")
