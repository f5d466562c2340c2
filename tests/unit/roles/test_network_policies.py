"""Who reaches Slipway's own parts, by the NetworkPolicies that their roles make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..network_policy import ALL, CONTROLLER, FORGED, PODS, PROMETHEUS, STRANGER, who
from .cluster_api import ClusterApi
from .rendering import Rendered
from .role_run import run_tasks

PARTS = ("controller", "gateway", "hub", "metrics_server")
HTTP, METRICS, API = 8080, 8081, 10250


def policy(part: str, **given: Any) -> dict[str, Any]:
    """As the role component makes it of the rules of this one."""
    rules = Rendered(part, **given)[f"__{part}_ingress"]
    name = f"slipway-{part.replace('_', '-')}"
    component = Rendered(
        "component",
        component_name=name,
        component_network_policy=True,
        component_ingress=rules,
        __component_collection={"version": "1.0.0"},
    )
    [network_policy] = component["__component_network_policies"]
    assert network_policy["metadata"]["name"] == name
    assert network_policy["spec"]["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": name}}
    return dict(network_policy)


def test_only_prometheus_reaches_the_controller_for_its_metrics() -> None:
    network_policy = policy("controller")
    assert who(network_policy, METRICS) == {PROMETHEUS}
    assert who(network_policy, HTTP) == who(network_policy, 22) == set()


def test_every_client_reaches_the_gateway_but_only_prometheus_and_the_controller_its_control_port() -> None:
    network_policy = policy("gateway")
    assert who(network_policy, HTTP) == ALL
    assert who(network_policy, METRICS) == {PROMETHEUS, CONTROLLER}
    assert who(network_policy, 22) == set()


def test_the_hub_is_reached_by_the_pods_of_the_cluster_or_those_that_are_named() -> None:
    assert who(policy("hub"), HTTP) == PODS
    assert who(policy("hub", hub_clients=[{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]), HTTP) == {
        STRANGER,
        FORGED,
    }
    assert who(policy("hub", hub_clients=[]), HTTP) == set()
    assert who(policy("hub"), 22) == set()


def test_metrics_server_is_reached_where_the_api_server_asks_it() -> None:
    network_policy = policy("metrics_server")
    assert who(network_policy, API) == ALL
    assert who(network_policy, HTTP) == set()


@pytest.mark.parametrize(("part", "others"), [("controller", set()), ("gateway", {CONTROLLER})])
def test_prometheus_may_be_elsewhere_and_no_namespace_of_it_does_not_mean_all(part: str, others: set[Any]) -> None:
    assert who(policy(part, slipway_prometheus_namespaces=["tenant"]), METRICS) > others
    assert PROMETHEUS not in who(policy(part, slipway_prometheus_namespaces="tenant"), METRICS)
    assert who(policy(part, **{f"{part}_prometheus_namespaces": []}), METRICS) == others


@pytest.mark.parametrize("part", PARTS)
def test_one_variable_turns_all_network_policies_off(part: str) -> None:
    assert Rendered(part)[f"{part}_network_policy"] is True
    assert Rendered(part, slipway_network_policies=False)[f"{part}_network_policy"] is False


def test_the_switch_holds_for_loaders_too_and_models_are_asked_for_by_themselves() -> None:
    chosen = Rendered("controller", slipway_network_policies=False)["__controller_settings"]["networkPolicies"]
    assert (chosen["loaders"], chosen["models"]) == (False, False)
    chosen = Rendered("controller", controller_model_network_policies=True)["__controller_settings"]["networkPolicies"]
    assert (chosen["loaders"], chosen["models"]) == (True, True)


@pytest.mark.plays
def test_a_policy_comes_with_its_part_and_goes_when_it_is_not_wanted_any_more(tmp_path: Path, api: ClusterApi) -> None:
    tasks = [{"ansible.builtin.import_role": {"name": "slipway.inference.controller"}}]
    key = ("NetworkPolicy", "slipway-system", "slipway-controller")
    run_tasks(tmp_path, api, tasks)
    assert who(api.objects[key], METRICS) == {PROMETHEUS}
    api.writes.clear()
    run_tasks(tmp_path, api, tasks, slipway_network_policies=False)
    assert key not in api.objects
    assert "delete NetworkPolicy slipway-controller" in api.writes
    run_tasks(tmp_path, api, tasks)
    uninstall = {"name": "slipway.inference.controller", "tasks_from": "uninstall"}
    signing = {"name": "slipway-controller-signing", "namespace": "slipway-system"}
    api.put({"apiVersion": "v1", "kind": "Secret", "metadata": signing, "data": {"ed25519": "aHVzaA=="}})
    output = run_tasks(tmp_path, api, [{"ansible.builtin.import_role": uninstall}], "--diff", "-vvv")
    leftovers = [place for place in api.objects if place[2].startswith("slipway-controller")]
    assert leftovers == []
    assert "aHVzaA==" not in output
