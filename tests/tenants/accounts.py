"""S5 and 13: the tenant uses rights that it does not have, and the tokens of Slipway's own accounts as if it had stolen
them."""

from __future__ import annotations

from tests.cluster.cluster import SYSTEM, Object

from .campaign import Attack
from .proofs import require_no_right, require_policy
from .scene import Scene
from .second_tenant import DECKHOUSE, PASSWORD

MADE_BY_OTHERS = "was made by someone else"
FORMS: list[tuple[str, object]] = [
    ("merge-patch+json", {}),
    ("merge-patch+json", {"metadata": {"labels": 5}}),
    ("strategic-merge-patch+json", {"metadata": {"creationTimestamp": "x"}}),
    ("json-patch+json", [{"op": "test", "path": "/data/password", "value": "guessed"}]),
    ("apply-patch+yaml", {"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"x": "y"}}}),
]
"""Patches whose answer shows the whole object to an account that may patch it."""


def _vault(scene: Scene) -> str:
    return f"/api/v1/namespaces/{scene.second.namespace}/secrets/vault"


def read_another_tenants_secret(scene: Scene, _turn: int) -> None:
    require_no_right(scene.tenant.send("GET", _vault(scene), None), "get", "secrets", PASSWORD)
    for form, body in FORMS:
        answer = scene.tenant.send("PATCH", f"{_vault(scene)}?dryRun=All", body, f"application/{form}")
        require_no_right(answer, "patch", "secrets", PASSWORD)


def patch_secrets_as_the_controller(scene: Scene, _turn: int) -> None:
    controller = scene.as_account("slipway-controller")
    for dry in ("", "&dryRun=All"):
        for form, body in FORMS:
            path = f"{_vault(scene)}?fieldManager=mallory{dry}"
            require_no_right(controller.send("PATCH", path, body, f"application/{form}"), "patch", "secrets", PASSWORD)


def replace_secrets_as_the_controller(scene: Scene, _turn: int) -> None:
    controller = scene.as_account("slipway-controller")
    metadata = {"name": "vault", "labels": {"app.kubernetes.io/managed-by": "slipway"}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}
    for query in ("", "?dryRun=All"):
        answer = controller.send("PUT", _vault(scene) + query, body)
        require_policy(answer, "slipway-controller-secrets", MADE_BY_OTHERS, PASSWORD)


def take_a_token_of_the_controller(scene: Scene, _turn: int) -> None:
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/slipway-controller/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    require_no_right(scene.tenant.send("POST", path, body), "create", "serviceaccounts/token")
    for name in ("slipway-controller-signing", "slipway-depot-token", "slipway-depot-key"):
        answer = scene.tenant.send("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/{name}", None)
        require_no_right(answer, "get", "secrets")


def change_workloads_as_the_controller(scene: Scene, _turn: int) -> None:
    """A Deployment and a ServiceAccount that the second tenant made by itself."""
    controller, namespace = scene.as_account("slipway-controller"), scene.second.namespace
    change = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "slipway"}}}
    places = {
        f"/apis/apps/v1/namespaces/{namespace}/deployments/vault": "slipway-controller-owned-workloads",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/vault": "slipway-controller-owned-objects",
        f"/api/v1/namespaces/{namespace}/configmaps/vault": "slipway-controller-owned-configmaps",
    }
    for path, policy in places.items():
        answer = controller.send("PATCH", path, change, "application/merge-patch+json")
        require_policy(answer, policy, MADE_BY_OTHERS)
        require_policy(controller.send("DELETE", path, {}), policy, MADE_BY_OTHERS)


def change_pods_as_the_controller(scene: Scene, _turn: int) -> None:
    controller, namespace = scene.as_account("slipway-controller"), scene.second.namespace
    pod = scene.cluster.pods(namespace, f"{scene.second.name}-krypton")[0]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    containers = [{"name": pod["spec"]["containers"][0]["name"], "image": "mallory/forged:1"}]
    changes: list[tuple[Object, str]] = [
        ({"spec": {"containers": containers}}, "nothing of their spec"),
        ({"metadata": {"annotations": {"note": "x"}}}, "not their annotations"),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "payments"}}}, "and no others"),
    ]
    for change, message in changes:
        answer = controller.send("PATCH", path, change, "application/strategic-merge-patch+json")
        require_policy(answer, "slipway-controller-pods", message)
    require_policy(controller.send("DELETE", path, {}), "slipway-controller-owned-pods", "may delete pods that wait")


