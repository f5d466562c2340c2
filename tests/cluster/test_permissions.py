"""What our own pods may do, and that everything we start meets the restricted Pod Security level."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest
from kubernetes.dynamic.exceptions import DynamicApiError, ForbiddenError

from .cluster import PATIENCE, PODS, SYSTEM, Cluster, Object, unique, wait
from .rights import CONTROLLER, CONTROLLER_ONLY, FORBIDDEN, GATEWAY, allowed

ADAPTERS = {"adapter.kubeai.org/wiki", "adapter.slipway.inference/wiki"}
"""Labels of a pod that serves an adapter."""


@pytest.mark.parametrize("account", ["slipway-controller", "slipway-gateway", "slipway-hub", "slipway-depot"])
def test_no_account_of_ours_may_do_what_it_does_not_need(cluster: Cluster, account: str) -> None:
    rights = FORBIDDEN + (CONTROLLER_ONLY if account != "slipway-controller" else [])
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
    secrets = sorted(row[2:] for row in rows if row[0].startswith("secrets"))
    assert secrets == [["[]", "[create", "update]"], ["[slipway-controller-signing]", "[get]"]]


LEAKS: list[tuple[str, object]] = [
    ("merge-patch", {}),
    ("merge-patch", {"metadata": {"labels": 5}}),
    ("strategic-merge-patch", {"metadata": {"creationTimestamp": "x"}}),
    ("json-patch", []),
    ("json-patch", [{"op": "add", "path": "/metadata/creationTimestamp", "value": "x"}]),
    ("json-patch", [{"op": "copy", "from": "/data/password", "path": "/metadata/generateName"}]),
    ("json-patch", [{"op": "test", "path": "/data/password", "value": "guessed"}]),
    ("apply-patch", {"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"x": "y"}}}),
]
"""Patches whose answer, with the right to patch, has the object, also where an admission policy refuses them."""


@pytest.mark.parametrize("dry", ["", "&dryRun=All"], ids=["", "dry"])
@pytest.mark.parametrize(("form", "body"), LEAKS)
def test_no_patch_shows_the_controllers_account_a_secret(
    cluster: Cluster, a_secret: str, form: str, body: object, dry: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    end = "+yaml" if form == "apply-patch" else "+json"
    status, text = controller.send("PATCH", f"{a_secret}?fieldManager=test{dry}", body, f"application/{form}{end}")
    assert status == 403
    assert not [shown for shown in PASSWORD if shown in text]


OURS: Object = {
    "labels": {"app.kubernetes.io/managed-by": "slipway"},
    "ownerReferences": [
        {"apiVersion": "ai.deckhouse.io/v0", "kind": "Model", "name": "m", "uid": "1", "controller": True}
    ],
}
"""Its owner has a version that nothing serves, so that the garbage collector does not find that it is gone."""


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
@pytest.mark.parametrize("metadata", [{}, OURS, {"uid": "x"}, {"resourceVersion": "1"}, {"labels": {"x": "/"}}])
def test_the_controllers_account_may_not_replace_a_strangers_secret(
    cluster: Cluster, a_secret: str, metadata: Object, query: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bank", **metadata}, "data": {}}
    status, text = controller.send("PUT", a_secret + query, body)
    assert status in (403, 409, 422)
    assert not [shown for shown in PASSWORD if shown in text]
    assert PASSWORD[0] in cluster.send("GET", a_secret, None)[1]


def test_the_controllers_account_may_replace_the_secret_that_it_made_for_the_same_owner(
    cluster: Cluster, a_secret: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    place, _unused, _name = a_secret.rpartition("/")
    body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", **OURS}, "data": {"a": "eA=="}}
    assert controller.send("POST", place, body)[0] == 201
    assert controller.send("PUT", f"{place}/mine", {**body, "data": {"a": "eQ=="}})[0] == 200
    successor = [{**OURS["ownerReferences"][0], "uid": "2"}]
    later = {**body, "metadata": {**body["metadata"], "ownerReferences": successor}}
    status, text = controller.send("PUT", f"{place}/mine", later)
    assert (status, "is of an owner that is gone" in text) == (403, True)
    for lost in OURS:
        less = {field: value for field, value in body["metadata"].items() if field != lost}
        status, text = controller.send("PUT", f"{place}/mine", {**body, "metadata": less})
        assert (status, "was made by someone else" in text) == (403, True)


PASSWORD = ("aHVudGVyMi9zZWNyZXQ=", "hunter2/secret")


@pytest.fixture(scope="module")
def a_secret(cluster: Cluster) -> Iterator[str]:
    """The path of a stranger's Secret."""
    namespace = cluster.namespace()
    metadata = {"name": "bank", "namespace": namespace}
    cluster.create({"kind": "Secret", "metadata": metadata, "data": {"password": PASSWORD[0]}})
    yield f"/api/v1/namespaces/{namespace}/secrets/bank"
    cluster.delete("Namespace", "", namespace)


