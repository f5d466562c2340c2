"""A Model from its creation to its end, with the real engine."""

from __future__ import annotations

import re

from .cluster import PATIENCE, PODS, Cluster, container, owners, unique, wait
from .load import Load

OWNED = ["--host", "0.0.0.0", "--port", "9000", "--hf-repo", "acme/tiny", "--hf-file", "tiny.gguf", "--alias"]


def test_a_model_becomes_its_documented_children(cluster: Cluster, namespace: str) -> None:
    name = unique("children")
    model = cluster.make_model(namespace, name, port=9000, args=["--ctx-size", "512"])
    cluster.wait_ready(namespace, name)
    children = cluster.children(namespace, name)
    owner = ("Model", model["metadata"]["uid"], True)
    assert {kind: list(owners(child)) for kind, child in children.items()} == {
        "Deployment": [owner],
        "Service": [owner],
        "ServiceAccount": [owner],
    }
    engine = container(children["Deployment"])
    assert engine["name"] == "llama-server"
    assert engine["args"] == [*OWNED, name, "--ctx-size", "512"]
    assert children["Deployment"]["spec"]["selector"] == {"matchLabels": {PODS: name}}
    port = children["Service"]["spec"]["ports"][0]
    assert (port["name"], port["port"]) == ("http", 9000)
    assert children["ServiceAccount"]["automountServiceAccountToken"] is False


def test_the_status_describes_a_ready_model(cluster: Cluster, namespace: str) -> None:
    name = unique("status")
    cluster.make_model(namespace, name)
    status = cluster.wait_ready(namespace, name)["status"]
    assert status["url"] == f"http://{name}.{namespace}.svc:8080/v1"
    assert (status["phase"], status["replicas"], status["readyReplicas"]) == ("Ready", 1, 1)
    seen = {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}
    assert seen == {
        "Accepted": ("True", "Valid"),
        "Available": ("True", "Ready"),
        "Progressing": ("False", "Complete"),
        "Routed": ("True", "Routed"),
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Complete"),
        "Stalled": ("False", "AsExpected"),
    }
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", condition["lastTransitionTime"])
        for condition in status["conditions"]
    )


def test_kubectl_shows_models_by_their_short_name(cluster: Cluster, namespace: str) -> None:
    name = unique("columns")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    lines = [
        line
        for line in cluster.kubectl("get", "mdl.krypton.ai", "-A").splitlines()
        if line.startswith(("NAMESPACE", namespace))
    ]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert rows[0] == ["NAMESPACE", "NAME", "RUNTIME", "SOURCE", "PHASE", "REPLICAS", "AGE", "STATE", "MODEL ID"]
    assert rows[1][:-3] == [namespace, name, "llama.cpp", "acme/tiny", "Ready", "1"]
    assert rows[1][-2:] == ["Ready", name]
    wide = cluster.kubectl("get", "mdl.krypton.ai", "--namespace", namespace, "--output", "wide")
    assert f"http://{name}.{namespace}.svc:8080/v1" in wide
    assert "CHANGE" in wide
    assert "Complete" in wide


def test_changed_args_roll_out_without_a_lost_request(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("change")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    before = {pod["metadata"]["name"] for pod in cluster.pods(namespace, name)}
    with Load(gateway_url, name) as load:
        cluster.change_model(namespace, name, args=["--ctx-size", "1024"])
        cluster.wait_ready(namespace, name)
        pods = cluster.pods(namespace, name)
        assert before.isdisjoint(pod["metadata"]["name"] for pod in pods)
        assert all(pod["spec"]["containers"][0]["args"][-2:] == ["--ctx-size", "1024"] for pod in pods)
        load.more(20)
    assert load.failures == []


def test_replicas_follow_the_spec_and_churn_loses_no_request(
    cluster: Cluster, namespace: str, gateway_url: str
) -> None:
    name = unique("scale")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    with Load(gateway_url, name) as load:
        cluster.change_model(namespace, name, minReplicas=3)
        assert cluster.wait_ready(namespace, name)["status"]["readyReplicas"] == 3
        for pod in cluster.pods(namespace, name)[:2]:
            cluster.delete("Pod", namespace, pod["metadata"]["name"])
            load.more(10)
        cluster.wait_ready(namespace, name)
        cluster.change_model(namespace, name, minReplicas=1)
        assert cluster.wait_ready(namespace, name)["status"]["readyReplicas"] == 1
        load.more(20)
    assert load.failures == []


def test_a_deleted_model_takes_its_children_along(cluster: Cluster, namespace: str) -> None:
    name = unique("delete")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    cluster.delete("Model", namespace, name)
    cluster.wait_gone("Model", namespace, name)
    wait("the children are gone", PATIENCE, lambda: cluster.children(namespace, name), lambda children: not children)
    wait("the pods are gone", PATIENCE, lambda: cluster.list("Pod", namespace, f"{PODS}={name}"), lambda pods: not pods)


def test_a_model_with_a_service_account_of_its_own_gets_none(cluster: Cluster, namespace: str) -> None:
    name = unique("account")
    cluster.create({"kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": namespace}})
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    cluster.change_model(namespace, name, serviceAccountName="mine")
    cluster.wait_ready(namespace, name)
    assert {pod["spec"]["serviceAccountName"] for pod in cluster.pods(namespace, name)} == {"mine"}
    cluster.wait_gone("ServiceAccount", namespace, name)


def test_the_finalizer_of_the_original_does_not_keep_a_model(cluster: Cluster, namespace: str) -> None:
    name = unique("finalizer")
    cluster.make_model(namespace, name, args=["--ctx-size", "512"])
    cluster.patch("Model", namespace, name, {"metadata": {"finalizers": ["krypton.ai/cleanup"]}})
    cluster.delete("Model", namespace, name)
    cluster.wait_gone("Model", namespace, name)