def change_nodes_as_the_controller(scene: Scene, _turn: int) -> None:
    controller = scene.as_account("slipway-controller")
    changes: list[tuple[Object, str]] = [
        ({"spec": {"unschedulable": True}}, "not change their spec"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": None}}}, "in labels that begin with"),
        ({"metadata": {"annotations": {"note": "x"}}}, "in annotations that begin with"),
    ]
    for change, message in changes:
        answer = controller.send("PATCH", f"/api/v1/nodes/{scene.node}", change, "application/merge-patch+json")
        require_policy(answer, "slipway-controller-nodes", message)


def put_models_to_sleep_as_the_gateway(scene: Scene, _turn: int) -> None:
    """A model that answers, and the controller itself."""
    gateway, namespace = scene.as_account("slipway-gateway"), scene.second.namespace
    for place, name in ((namespace, f"{scene.second.name}-krypton"), (SYSTEM, "slipway-controller")):
        path = f"/apis/apps/v1/namespaces/{place}/deployments/{name}/scale"
        require_no_right(gateway.send("GET", path, None), "get", "deployments/scale")
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 0}}
        require_no_right(gateway.send("PUT", path, body), "update", "deployments/scale")


def change_models_as_the_depot(scene: Scene, _turn: int) -> None:
    depot = scene.as_account("slipway-depot")
    path = f"/apis/ai.deckhouse.io/v1alpha1/namespaces/{scene.second.namespace}/models/{scene.second.name}"
    changes: list[tuple[Object, str]] = [
        ({"metadata": {"finalizers": None}}, "not their finalizers"),
        ({"metadata": {"annotations": {"slipway.inference/publication": "x"}}}, "and no others"),
    ]
    for change, message in changes:
        answer = depot.send("PATCH", path, change, "application/merge-patch+json")
        require_policy(answer, "slipway-depot-annotations", message)
    require_no_right(depot.send("DELETE", path, {}), "delete", "models")


def change_another_tenants_models(scene: Scene, _turn: int) -> None:
    """Also what only the operator writes."""
    namespace, name = scene.second.namespace, scene.second.name
    places = {
        f"/apis/krypton.ai/v1alpha1/namespaces/{namespace}/models/{name}-krypton": "models",
        f"/apis/ome.io/v1beta1/namespaces/{namespace}/basemodels/{name}": "basemodels",
        f"/apis/ai.deckhouse.io/v1alpha1/namespaces/{namespace}/models/{name}": "models",
        f"/apis/ome.io/v1beta1/clusterbasemodels/{scene.second.cluster_model}": "clusterbasemodels",
        f"/apis/ome.io/v1beta1/clusterservingruntimes/{scene.second.runtime}": "clusterservingruntimes",
    }
    for path, resource in places.items():
        change = {"metadata": {"finalizers": None}}
        require_no_right(scene.tenant.send("PATCH", path, change, "application/merge-patch+json"), "patch", resource)
        require_no_right(scene.tenant.send("DELETE", path, {}), "delete", resource)
    assert scene.cluster.get(DECKHOUSE, namespace, name)


ATTACKS: list[Attack[Scene]] = [
    Attack("S5", read_another_tenants_secret),
    Attack("S5", patch_secrets_as_the_controller),
    Attack("S5", replace_secrets_as_the_controller),
    Attack("13", take_a_token_of_the_controller),
    Attack("13", change_workloads_as_the_controller),
    Attack("13", change_pods_as_the_controller),
    Attack("13", change_nodes_as_the_controller),
    Attack("13", put_models_to_sleep_as_the_gateway),
    Attack("13", change_models_as_the_depot),
    Attack("13", change_another_tenants_models),
]
