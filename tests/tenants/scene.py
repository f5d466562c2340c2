"""The scene: a hostile tenant, a second one, and what attacks need to act and to look."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.cluster.cluster import PATIENCE, Cluster, Object, condition, observed, wait
from tests.cluster.ome import JOBS, OME

from .second_tenant import SecondTenant

MALLORY = "mallory"
TOOL = "tool"
"""Pod of the hostile tenant that runs scripts."""
STORES = "test-stores"
"""Namespace of the servers that play the public internet: anybody may have a bucket or a web server there."""
PREFIX = "slipway.ome."
"""Of claims and volumes of OME's models."""


@dataclass(frozen=True)
class Scene:
    """``cluster`` acts as the operator, ``tenant`` as the hostile tenant's ServiceAccount, by its own token."""

    cluster: Cluster
    ome: OME
    tenant: Cluster
    home: str
    """Namespace of the hostile tenant: restricted, with the roles `edit` and `model-author`."""
    folders: str
    """Another one of these, for models on nodes."""
    slow: str
    """Another one of these, for loads that never end."""
    privileged: str
    """Namespace that admits all pods. There, the tenant is a model author only, so that the controller alone limits
    what pods have."""
    claim: str
    """By which a service of the tenant in ``home`` reads a model of the cluster."""
    second: SecondTenant
    gateway: str
    node: str
    enforced: bool
    """Whether the network of the cluster enforces NetworkPolicies."""
    accounts: dict[str, Cluster]
    """Those of Slipway, by their names."""

    # --- acting ------------------------------------------------------------------------------------------------------

    def create(self, kind: str, namespace: str, name: str, body: Object, **metadata: object) -> Object:
        """As the tenant."""
        return self.tenant.create(
            {"kind": kind, "metadata": {"name": name, "namespace": namespace, **metadata}, **body}
        )

    def make_base_model(self, namespace: str, name: str, source: str, **fields: object) -> Object:
        """As the tenant. A ``path`` is a field of the storage."""
        spec = {field: value for field, value in fields.items() if field.startswith("model")}
        storage = {"storageUri": source, **{field: value for field, value in fields.items() if field not in spec}}
        return self.create("BaseModel", namespace, name, {"spec": {"storage": storage, **spec}})

    def as_account(self, account: str) -> Cluster:
        """As one of Slipway's own accounts, whose token was stolen."""
        return self.accounts[account]

    def run_in_pod(self, script: str, *arguments: str) -> str:
        """What a Python script prints in a pod of the tenant. The attack fails if the script does."""
        return self.tenant.kubectl("exec", "--namespace", self.home, TOOL, "--", "python3", "-c", script, *arguments)

    # --- looking -----------------------------------------------------------------------------------------------------

    def decided(
        self, kind: str, namespace: str, name: str, reason: str = "", type_: str = "Accepted", as_operator: bool = False
    ) -> Object:
        """A resource once its newest spec has a verdict, with this reason if one is given."""
        reader = self.cluster if as_operator else self.tenant

        def look() -> Object:
            resource = reader.get(kind, namespace, name)
            assert resource, f"no {kind} {namespace}/{name}"
            return resource

        def good(resource: Object) -> bool:
            actual = condition(resource, type_)
            return observed(resource) and bool(actual) and reason in ("", actual.get("reason"))

        return wait(f"{kind} {name} has a verdict {type_} {reason}", PATIENCE, look, good)

    def gone(self, kind: str, namespace: str, name: str) -> None:
        """Deletes something of the tenant's, and waits for its end."""
        self.tenant.delete(kind, namespace, name)
        self.tenant.wait_gone(kind, namespace, name)

    def loads(self, namespace: str) -> list[Object]:
        """Jobs for BaseModels of a namespace that have not ended."""
        jobs = [job for job in self.cluster.list("Job", JOBS) if owner_of(job).namespace == namespace]
        return [job for job in jobs if not job["status"].get("succeeded") and not job["status"].get("failed")]

    def records(self, namespace: str) -> dict[str, str]:
        """The node's annotations about BaseModels of a namespace."""
        node = self.cluster.get("Node", "", self.node)
        assert node
        prefix = f"weights.slipway.inference/{namespace}.basemodel."
        annotations: dict[str, str] = node["metadata"].get("annotations", {})
        return {name: text for name, text in annotations.items() if name.startswith(prefix)}


class Owner(NamedTuple):
    """Of a Job in the operator's namespace; empty: it has none."""

    namespace: str = ""
    uid: str = ""


def owner_of(job: Object) -> Owner:
    """The BaseModel of a Job. Owner references do not reach another namespace, so an annotation names it."""
    words = job["metadata"].get("annotations", {}).get("slipway.inference/owner", "").split()
    return Owner(words[2].partition("/")[0], words[3]) if words[1:2] == ["BaseModel"] else Owner()


def token_kubeconfig(cluster: Cluster, namespace: str, account: str, path: Path) -> str:
    """A kubeconfig with a token of a ServiceAccount, as its pods have one."""
    token = cluster.kubectl("create", "token", account, "--namespace", namespace, "--duration", "3h").strip()
    document = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    path.write_text(yaml.safe_dump(document))
    return str(path)


def tool_pod(namespace: str) -> Object:
    """A pod that the restricted level admits, with a token for the depot, as a publisher has one."""
    token = {"serviceAccountToken": {"path": "token", "audience": "slipway-depot", "expirationSeconds": 7200}}
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    container: Object = {
        "name": TOOL,
        "image": "slipway/test-engines:1",
        "command": ["sleep", "86400"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "token", "mountPath": "/token"}],
    }
    spec = {
        "serviceAccountName": MALLORY,
        "containers": [container],
        "volumes": [{"name": "token", "projected": {"sources": [token]}}],
        "securityContext": security,
        "terminationGracePeriodSeconds": 0,
    }
    return {"kind": "Pod", "metadata": {"name": TOOL, "namespace": namespace}, "spec": spec}


def restarts(cluster: Cluster, namespace: str) -> dict[str, int]:
    """Of every container of pods that do not end by themselves. A pod that was replaced is a restart, too."""
    counts = {}
    for pod in cluster.list("Pod", namespace):
        if any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", [])):
            continue
        for status in pod["status"].get("containerStatuses", []):
            counts[f"{pod['metadata']['name']}/{pod['metadata']['uid']}/{status['name']}"] = status["restartCount"]
    return counts


def wait_running(cluster: Cluster, namespace: str, name: str) -> Object:
    pod = wait(
        f"{name} runs",
        PATIENCE,
        lambda: cluster.get("Pod", namespace, name),
        lambda seen: bool(seen) and (seen or {})["status"].get("phase") == "Running",
    )
    assert pod
    return pod
