"""The controller limited to namespaces, run against an API server: rights there, nowhere else, and none that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import documents

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

SYSTEM = "slipway-system"
OWN = {("Role", SYSTEM, "slipway-controller"), ("RoleBinding", SYSTEM, "slipway-controller")}
RIGHTS = {"Role", "RoleBinding"}
OF_THE_CLUSTER = {
    f"{plural}{part}"
    for plural in (
        *("clusterbasemodels", "clusterservingruntimes", "finetunedweights"),
        *("clustermodels", "modelcatalogsources"),
    )
    for part in ("", "/status", "/finalizers")
}
"""Kinds of OME and Deckhouse without a namespace."""


@pytest.fixture
def api(api: ClusterApi) -> ClusterApi:
    for name in ("team-a", "team-b", "team-c"):
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return api


def install(folder: Path, api: ClusterApi, *namespaces: str, failing: bool = False, flags: tuple[str, ...] = ()) -> str:
    """Output of a play that installs the controller for these namespaces, in one line."""
    chosen: Any = {"controller_namespaces": [*namespaces], "controller_wait_timeout": 10}
    return run_role(folder, api, "controller", "main", *flags, failing=failing, **chosen)


def rights(api: ClusterApi) -> set[tuple[str, str, str]]:
    return {key for key in api.objects if key[0] in RIGHTS}


def tenants(*namespaces: str) -> set[tuple[str, str, str]]:
    return {(kind, name, "slipway-controller-tenant") for kind in RIGHTS for name in namespaces}


def granted(api: ClusterApi, kind: str, namespace: str, name: str) -> set[str]:
    """Resources that a role gives any right to."""
    return {one for rule in api.objects[kind, namespace, name]["rules"] for one in rule["resources"]}


def test_rights_are_where_they_are_asked_for_and_follow_the_list(tmp_path: Path, api: ClusterApi) -> None:
    install(tmp_path, api, "team-a", "team-b")
    assert rights(api) == OWN | tenants("team-a", "team-b")
    assert (
        granted(api, "ClusterRole", "", "slipway-controller")
        == {"namespaces", "nodes", "persistentvolumes", "priorityclasses"} | OF_THE_CLUSTER
    )
    assert {"deployments", "models", "pods"} <= granted(api, "Role", "team-a", "slipway-controller-tenant")
    binding = api.objects["RoleBinding", "team-b", "slipway-controller-tenant"]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "slipway-controller-tenant",
    }
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "slipway-controller", "namespace": SYSTEM}]
    owned = ("objects", "claims", "configmaps", "events", "jobs", "workloads", "pods", "scales")
    volumes = ("volumes", "volumes-made", "claims", "mounts")
    policies = (
        *("pods", "nodes", "secrets"),
        *(f"owned-{name}" for name in owned),
        *(f"volumes-{name}" for name in volumes),
    )
    held = {f"slipway-controller-{policy}" for policy in policies}
    assert {name for kind, _none, name in api.objects if kind == "ValidatingAdmissionPolicyBinding"} == held
    settings = documents.load(api.objects["ConfigMap", SYSTEM, "slipway-controller"]["data"]["controller.yaml"])
    assert settings["namespaces"] == ["team-a", "team-b"]

    api.writes.clear()
    assert "changed=0" in install(tmp_path, api, "team-b", "team-a")
    assert api.writes == []

    elsewhere = {"slipway.inference/system-namespace": "another", "app.kubernetes.io/name": "slipway-controller"}
    of_another = {"name": "slipway-controller-tenant", "namespace": "team-c", "labels": elsewhere}
    api.put({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": of_another})
    kept = ("Role", "team-c", "slipway-controller-tenant")
    install(tmp_path, api, "team-b", flags=("--check",))
    assert rights(api) == OWN | tenants("team-a", "team-b") | {kept}
    install(tmp_path, api, "team-b")
    assert rights(api) == OWN | tenants("team-b") | {kept}

    run_role(tmp_path, api, "controller", "uninstall", controller_wait_timeout=10)
    assert rights(api) == {kept}
    assert not [key for key in api.objects if key[0].startswith("ValidatingAdmission")]
    assert not [key for key in api.objects if key[0].startswith("ClusterRole")]


def test_a_namespace_that_is_not_there_ends_the_play_by_its_name_before_anything_is_written(
    tmp_path: Path, api: ClusterApi
) -> None:
    output = install(tmp_path, api, "team-a", "team-x", "team-y", failing=True)
    assert "namespaces that do not exist: team-x, team-y. Create them, or remove them from the list." in output
    assert api.writes == []
