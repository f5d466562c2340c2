"""Fixtures: both tenants on a cluster where engines take requests of the gateway only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from kubernetes.dynamic.exceptions import DynamicApiError

from tests.cluster.cluster import PATIENCE, TOKEN, Cluster, Object, site, wait
from tests.cluster.fixtures import cluster, kubeai, llmkube, ome
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube
from tests.cluster.ome import JOBS, OME, SERVICE

from .clients import REACH_SCRIPT
from .folders import BUCKET, bucket
from .freedoms import PRIVILEGED, privileged_runtime
from .scene import MALLORY, PREFIX, STORES, TOOL, Scene, token_kubeconfig, tool_pod, wait_running
from .second_tenant import SecondTenant
from .volumes import HUB, OPERATORS

__all__ = ["cluster", "kubeai", "llmkube", "ome"]
ROOT = Path(__file__).parents[2]
AUTHOR = ROOT / "roles/models/files/model-author.yml"
ACCOUNTS = ("slipway-controller", "slipway-gateway", "slipway-depot")
ROLES = ("edit", "model-author")
"""Of the hostile tenant."""
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
    _enforce(cluster, namespace, "baseline")
    tenant = SecondTenant(cluster, kubeai, llmkube, ome, gateway_url, namespace)
    tenant.set_up()
    yield tenant
    tenant.tear_down()


@pytest.fixture(scope="module")
def scene(
    cluster: Cluster, ome: OME, second: SecondTenant, gateway_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    home, folders, slow = (cluster.namespace(name) for name in ("mallory", "mallory-folders", "mallory-slow"))
    privileged = cluster.namespace("mallory-privileged", restricted=False)
    _enforce(cluster, privileged, "privileged")
    _make_account(cluster, home, {home: ROLES, folders: ROLES, slow: ROLES, privileged: ("model-author",)})
    kubeconfig = token_kubeconfig(cluster, home, MALLORY, tmp_path_factory.mktemp("mallory") / "kubeconfig")
    tenant = Cluster(kubeconfig)
    for namespace in (home, folders, slow):
        wait(f"the tenant has its rights in {namespace}", PATIENCE, partial(_has_rights, tenant, namespace))
    tenant.create(tool_pod(home))
    secrets = _secrets_of_loads(folders, second.namespace)
    for name, data in secrets.items():
        cluster.create({"kind": "Secret", "metadata": {"name": name, "namespace": JOBS}, "stringData": data})
    for body in bucket():
        cluster.create(body)
    definition = yaml.safe_load(SCALED_OBJECTS.read_text())
    cluster.create(definition)
    _make_vault(cluster, second.namespace)
    enforced = _is_enforced(cluster, tenant, home)
    prepared = Scene(
        cluster=cluster,
        ome=ome,
        tenant=tenant,
        home=home,
        folders=folders,
        slow=slow,
        privileged=privileged,
        claim=_read_a_model(tenant, ome, home, second),
        second=second,
        gateway=gateway_url,
        node=ome.nodes()[0],
        enforced=enforced,
        accounts={name: Cluster(cluster.kubeconfig, name) for name in ACCOUNTS},
    )
    privileged_runtime(prepared)
    model = {"kind": "Model.inference.llmkube.dev", "metadata": {"name": "code", "namespace": privileged}}
    tenant.create({**model, "spec": {"source": "hf://acme/tiny/tiny.gguf"}})
    yield prepared
    cluster.delete("CustomResourceDefinition", "", definition["metadata"]["name"])
    ome.delete("ClusterServingRuntime", "", PRIVILEGED)
    for body in reversed(bucket()):
        cluster.delete(body["kind"], STORES, "mallory")
    for namespace in (folders, slow, privileged, home):
        cluster.delete("Namespace", "", namespace)
    for namespace in (folders, slow, privileged, home):
        _wait_empty(cluster, namespace)
    for name in secrets:
        cluster.delete("Secret", JOBS, name)


def _wait_empty(cluster: Cluster, namespace: str) -> None:
    """Its models are removed from the nodes, although the namespace is being deleted."""
    wait("no BaseModel is left", PATIENCE, lambda: cluster.list("BaseModel", namespace), lambda models: not models)


def _enforce(cluster: Cluster, namespace: str, level: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    cluster.patch("Namespace", "", namespace, {"metadata": {"labels": labels}})


def _secrets_of_loads(hostile: str, second: str) -> dict[str, dict[str, str]]:
    """What the operator has in the namespace of the loads: for a bucket of the hostile tenant, for the second tenant's
    models, and for models of the cluster."""
    keys = {"AWS_ACCESS_KEY_ID": "mallory", "AWS_SECRET_ACCESS_KEY": "mallory"}
    keys |= {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": BUCKET}
    return {f"{hostile}.bucket": keys, f"{second}.{HUB}": {"token": TOKEN}, OPERATORS: {"token": TOKEN}}


def _read_a_model(tenant: Cluster, ome: OME, namespace: str, second: SecondTenant) -> str:
    """The claim by which a service of the tenant reads a model of the cluster."""
    model, runtime = {"name": second.cluster_model}, {"name": second.runtime}
    spec = {"model": model, "runtime": runtime, "engine": {"minReplicas": 1, "maxReplicas": 1}}
    tenant.create({"kind": SERVICE, "metadata": {"name": "reads", "namespace": namespace}, "spec": spec})
    ome.wait_serving(namespace, "reads")
    claims = [one["metadata"]["name"] for one in tenant.list("PersistentVolumeClaim", namespace)]
    [claim] = [name for name in claims if name.startswith(PREFIX)]
    return str(claim)


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
