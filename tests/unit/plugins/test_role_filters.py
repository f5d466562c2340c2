# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters by which roles read what is there: nodes, containers, images, versions and addresses."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.accelerator_totals import accelerator_totals
from ansible_collections.slipway.inference.plugins.filter.container_states import container_states
from ansible_collections.slipway.inference.plugins.filter.faulty_jwt import faulty_jwt
from ansible_collections.slipway.inference.plugins.filter.faulty_key_rights import faulty_key_rights
from ansible_collections.slipway.inference.plugins.filter.gateway_urls import gateway_urls
from ansible_collections.slipway.inference.plugins.filter.image_pulls import image_pulls, whole_name
from ansible_collections.slipway.inference.plugins.filter.installed_versions import installed_versions
from ansible_collections.slipway.inference.plugins.filter.lacking_resources import lacking_resources
from ansible_collections.slipway.inference.plugins.filter.lost_versions import lost_versions
from ansible_collections.slipway.inference.plugins.filter.model_states import model_states
from ansible_collections.slipway.inference.plugins.filter.prometheus_choices import prometheus_choices
from ansible_collections.slipway.inference.plugins.filter.ready_nodes import ready_nodes
from ansible_collections.slipway.inference.plugins.filter.stored_artifacts import stored_artifacts
from ansible_collections.slipway.inference.plugins.filter.too_old import too_old

Object = dict[str, Any]
READY = [{"type": "Ready", "status": "True"}]


def node(name: str = "one", *images: str, spec: Object | None = None, **status: Any) -> Object:
    listed = [{"names": list(images)}, {}]
    return {"metadata": {"name": name}, "spec": spec or {}, "status": {"images": listed, **status}}


def deployment(name: str, image: str, **labels: str) -> Object:
    containers = [{"image": "sidecar:9.9.9"}, {"image": image}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": {"containers": containers}}}}


# --- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "ready", "for_any_pod"),
    [
        (node(conditions=READY), True, True),
        (node(conditions=[{"type": "Ready", "status": "Unknown"}]), False, False),
        (node(), False, False),
        (node(spec={"unschedulable": True}, conditions=READY), True, False),
        (node(spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, conditions=READY), True, False),
        (node(spec={"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, conditions=READY), True, True),
    ],
)
def test_nodes_are_ready_and_may_yet_keep_pods_away(given: Object, ready: bool, for_any_pod: bool) -> None:
    assert ready_nodes([given]) == ([given] if ready else [])
    assert ready_nodes([given], for_any_pod=True) == ([given] if for_any_pod else [])


def test_what_nodes_offer_is_summed_by_resource() -> None:
    nodes = [node(allocatable={"nvidia.com/gpu": "8", "cpu": "64"}), node(allocatable={"nvidia.com/gpu": 1}), node()]

    assert accelerator_totals(nodes, "(nvidia|amd)[.]com/") == {"nvidia.com/gpu": 9}


def test_what_a_node_no_longer_offers_in_full_is_told() -> None:
    had = {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.5gb": "7", "cpu": "64", "amd.com/gpu": "2"}

    lacking = lacking_resources(had, {"nvidia.com/gpu": "4", "amd.com/gpu": "2"}, "(nvidia|amd)[.]com/")
    assert lacking == ["8 nvidia.com/gpu", "7 nvidia.com/mig-1g.5gb"]


@pytest.mark.parametrize(
    ("quantity", "number"),
    [("1k", 1000), ("15Gi", 15 * 1024**3), ("2e3", 2000), ("1500m", 1), ("-1", 0), ("many", 0), ("1e99999", 0)],
)
def test_resources_count_however_kubernetes_writes_their_quantity(quantity: str, number: int) -> None:
    resource, devices = "nvidia.com/gpu", "nvidia[.]com/"
    assert accelerator_totals([node(allocatable={resource: quantity})], devices) == {resource: number}
    assert lacking_resources({resource: quantity}, {resource: str(number)}, devices) == []
    assert lacking_resources({resource: str(number + 1)}, {resource: quantity}, devices) == [f"{number + 1} {resource}"]


# --- images and containers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "whole"),
    [
        ("haproxy", "docker.io/library/haproxy:latest"),
        ("slipway/slipway:1", "docker.io/slipway/slipway:1"),
        ("localhost/slipway:1", "localhost/slipway:1"),
        ("registry:5000/slipway", "registry:5000/slipway:latest"),
        ("ghcr.io/a/b:1@sha256:0a", "ghcr.io/a/b@sha256:0a"),
    ],
)
def test_an_image_has_one_whole_name(image: str, whole: str) -> None:
    assert whole_name(image) == whole


def test_each_image_is_pulled_by_the_first_node_without_it_and_with_the_secrets_of_all_who_name_it() -> None:
    named = [
        {"image": "a", "policy": "Always", "secrets": ["one"]},
        {"image": "b", "policy": "Always", "secrets": []},
        {"image": "a", "policy": "Always", "secrets": ["two", "one"]},
        {"image": "c", "policy": "Always", "secrets": []},
    ]
    has = {name: f"docker.io/library/{name}:latest" for name in "abc"}
    found = image_pulls(named, [node("first", has["a"], has["c"]), node("second", has["c"])])

    assert found["pulls"] == {"second": ["a"], "first": ["b"]}
    assert found["images"]["a"] == {"whole": has["a"], "policy": "Always", "secrets": ["one", "two"]}


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}, (True, "no such tag")),
        ({"waiting": {"reason": "ErrImageNeverPull"}}, (True, "ErrImageNeverPull")),
        ({"waiting": {}}, (True, "")),
        ({"terminated": {"message": "last words"}}, (False, "")),
        ({"running": {}}, (False, "")),
    ],
)
def test_a_container_tells_what_it_waits_for(state: Object, told: tuple[bool, str]) -> None:
    spec = {"nodeName": "one", "containers": [{"name": "main", "image": "a:1"}]}
    pod = {"metadata": {"name": "p"}, "spec": spec, "status": {"containerStatuses": [{"name": "main", "state": state}]}}
    [found] = container_states([pod])

    assert (found["waits"], found["message"]) == told
    assert (found["pod"], found["node"], found["container"], found["image"]) == ("p", "one", "main", "a:1")


