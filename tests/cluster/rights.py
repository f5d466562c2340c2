"""Permissions that Slipway's service accounts must have, and must not have."""

from __future__ import annotations

from .cluster import SYSTEM, Cluster

FORBIDDEN = [
    ("get", "", "secrets"),
    ("list", "", "secrets"),
    ("watch", "", "secrets"),
    ("patch", "", "secrets"),  # the answer to a faulty patch shows the whole object
    ("delete", "", "secrets"),
    ("deletecollection", "", "secrets"),
    ("create", "", "pods"),
    ("create", "", "pods/exec"),
    ("get", "", "pods/log"),
    ("create", "", "serviceaccounts/token"),
    ("impersonate", "", "users"),
    ("list", "", "configmaps"),
    ("watch", "", "configmaps"),
    ("delete", "", "namespaces"),
    ("update", "", "nodes"),
    ("delete", "", "nodes"),
    ("escalate", "rbac.authorization.k8s.io", "roles"),
    ("bind", "rbac.authorization.k8s.io", "roles"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("update", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "krypton.ai", "models"),
    ("delete", "krypton.ai", "models"),
    ("create", "ome.io", "clusterbasemodels"),
    ("delete", "ome.io", "clusterservingruntimes"),
]
"""Permissions that no account of Slipway has."""
CONTROLLER_ONLY = [
    ("create", "", "secrets"),
    ("update", "", "secrets"),
    ("delete", "", "pods"),
    ("patch", "apps", "statefulsets"),
    ("get", "", "configmaps"),
    ("create", "batch", "jobs"),
    ("patch", "", "persistentvolumeclaims"),
    ("create", "", "persistentvolumes"),
    ("list", "", "nodes"),
    ("patch", "", "nodes"),
    ("list", "", "namespaces"),
    ("create", "rbac.authorization.k8s.io", "roles"),
]
"""Permissions that only the controller has. It needs them for model files, caches, accelerator discovery, quotas, node
labels, volumes of models, router roles, upload addresses and workloads that receive models."""
CONTROLLER = [
    ("watch", "krypton.ai", "models"),
    ("patch", "krypton.ai", "models/status"),
    ("create", "apps", "deployments"),
    ("delete", "apps", "deployments"),
    ("patch", "", "services"),
    ("create", "", "serviceaccounts"),
    ("delete", "networking.k8s.io", "networkpolicies"),
    ("list", "", "pods"),
    *CONTROLLER_ONLY,
    ("patch", "kubeai.org", "models/scale"),
    ("patch", "ome.io", "clusterbasemodels"),
    ("patch", "ome.io", "inferenceservices/status"),
    ("update", "apps", "deployments/scale"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
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