EITHER: tuple[Object, Object] = ({}, OURS)
"""Something strange, and something that the controller made."""
MODEL: Object = {"apiVersion": "krypton.ai/v0", "kind": "Model", "name": "m", "uid": "1", "controller": True}
MINE: list[Object] = [{"labels": OURS["labels"]}, {"ownerReferences": [MODEL]}]
"""What the controller made, and what the original controller made for a Model."""
STRANGE: list[Object] = [
    {},
    {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"app.kubernetes.io/managed-by": "slipway"}},
    {"ownerReferences": [{**MODEL, "controller": False}, {**MODEL, "apiVersion": "example.com/v1"}]},
    {"ownerReferences": [{**MODEL, "apiVersion": "krypton.ai.example.com/v1"}]},
]
CHANGED: dict[str, Object] = {
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "ServiceAccount": {},
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "ConfigMap": {},
    "Deployment": {"spec": {"replicas": 0}},
    "Job": {"spec": {"suspend": True}},
    "NetworkPolicy": {"spec": {"podSelector": {"matchLabels": {"never": "such"}}}},
    "PodDisruptionBudget": {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"never": "such"}}}},
    "HorizontalPodAutoscaler": {
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}
    },
    "Role": {"rules": []},
    "RoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}, "subjects": []},
}
"""Kinds of which the controller may change and delete objects."""


def an_object(kind: str, namespace: str, metadata: Object) -> Object:
    body: Object = copy.deepcopy(
        {"kind": kind, "metadata": {"name": unique("of"), "namespace": namespace}, **CHANGED[kind]}
    )
    body["metadata"] |= metadata
    container = {"name": "c", "image": "example.com/never:1"}
    template: Object = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    if kind == "Job":
        body["spec"]["template"] = template
    if kind == "Deployment":
        template["spec"] = {"containers": [container]}
        body["spec"] |= {"template": template, "selector": {"matchLabels": {"a": "b"}}}
    return body