def test_a_container_that_ended_has_last_words_and_one_that_waits_a_reason() -> None:
    ended, waits = {"terminated": {"message": "disk full"}}, {"waiting": {"reason": "Err", "message": "why"}}
    states = [ended, waits, {"running": {}}]
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "c", "state": one} for one in states]}}

    assert [state["words"] for state in container_states([pod])] == ["disk full", "Err why", ""]


def test_a_pod_that_no_kubelet_has_told_of_has_a_container_without_a_name() -> None:
    [found] = container_states([{"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}}])

    assert (found["container"], found["phase"], found["waits"]) == ("", "Pending", False)


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "version"),
    [
        (deployment("d", "a:mine", **{"slipway.inference/version": "0.4.0"}), "0.4.0"),
        (deployment("d", "registry:5000/a:v0.3.2-1"), "0.3.2"),
        (deployment("d", "a:0.3.2@sha256:0a"), ""),
        (deployment("d", "a:mine"), ""),
    ],
)
def test_the_version_of_a_part_is_that_of_its_label_or_its_tag(given: Object, version: str) -> None:
    assert installed_versions([given]) == {"d": version}


def test_an_upgrade_takes_the_next_minor_release_or_the_next_major_one() -> None:
    assert too_old(["0.3.9", "0.4.0", "0.5.1"], "0.5.0") == ["0.3.9"]
    assert too_old(["0.9.0", "1.7.0", "2.0.0"], "2.0.0") == ["0.9.0"]


def test_stored_versions_that_a_new_definition_lacks_are_lost() -> None:
    def definition(name: str, *stored: str) -> Object:
        return {"metadata": {"name": name}, "status": {"storedVersions": list(stored)}}

    new = [{"metadata": {"name": "models"}, "spec": {"versions": [{"name": "v1"}]}}]
    given = [definition("models", "v1alpha1", "v1"), definition("others", "v0")]

    assert lost_versions(given, new) == {"models": ["v1alpha1"]}
    assert lost_versions([definition("models", "v1")], new) == {}


# --- what the report says ---------------------------------------------------------------------------------------------


def test_addresses_of_the_gateway_are_those_of_routes_balancer_and_node() -> None:
    admitted = {"ingress": [{"conditions": [{"type": "Admitted", "status": "True"}]}]}
    routes = [{"spec": {"host": "taken"}, "status": admitted}, {"spec": {"host": "not-yet"}}]
    service: Object = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}
    balanced = service | {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb"}]}}}

    assert gateway_urls(routes, {}, ["10.0.0.1"]) == ["https://taken/v1"]
    assert gateway_urls([], service, ["10.0.0.1", "10.0.0.2"]) == ["http://10.0.0.1:30080/v1"]
    assert gateway_urls([], service) == []
    assert gateway_urls([], balanced) == ["http://192.0.2.1/v1", "http://lb/v1"]


def test_a_model_may_sleep_and_be_nothing_but_weights() -> None:
    told = {"namespace": "m", "ready": True, "phase": "Ready", "url": "", "reason": "", "message": ""}
    asleep = {**told, "kind": "Model", "name": "a", "conditions": [{"type": "Available", "reason": "ScaledToZero"}]}
    service = {**told, "kind": "InferenceService", "name": "b", "conditions": []}
    results = [
        {"item": "kubeai", "models": [asleep]},
        {"item": "llmkube", "models": [{**asleep, "conditions": []}]},
        {"item": "llmkube", "inference_services": [service]},
        {"item": "ome", "models": [{**asleep, "kind": "BaseModel", "conditions": []}]},
        {"item": "deckhouse", "msg": "Forbidden"},
    ]
    found = model_states(results, ["llmkube", "ome"])

    assert [(one["api"], one["asleep"], one["weights_only"]) for one in found] == [
        ("kubeai", True, False),
        ("llmkube", False, True),
        ("llmkube", False, False),
        ("ome", False, True),
    ]


ASKED: Object = {"resources": {"requests": {"storage": "3k"}}}


@pytest.mark.parametrize(
    ("claim", "capacity", "percent"),
    [
        ({"status": {"capacity": {"storage": "4Ki"}}, "spec": ASKED}, 4096, 75),
        ({"status": {}, "spec": ASKED}, 3000, 102),
        ({"status": {"capacity": {"storage": "what"}}}, 0, ""),
        ({}, 0, ""),
        (None, 0, ""),
    ],
)
def test_artifacts_are_added_up_beside_what_the_claim_has(claim: Object | None, capacity: int, percent: Any) -> None:
    models: list[Object] = [
        {"status": {"phase": "Ready", "artifact": {"sizeBytes": 3072}}},
        {"status": {"phase": "Failed", "artifact": {"sizeBytes": "none"}}},
        {"status": None},
        {},
    ]
    found = stored_artifacts(models, claim)

    assert found["phases"] == {"Ready": 1, "Failed": 1, "Pending": 2}
    assert (found["bytes"], found["capacity_bytes"], found["used_percent"]) == (3072, capacity, percent)


# --- Prometheus and keys ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "takes"),
    [
        ({"Selector": {}, "NamespaceSelector": {}}, True),
        ({"Selector": {"matchLabels": {"release": "stack"}}, "NamespaceSelector": {}}, True),
        ({"Selector": {"matchLabels": {"release": "other"}}, "NamespaceSelector": {}}, False),
        ({"Selector": None, "NamespaceSelector": {}}, False),
        ({"Selector": {}, "NamespaceSelector": {"matchLabels": {"team": "ml"}}}, True),
        ({"Selector": {}, "NamespaceSelector": {"matchLabels": {"team": "web"}}}, False),
        ({"Selector": {}}, False),
    ],
)
def test_a_prometheus_takes_what_its_selectors_ask_for(spec: Object, takes: bool) -> None:
    of = {f"{kind}{what}": selector for kind in ("podMonitor", "rule") for what, selector in spec.items()}
    prometheus = {"metadata": {"namespace": "monitoring", "name": "main"}, "spec": of}
    space = {"metadata": {"name": "slipway-system", "labels": {"team": "ml"}}}
    [choice] = prometheus_choices([prometheus], {"release": "stack"}, space)

    assert choice == {"name": "monitoring/main", "takes": takes, "spec": of}


