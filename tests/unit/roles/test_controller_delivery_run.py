"""The gate of workloads that ask for models, run against an API server: there where it can be, gone with the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.delivery.users import DELIVERED
from slipway.apis.deckhouse.delivery.workloads import MODELS_VARIABLE, OURS

from .cluster_api import KINDS, ClusterApi, Kind
from .rendering import Rendered
from .role_run import run_role

BETA, STABLE = "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1"
GATES = {
    (kind, "", f"slipway-controller-delivery-{name}")
    for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    for name in ("workloads", "cronjobs")
}


def served(version: str) -> tuple[Kind, ...]:
    return (
        Kind(version, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False),
        Kind(version, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", namespaced=False),
    )


def install(folder: Path, api: ClusterApi, entry: str = "main", **given: Any) -> str:
    chosen = {"controller_apis": ["deckhouse"], "controller_wait_timeout": 10, **given}
    return run_role(folder, api, "controller", entry, **chosen)


def gates(api: ClusterApi) -> set[tuple[str, str, str]]:
    return {key for key in api.objects if key[0].startswith("MutatingAdmission")}


def limits(api: ClusterApi) -> set[str]:
    return {name for kind, _namespace, name in api.objects if kind.startswith("ValidatingAdmissionPolicy")}


@pytest.mark.plays
def test_an_api_server_without_such_policies_is_reported_and_gets_none(tmp_path: Path, api: ClusterApi) -> None:
    output = install(tmp_path, api)
    assert "This API server has no MutatingAdmissionPolicy" in output
    assert gates(api) == set()


@pytest.mark.plays
def test_the_gate_comes_with_the_api_and_goes_with_it(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds = KINDS + served(BETA)
    assert "has no MutatingAdmissionPolicy" not in install(tmp_path, api)
    assert gates(api) == GATES
    assert {api.objects[gate]["apiVersion"] for gate in GATES} == {BETA}
    install(tmp_path, api, controller_apis=["krypton"])
    assert gates(api) == set()


@pytest.mark.plays
def test_the_gate_goes_with_the_controller(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds = KINDS + served(STABLE)
    install(tmp_path, api)
    assert {api.objects[gate]["apiVersion"] for gate in GATES} == {STABLE}
    assert limits(api)
    install(tmp_path, api, "uninstall")
    assert gates(api) == set()
    assert limits(api) == set()


def rendered(**given: Any) -> list[dict[str, Any]]:
    policies = {"results": [{"item": STABLE, "api_found": True}, {"item": BETA, "api_found": True}]}
    role = Rendered("controller", controller_apis=["deckhouse"], __controller_delivery_policies=policies, **given)
    objects: list[dict[str, Any]] = role["__controller_delivery_policy_objects"]
    return objects


def test_the_policies_speak_of_what_the_controller_writes() -> None:
    policies = [one for one in rendered() if one["kind"] == "MutatingAdmissionPolicy"]
    assert {one["apiVersion"] for one in policies} == {STABLE}
    for policy in policies:
        spec = policy["spec"]
        (asks,) = spec["matchConditions"]
        for name in (names.USES_MODEL, names.USES_CLUSTER_MODEL, DELIVERED):
            assert f'"{name}"' in asks["expression"]
        variables = {one["name"]: one["expression"] for one in spec["variables"]}
        assert f'"{MODELS_VARIABLE}"' in variables["delivered"]
        assert all(f'"{name}"' in variables["lost"] for name in OURS.volumes)
        gate, volumes = spec["mutations"]
        assert f'"{names.GATE}"' in gate["applyConfiguration"]["expression"]
        assert (spec["failurePolicy"], volumes["patchType"]) == ("Fail", "JSONPatch")
    kinds = {
        resource for one in policies for resource in one["spec"]["matchConstraints"]["resourceRules"][0]["resources"]
    }
    assert kinds == {"deployments", "statefulsets", "daemonsets", "cronjobs"}


def test_pods_wait_only_where_the_controller_looks() -> None:
    bindings = [one for one in rendered(controller_namespaces=["a"]) if one["kind"].endswith("Binding")]
    selected = [one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] for one in bindings]
    assert selected == [[{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]}]] * 2
    assert all("matchResources" not in one["spec"] for one in rendered() if one["kind"].endswith("Binding"))


def test_the_api_server_holds_the_controller_to_workloads_that_ask_for_models_and_to_gated_pods() -> None:
    """That it refuses the rest is shown on a cluster, in tests/cluster/test_deckhouse_delivery.py."""

    def expressions(*apis: str) -> dict[str, str]:
        policies = Rendered("controller", controller_apis=[*apis])["__controller_owned_policy_objects"]
        return {
            one["metadata"]["name"].rpartition("-")[2]: one["spec"]["validations"][0]["expression"]
            for one in policies
            if one["kind"] == "ValidatingAdmissionPolicy"
        }

    delivering, others = expressions("deckhouse"), expressions("krypton")
    for name in (names.USES_MODEL, names.USES_CLUSTER_MODEL, names.BLOCKED_REASON, DELIVERED):
        assert f'"{name}"' in delivering["workloads"]
        assert f'"{name}"' not in others["workloads"]
    assert f'"{names.GATE}"' in delivering["pods"]
    assert (f'"{names.GATE}"' in delivering["jobs"], f'"{names.GATE}"' in others["jobs"]) == (True, False)