@pytest.mark.parametrize("kind", CHANGED)
def test_the_controllers_account_may_neither_change_nor_delete_what_is_not_its_own(
    cluster: Cluster, strange_namespace: str, kind: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    for metadata in STRANGE:
        original = cluster.create(an_object(kind, strange_namespace, metadata))
        name = original["metadata"]["name"]
        for change in (
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": "slipway"}}},
            {"metadata": {"annotations": {"note": "x"}}},
            {"metadata": {"ownerReferences": [MODEL]}},
        ):
            with pytest.raises(DynamicApiError, match="this was made by someone else"):
                controller.patch(kind, strange_namespace, name, change)
        with pytest.raises(DynamicApiError, match="this was made by someone else"):
            controller.delete(kind, strange_namespace, name)
        actual = cluster.get(kind, strange_namespace, name)
        assert actual
        assert actual["metadata"].get("labels") == original["metadata"].get("labels")


@pytest.mark.parametrize("kind", CHANGED)
def test_the_controllers_account_changes_and_deletes_its_own_and_what_it_takes_over(
    cluster: Cluster, strange_namespace: str, kind: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    for metadata in MINE:
        name = cluster.create(an_object(kind, strange_namespace, metadata))["metadata"]["name"]
        controller.patch(kind, strange_namespace, name, {"metadata": {"annotations": {"note": "x"}}})
        controller.delete(kind, strange_namespace, name)


def test_the_controllers_account_may_note_on_a_claim_of_others_which_models_lie_there(
    cluster: Cluster, strange_namespace: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    kind = "PersistentVolumeClaim"
    name = cluster.create(an_object(kind, strange_namespace, {}))["metadata"]["name"]
    for record in ("models.kubeai.org/m", "inference.llmkube.dev/abc"):
        controller.patch(kind, strange_namespace, name, {"metadata": {"annotations": {record: "x"}}})
        controller.patch(kind, strange_namespace, name, {"metadata": {"annotations": {record: None}}})
        both = {"annotations": {record: "x"}, "labels": {"more": "x"}}
        with pytest.raises(DynamicApiError, match="what claims say of models that lie there"):
            controller.patch(kind, strange_namespace, name, {"metadata": both})


@pytest.mark.parametrize("name", ["slipway-controller", "slipway-gateway"])
def test_no_account_may_change_events_of_others(cluster: Cluster, strange_namespace: str, name: str) -> None:
    account = Cluster(cluster.kubeconfig, name)
    about = {"kind": "Pod", "namespace": strange_namespace, "name": "x"}
    for component, allowed_ in (("kubelet", False), ("", False), (name, True)):
        metadata = {"name": unique("event"), "namespace": strange_namespace}
        event: Object = {"kind": "Event", "metadata": metadata, "involvedObject": about}
        cluster.create({**event, "source": {"component": component}})
        change = {"count": 2}
        if allowed_:
            account.patch("Event", strange_namespace, metadata["name"], change)
            continue
        with pytest.raises(DynamicApiError, match="this was made by someone else"):
            account.patch("Event", strange_namespace, metadata["name"], change)


def scaled(account: Cluster, place: str, replicas: int) -> tuple[int, str]:
    """The answer to an account that sets a scale as the gateway does. A conflict makes it read the scale again."""

    def read_and_write() -> tuple[int, str]:
        status, text = account.send("GET", f"{place}/scale", None)
        if status != 200:
            return status, text
        return account.send("PUT", f"{place}/scale", {**json.loads(text), "spec": {"replicas": replicas}})

    return wait("a write without a conflict", PATIENCE, read_and_write, lambda answer: answer[0] != 409)


def let_the_gateway_wake(cluster: Cluster, namespace: str, name: str) -> None:
    """By the controller, which may grant no more than it has."""
    controller, group = Cluster(cluster.kubeconfig, "slipway-controller"), "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": [name]}
    head = {"name": name, "namespace": namespace, "labels": OURS["labels"]}
    controller.create({"kind": "Role", "metadata": head, "rules": [{**rule, "verbs": ["get", "update"]}]})
    role = {"apiGroup": group, "kind": "Role", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": "slipway-gateway", "namespace": SYSTEM}]
    controller.create({"kind": "RoleBinding", "metadata": head, "roleRef": role, "subjects": subjects})


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (1, 2), (3, 0)])
def test_the_gateways_account_may_only_wake_what_the_controller_names(
    cluster: Cluster, strange_namespace: str, before: int, after: int
) -> None:
    gateway, places = Cluster(cluster.kubeconfig, "slipway-gateway"), []
    for metadata in EITHER:
        body = an_object("Deployment", strange_namespace, metadata)
        body["spec"]["replicas"] = before
        name = cluster.create(body)["metadata"]["name"]
        places.append(f"/apis/apps/v1/namespaces/{strange_namespace}/deployments/{name}")
    let_the_gateway_wake(cluster, strange_namespace, name)
    for replicas in (after, 1):
        assert scaled(gateway, places[0], replicas)[0] == 403
    status, text = wait("the gateway reads it", PATIENCE, lambda: scaled(gateway, places[1], after), has_rights)
    assert (status, "from zero to one" in text) == (403, True)
    if before == 0:
        assert scaled(gateway, places[1], 1)[0] == 200


def has_rights(answer: tuple[int, str]) -> bool:
    """Whether the API server knows of a new RoleBinding."""
    return "cannot get resource" not in answer[1]


def test_the_gateways_account_may_wake_models_and_put_none_to_sleep(cluster: Cluster, strange_namespace: str) -> None:
    gateway, name = Cluster(cluster.kubeconfig, "slipway-gateway"), unique("m")
    metadata = {"name": name, "namespace": strange_namespace}
    spec = {"url": "hf://acme/tiny", "features": ["TextGeneration"], "engine": "VLLM", "minReplicas": 0}
    cluster.create({"kind": "Model.kubeai.org", "metadata": metadata, "spec": {**spec, "replicas": 0}})
    place = f"/apis/kubeai.org/v1/namespaces/{strange_namespace}/models/{name}"
    assert [scaled(gateway, place, replicas)[0] for replicas in (2, 1, 0)] == [403, 200, 403]


def test_the_controllers_account_may_use_no_scale_of_a_workload(cluster: Cluster, strange_namespace: str) -> None:
    """It changes the replicas in the workload itself."""
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    for metadata in EITHER:
        name = cluster.create(an_object("Deployment", strange_namespace, metadata))["metadata"]["name"]
        status, text = scaled(controller, f"/apis/apps/v1/namespaces/{strange_namespace}/deployments/{name}", 1)
        assert (status, "in the workloads themselves" in text) == (403, True)
    controller.patch("Deployment", strange_namespace, name, {"spec": {"replicas": 1}})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metadata": {"labels": {"x": "y"}}}, "not their labels"),
        ({"metadata": {"finalizers": ["example.com/stays"]}}, "not their finalizers"),
        ({"metadata": {"ownerReferences": [MODEL]}}, "not their ownerReferences"),
        ({"metadata": {"annotations": {"note": "x"}}}, "and no others"),
        ({"metadata": {"annotations": {"kept": None}}}, "and no others"),
        (
            {"metadata": {"annotations": {"slipway.inference/upload": "x", "slipway.inference/publication": "x"}}},
            "and no",
        ),
    ],
)
def test_the_depots_account_may_change_nothing_of_a_model_but_its_annotations(
    cluster: Cluster, strange_namespace: str, change: Object, expected: str
) -> None:
    depot, kind = Cluster(cluster.kubeconfig, "slipway-depot"), "Model.ai.deckhouse.io"
    metadata = {"name": unique("m"), "namespace": strange_namespace, "annotations": {"kept": "x"}}
    cluster.create({"kind": kind, "metadata": metadata, "spec": {"source": {"upload": {}}}})
    with pytest.raises(DynamicApiError, match=f"The depot may change its annotations of models.*{expected}"):
        depot.patch(kind, strange_namespace, metadata["name"], change)
    for name in ("upload", "uploaded", "vanished"):
        for text in ("x", None):
            body = {"metadata": {"annotations": {f"slipway.inference/{name}": text}}}
            depot.patch(kind, strange_namespace, metadata["name"], body)