def test_a_prometheus_of_the_same_namespace_needs_no_selector_of_namespaces_but_both_of_objects() -> None:
    at_home = {"metadata": {"namespace": "slipway-system", "name": "main"}, "spec": {"podMonitorSelector": {}}}
    space = {"metadata": {"name": "slipway-system"}}

    assert not prometheus_choices([at_home], {}, space)[0]["takes"]
    at_home["spec"]["ruleSelector"] = {}
    assert prometheus_choices([at_home], {}, space)[0]["takes"]


@pytest.mark.parametrize(
    ("rights", "fault"),
    [
        ({"owner": "ml", "models": ["qwen"], "ends": "2030-01-31T00:00:00+02:00", "requestsAtOnce": 1}, ""),
        ({"owners": "ml"}, "unknown option owners"),
        ({"requestsPerMinute": 0}, "requestsPerMinute is not a whole number from 1 to 1000000000"),
        ({"requestsPerMinute": True}, "requestsPerMinute is not a whole number from 1 to 1000000000"),
        ({"tokensPerMinute": 5}, "tokensPerMinute needs gateway_count_tokens"),
        ({"models": "qwen"}, "models is not a list of ids of at most 253 characters"),
        ({"models": [1]}, "models is not a list of ids of at most 253 characters"),
        ({"owner": 5}, "owner is not a text of at most 253 characters"),
        ({"selector": "a" * 1025}, "selector is not a text of at most 1024 characters"),
        ({"ends": "tomorrow"}, 'ends is not a time in quotes such as "2030-01-31T00:00:00Z"'),
        ({"ends": "2030-02-30T00:00:00Z"}, 'ends is not a time in quotes such as "2030-01-31T00:00:00Z"'),
        (["qwen"], "not a mapping"),
    ],
)
def test_rights_that_a_gateway_would_not_take_are_told(rights: Any, fault: str) -> None:
    assert faulty_key_rights({"alice": rights}, ["alice"], count_tokens=False) == ([f"alice: {fault}"] if fault else [])


