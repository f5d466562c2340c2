"""What our own pods may do, and that everything we start meets the restricted Pod Security level."""

from __future__ import annotations

import pytest

from .cluster import SYSTEM, Cluster, Object, unique

NOBODY = [
    ("get", "", "secrets"),
    ("list", "", "secrets"),
    ("create", "", "pods"),
    ("create", "", "pods/exec"),
    ("delete", "", "pods"),
    ("get", "", "pods/log"),
    ("create", "", "serviceaccounts/token"),
    ("impersonate", "", "users"),
    ("delete", "", "namespaces"),
    ("patch", "", "nodes"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("update", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "krypton.ai", "models"),
    ("delete", "krypton.ai", "models"),
]
NO_OBJECTS = [
    ("get", "", "configmaps"),
    ("create", "batch", "jobs"),
    ("patch", "", "persistentvolumeclaims"),
    ("list", "", "nodes"),
]
"""What only the controller needs: for files of models, for caches, and to see which accelerators there are."""
CONTROLLER = [
    ("watch", "krypton.ai", "models"),
    ("patch", "krypton.ai", "models/status"),
    ("create", "apps", "deployments"),
    ("delete", "apps", "deployments"),
    ("patch", "", "services"),
    ("create", "", "serviceaccounts"),
    ("list", "", "pods"),
    *NO_OBJECTS,
    ("patch", "kubeai.org", "models/scale"),
]
GATEWAY = [("watch", "", "services"), ("watch", "discovery.k8s.io", "endpointslices")]


def allowed(cluster: Cluster, account: str, verb: str, group: str, resource: str) -> bool:
    resource, _slash, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": "default",
    }
    review = {
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": f"system:serviceaccount:{SYSTEM}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    answer: bool = cluster.create(review)["status"]["allowed"]
    return answer


@pytest.mark.parametrize("account", ["slipway-controller", "slipway-gateway", "slipway-hub"])
def test_no_account_of_ours_may_do_what_it_does_not_need(cluster: Cluster, account: str) -> None:
    rights = NOBODY + (NO_OBJECTS if account != "slipway-controller" else [])
    assert [right for right in rights if allowed(cluster, account, *right)] == []


@pytest.mark.parametrize(("account", "rights"), [("slipway-controller", CONTROLLER), ("slipway-gateway", GATEWAY)])
def test_each_account_may_do_its_work(cluster: Cluster, account: str, rights: list[tuple[str, str, str]]) -> None:
    assert [right for right in rights if not allowed(cluster, account, *right)] == []


def test_the_gateway_may_change_no_workload(cluster: Cluster) -> None:
    writes = [(verb, "apps", "deployments") for verb in ("create", "patch", "delete")] + [("patch", "", "services")]
    assert [right for right in writes if allowed(cluster, "slipway-gateway", *right)] == []


def test_no_rule_of_ours_has_a_wildcard(cluster: Cluster) -> None:
    account = f"--as=system:serviceaccount:{SYSTEM}:slipway-controller"
    listing = cluster.kubectl("auth", "can-i", "--list", "--namespace", SYSTEM, account)
    rows = [line.split() for line in listing.splitlines()[1:]]
    assert [row for row in rows if row[0].startswith("*") or "[*]" in row] == []
    assert not any(row[0].startswith("secrets") for row in rows)


def test_our_namespace_enforces_the_restricted_level(cluster: Cluster) -> None:
    found = cluster.get("Namespace", "", SYSTEM)
    assert found
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {pod["status"]["phase"] for pod in cluster.list("Pod", SYSTEM)} == {"Running"}


def test_a_models_pods_meet_the_restricted_level(cluster: Cluster, namespace: str) -> None:
    name = unique("restricted")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    for pod in cluster.pods(namespace, name):
        # The same pod once more, by hand: the API server says on standard error what the level is violated by.
        again = {"metadata": {"name": "again", "namespace": namespace}, "spec": without_node(pod["spec"])}
        assert cluster.create({"kind": "Pod", **again})
        assert not [mount for mount in mounts(pod) if "serviceaccount" in mount], "an engine needs no token"


def without_node(spec: Object) -> Object:
    return {field: value for field, value in spec.items() if field != "nodeName"}


def mounts(pod: Object) -> list[str]:
    return [mount["mountPath"] for found in pod["spec"]["containers"] for mount in found.get("volumeMounts", [])]