@pytest.fixture(scope="module")
def strange_namespace(cluster: Cluster) -> Iterator[str]:
    namespace = cluster.namespace(restricted=False)
    cluster.create({"kind": "Role", "metadata": {"name": "x", "namespace": namespace}, "rules": []})
    yield namespace
    cluster.delete("Namespace", "", namespace)


HOLDER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "uid": "1"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spec": {"activeDeadlineSeconds": 1}}, "nothing of their spec"),
        ({"metadata": {"annotations": {"note": "x"}}}, "not their annotations"),
        ({"metadata": {"finalizers": ["attacker.example/holds"]}}, "not their finalizers"),
        ({"metadata": {"ownerReferences": [HOLDER]}}, "not their ownerReferences"),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "payments"}}}, "and no others"),
        ({"metadata": {"labels": {PODS: None}}}, "and no others"),
        ({"metadata": {"labels": {"more": "x", "adapter.kubeai.org/wiki": "1"}}}, "and no others"),
    ],
)
def test_the_controllers_account_may_change_nothing_else_of_a_pod(
    cluster: Cluster, a_pod: Object, change: Object, expected: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    with pytest.raises(ForbiddenError, match=f"The controller may change labels of pods.*{expected}"):
        controller.patch("Pod", a_pod["metadata"]["namespace"], "waits", change)
    pod = cluster.get("Pod", a_pod["metadata"]["namespace"], "waits")
    assert pod
    assert (pod["metadata"]["labels"], pod["spec"]) == (a_pod["metadata"]["labels"], a_pod["spec"])


def test_the_controllers_account_may_not_change_a_pods_image(cluster: Cluster, a_pod: Object) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    containers = [{**container, "image": "attacker.example/image:1"} for container in a_pod["spec"]["containers"]]
    with pytest.raises(ForbiddenError, match="nothing of their spec"):
        controller.patch("Pod", a_pod["metadata"]["namespace"], "waits", {"spec": {"containers": containers}})


def test_the_controllers_account_may_label_a_pod_with_its_adapters(cluster: Cluster, a_pod: Object) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    namespace, name = a_pod["metadata"]["namespace"], a_pod["metadata"]["name"]
    controller.patch("Pod", namespace, name, {"metadata": {"labels": dict.fromkeys(ADAPTERS, "1")}})
    pod = cluster.get("Pod", namespace, name)
    assert pod
    assert pod["metadata"]["labels"].keys() >= ADAPTERS
    controller.patch("Pod", namespace, name, {"metadata": {"labels": dict.fromkeys(ADAPTERS)}})
    pod = cluster.get("Pod", namespace, name)
    assert pod
    assert pod["metadata"]["labels"] == a_pod["metadata"]["labels"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spec": {"unschedulable": True}}, "not change their spec"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": None}}}, "in labels that begin with"),
        ({"metadata": {"labels": {"tests.slipway.inference/mine": "x"}}}, "in labels that begin with"),
        ({"metadata": {"annotations": {"note": "x"}}}, "in annotations that begin with"),
        ({"metadata": {"finalizers": ["attacker.example/holds"]}}, "not change their finalizers"),
    ],
)
def test_the_controllers_account_may_change_nothing_else_of_a_node(
    cluster: Cluster, change: Object, expected: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    before = a_node(cluster)
    with pytest.raises(ForbiddenError, match=f"The controller may record the models of nodes, but.*{expected}"):
        controller.patch("Node", "", before["metadata"]["name"], change)
    after = a_node(cluster)
    # The controller labels nodes at the same time, so compare only the fields in the change.
    for part, fields in change.items():
        for field, value in fields.items():
            old, new = before[part].get(field), after[part].get(field)
            names = value if isinstance(value, dict) else ()
            assert [(new or {}).get(name) for name in names] == [(old or {}).get(name) for name in names]
            assert isinstance(value, dict) or new == old


def a_node(cluster: Cluster) -> Object:
    """The node that no test creates or removes."""
    return cluster.list("Node", labels="node-role.kubernetes.io/control-plane")[0]


def test_the_controllers_account_may_say_which_models_a_node_has(cluster: Cluster) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    node = a_node(cluster)
    label, annotation = "models.ome.io/tests.basemodel.mine", "weights.slipway.inference/tests.basemodel.mine"
    for text in ("Ready", None):
        body = {"metadata": {"labels": {label: text}, "annotations": {annotation: text}}}
        controller.patch("Node", "", node["metadata"]["name"], body)
        live_node = cluster.get("Node", "", node["metadata"]["name"])
        assert live_node
        assert live_node["metadata"]["labels"].get(label) == text
        assert live_node["metadata"]["annotations"].get(annotation) == text


GOOD: Object = {
    "accessModes": ["ReadOnlyMany"],
    "capacity": {"storage": "1Mi"},
    "claimRef": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "slipway.ome.test",
        "uid": "00000000-0000-0000-0000-000000000000",
    },
    "local": {"path": "/mnt/models/x"},
    "nodeAffinity": {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "weights.slipway.inference/x", "operator": "Exists"}]}]
        }
    },
    "persistentVolumeReclaimPolicy": "Retain",
    "storageClassName": "",
}
"""A volume of the controller's kind."""
ANY_NODE: Object = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"local": {"path": "/etc"}}, "node directories for models"),
        ({"local": None, "hostPath": {"path": "/mnt/models/x"}}, "node directories for models"),
        ({"accessModes": ["ReadWriteOnce"]}, "read-only"),
        ({"claimRef": {**GOOD["claimRef"], "name": "data"}}, "its own claims"),
        ({"claimRef": {**GOOD["claimRef"], "uid": None}}, "its own claims"),
        ({"nodeAffinity": {"required": ANY_NODE}}, "for the nodes that record the model"),
        ({"persistentVolumeReclaimPolicy": "Delete"}, "keep their files"),
    ],
)
def test_the_controllers_account_may_make_volumes_of_models_only(
    cluster: Cluster, change: Object, expected: str
) -> None:
    controller = Cluster(cluster.kubeconfig, "slipway-controller")
    metadata = {"name": "slipway.ome.test", "labels": {"app.kubernetes.io/managed-by": "slipway"}}
    volume: Object = {"kind": "PersistentVolume", "metadata": metadata, "spec": GOOD}
    spec = {field: value for field, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(DynamicApiError, match=expected):
        controller.create({**volume, "spec": spec})
    controller.create(volume)
    with pytest.raises(DynamicApiError, match="may not change the spec"):
        controller.patch("PersistentVolume", "", "slipway.ome.test", {"spec": {"mountOptions": ["rw"]}})
    controller.delete("PersistentVolume", "", "slipway.ome.test")
    cluster.wait_gone("PersistentVolume", "", "slipway.ome.test")


def test_the_controllers_account_neither_changes_nor_deletes_volumes_of_others(cluster: Cluster) -> None:
    """Not even one that is called like those of models."""
    controller, name = Cluster(cluster.kubeconfig, "slipway-controller"), "slipway.ome.others"
    spec = GOOD | {"claimRef": {**GOOD["claimRef"], "name": name}}
    cluster.create({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    ours = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "slipway"}}}
    with pytest.raises(DynamicApiError, match="made by someone else"):
        controller.patch("PersistentVolume", "", name, ours)
    with pytest.raises(DynamicApiError, match="made by someone else"):
        controller.delete("PersistentVolume", "", name)
    cluster.delete("PersistentVolume", "", name)
    cluster.wait_gone("PersistentVolume", "", name)