def test_rights_of_a_key_that_is_not_there_are_told() -> None:
    assert faulty_key_rights({"bob": {}}, ["alice"]) == ["bob: there is no such key"]


@pytest.mark.parametrize(
    ("name", "let_in", "fault"),
    [
        ("jwt:alice@example.org", True, ""),
        ("jwt:*", True, ""),
        ("jwt:*", False, "owners of tokens need gateway_jwt"),
        ("jwt:a b", True, "this is not the name of an owner"),
        ("jwt:a*", True, "this is not the name of an owner"),
        ("jwt:", True, "this is not the name of an owner"),
        ("jwt:" + "a" * 201, True, "this is not the name of an owner"),
        ("jwt", True, "there is no such key"),
    ],
)
def test_owners_of_tokens_have_rights_where_tokens_are_let_in(name: str, let_in: bool, fault: str) -> None:
    assert faulty_key_rights({name: {}}, ["alice"], tokens_let_in=let_in) == ([f"{name}: {fault}"] if fault else [])


@pytest.mark.parametrize(
    ("name", "let_in", "fault"),
    [
        ("serviceaccount:search:indexer", True, ""),
        ("serviceaccount:*", True, ""),
        ("serviceaccount:*", False, "service accounts need gateway_service_account_audience"),
        ("serviceaccount:search", True, "this is not the namespace and name of a service account"),
        ("serviceaccount:search:*", True, "this is not the namespace and name of a service account"),
        ("serviceaccount:search:a:b", True, "this is not the namespace and name of a service account"),
        ("serviceaccount:search:" + "a" * 171, True, "this is not the namespace and name of a service account"),
    ],
)
def test_service_accounts_have_rights_where_their_tokens_are_let_in(name: str, let_in: bool, fault: str) -> None:
    found = faulty_key_rights({name: {}}, ["alice"], tokens_let_in=True, accounts_let_in=let_in)
    assert found == ([f"{name}: {fault}"] if fault else [])


def test_rights_of_owners_of_tokens_are_held_against_the_same_rules_as_those_of_keys() -> None:
    assert faulty_key_rights({"jwt:*": {"owners": "ml"}}, [], tokens_let_in=True) == ["jwt:*: unknown option owners"]


ISSUER = {"issuer": "https://login.example.org", "audience": "slipway"}


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, []),
        (ISSUER | {"jwksUrl": "https://login.example.org/keys"}, []),
        (ISSUER | {"jwks": {"keys": []}}, []),
        (ISSUER | {"jwksUrl": "http://login.example.org/keys", "allowHttp": "yes"}, []),
        (ISSUER | {"jwksUrl": "http://login.example.org/keys", "allowHttp": "no"}, ["jwksUrl is no https:// address"]),
        (ISSUER | {"jwksUrl": "file:///keys", "allowHttp": True}, ["jwksUrl is no https:// address"]),
        (ISSUER, ["give either jwksUrl or jwks"]),
        (ISSUER | {"jwks": {}, "jwksUrl": "https://login.example.org/keys"}, ["give either jwksUrl or jwks"]),
        ({"audience": "", "jwks": {}}, ["issuer is missing", "audience is missing"]),
    ],
)
def test_an_issuer_whose_tokens_a_gateway_could_not_verify_is_told(given: Object, faults: list[str]) -> None:
    assert faulty_jwt(given) == faults