def test_others_change_pods_as_before(cluster: Cluster, a_pod: Object) -> None:
    namespace, name = a_pod["metadata"]["namespace"], a_pod["metadata"]["name"]
    changed = cluster.patch("Pod", namespace, name, {"metadata": {"annotations": {"note": "x"}}})
    assert changed["metadata"]["annotations"]["note"] == "x"
    cluster.patch("Pod", namespace, name, {"metadata": {"annotations": {"note": None}}})


@pytest.fixture(scope="module")
def a_pod(cluster: Cluster) -> Iterator[Object]:
    """A pod that no node can run."""
    namespace = cluster.namespace(restricted=False)
    container = {"name": "server", "image": "example.com/never:1"}
    metadata = {"name": "waits", "namespace": namespace, "labels": {PODS: "m"}}
    spec = {"containers": [container], "nodeSelector": {"none": "such"}}
    pod = cluster.create({"kind": "Pod", "metadata": metadata, "spec": spec})
    yield pod
    cluster.delete("Namespace", "", namespace)


def test_our_namespace_enforces_the_restricted_level(cluster: Cluster) -> None:
    namespace = cluster.get("Namespace", "", SYSTEM)
    assert namespace
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    # The level does not prevent any pod from starting.
    wait(
        "our pods run",
        PATIENCE,
        lambda: [pod["status"]["phase"] for pod in cluster.list("Pod", SYSTEM, "app.kubernetes.io/part-of=slipway")],
        lambda phases: set(phases) - {"Succeeded"} == {"Running"},
    )


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
    return [
        mount["mountPath"] for container in pod["spec"]["containers"] for mount in container.get("volumeMounts", [])
    ]
