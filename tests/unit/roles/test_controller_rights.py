"""The controller may do what it does, and no more: its rules follow from the APIs that it runs."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Any

import pytest

from slipway.apis import APIS
from slipway.controller import signing
from slipway.controller.observed import UNLISTED
from slipway.kube.objects import CONFIG_MAP, NODE, PERSISTENT_VOLUME_CLAIM, PRIORITY_CLASS
from slipway.serving.agent import ADAPTER_LABEL, SERVING_LABEL

from .rendering import Rendered

MANAGED = {"get", "list", "watch", "create", "patch", "delete"}
KUBEAI_ONLY = {
    ("", "configmaps"): MANAGED - {"list", "watch"},
    ("batch", "jobs"): MANAGED,
    ("", "persistentvolumeclaims"): {"get", "list", "watch", "create", "patch"},
    ("", "pods"): {"list", "watch", "patch"},
    ("kubeai.org", "models"): {"get", "list", "watch", "patch"},
    ("kubeai.org", "models/status"): {"patch"},
    ("kubeai.org", "models/scale"): {"patch"},
    ("kubeai.org", "models/finalizers"): {"update"},
}
ALL = ("krypton", "kubeai", "llmkube")
FIXED = ["annotations", "finalizers", "ownerReferences"]
"""What the controller may not change of a pod's metadata, beside labels that are not for adapters."""
Rights = dict[tuple[str, str], set[str]]


def ruled(rules: Any) -> Rights:
    """(group, resource) -> verbs."""
    found: Rights = {}
    for rule in rules:
        for group, resource in product(rule["apiGroups"], rule["resources"]):
            found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


@cache
def rendered(apis: tuple[str, ...], namespaces: tuple[str, ...] = ()) -> Rendered:
    return Rendered("controller", controller_apis=[*apis], controller_namespaces=[*namespaces])


def rights(*apis: str) -> Rights:
    """Those in the whole cluster."""
    return ruled(rendered(apis)["__controller_cluster_rules"])


def test_krypton_alone_needs_none_of_kubeai() -> None:
    alone = rights("krypton")
    assert not set(alone) & (set(KUBEAI_ONLY) - {("", "pods")})
    assert alone["", "pods"] == {"list", "watch"}


def test_kubeai_adds_what_its_caches_files_and_adapters_need() -> None:
    both = rights("krypton", "kubeai")
    assert {resource: both[resource] for resource in KUBEAI_ONLY} == KUBEAI_ONLY
    assert set(both) - set(rights("krypton")) == set(KUBEAI_ONLY) - {("", "pods")}


def test_llmkube_adds_what_its_weights_autoscalers_and_priorities_need() -> None:
    added = {resource: verbs for resource, verbs in rights("llmkube").items() if resource not in rights("krypton")}
    shared = {"get", "list", "watch", "create", "patch"}
    own = {
        ("inference.llmkube.dev", f"{kind}{suffix}"): set(verbs)
        for kind in ("models", "inferenceservices")
        for suffix, verbs in rendered(("llmkube",))["__controller_api_verbs"].items()
    }
    assert added == own | {
        ("batch", "jobs"): MANAGED,
        ("autoscaling", "horizontalpodautoscalers"): MANAGED,
        ("", "nodes"): {"list", "watch"},
        ("", "persistentvolumeclaims"): shared,
        ("scheduling.k8s.io", "priorityclasses"): shared - {"patch"},
    }


def test_nothing_is_granted_by_wildcard_and_no_secret_is_read() -> None:
    both = rights("krypton", "kubeai", "llmkube")
    assert not [rule for rule, verbs in both.items() if "*" in (*rule, *verbs)]
    assert ("", "secrets") not in both


def test_of_secrets_it_makes_and_reads_the_one_of_its_own_namespace_that_signs() -> None:
    role = rendered(ALL, ("team-a",))
    assert [rule for rule in role["__controller_own_rules"] if "secrets" in rule["resources"]] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [signing.NAME], "verbs": ["get"]},
    ]
    assert ("", "secrets") not in ruled(role["__controller_work_rules"])


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_kind_that_an_api_makes_or_refers_to_is_granted(api: Any) -> None:
    granted = rights(api.name)
    for kind in api.child_kinds:
        needed = MANAGED - {"list", "watch"} if kind in UNLISTED else MANAGED
        assert granted[kind.group, kind.plural] >= needed, kind
    granted |= {
        ("", "configmaps"): ruled(rendered((api.name,))["__controller_own_rules"]).get(("", "configmaps"), set())
    }
    own = {resource.kind for other in APIS if other.name == api.name for resource in other.resources}
    for kind in api.shared_kinds:
        assert kind in {CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, PRIORITY_CLASS, NODE} | own
        verbs = {"get", "list", "watch"} | (set() if kind in own else {"create"})
        noted = {"patch"} if kind in own | {CONFIG_MAP, PERSISTENT_VOLUME_CLAIM} else set()
        assert granted[kind.group, kind.plural] >= ({"list", "watch"} if kind == NODE else verbs | noted), kind


def test_limited_to_namespaces_only_kinds_without_one_are_granted_in_the_whole_cluster() -> None:
    everywhere, limited = rendered(ALL), rendered(ALL, ("team-a",))
    wide = ruled(limited["__controller_cluster_rules"])
    assert wide == {
        ("", "nodes"): {"list", "watch"},
        ("scheduling.k8s.io", "priorityclasses"): {"get", "list", "watch", "create"},
    }
    assert ruled(limited["__controller_work_rules"]) | wide == ruled(everywhere["__controller_cluster_rules"])
    assert rendered(("krypton", "kubeai"), ("team-a",))["__controller_cluster_rules"] == []


def test_in_its_own_namespace_it_has_its_lease_its_key_its_configuration_and_the_gateways_pods() -> None:
    own = {("coordination.k8s.io", "leases"): {"create", "get", "update"}, ("", "secrets"): {"create", "get"}}
    config = {("", "configmaps"): {"get", "list", "watch", "create", "patch"}}
    limited = {("", "pods"): {"list", "watch"}, ("", "events"): {"get", "create", "patch"}}
    assert ruled(rendered(("krypton",))["__controller_own_rules"]) == own
    assert ruled(rendered(ALL)["__controller_own_rules"]) == own | config
    assert ruled(rendered(ALL, ("team-a",))["__controller_own_rules"]) == own | config | limited


def test_of_a_pod_the_api_server_lets_the_controller_change_nothing_but_labels_of_adapters() -> None:
    """That it refuses the rest is shown on a cluster, in tests/cluster/test_permissions.py."""
    policy, binding = Rendered("controller", controller_namespace="models-system")["__controller_pods_policy_objects"]
    spec = policy["spec"]
    (matched,) = spec["matchConstraints"]["resourceRules"]
    assert (matched["resources"], matched["operations"], matched["apiGroups"]) == (["pods"], ["UPDATE"], [""])
    (condition,) = spec["matchConditions"]
    account = "system:serviceaccount:models-system:slipway-controller"
    assert condition["expression"] == f'request.userInfo.username == "{account}"'
    assert spec["failurePolicy"] == "Fail"
    spec_stays, *fields, names = (validation["expression"] for validation in spec["validations"])
    assert spec_stays == "object.spec == oldObject.spec"
    assert [re.findall(r"(?<!old)[oO]bject\.metadata\.(\w+)", field)[0] for field in fields] == FIXED
    assert set(re.findall(r'startsWith\("([^"]*)"\)', names)) == {ADAPTER_LABEL, SERVING_LABEL}
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


@pytest.mark.parametrize("namespaces", [(), ("team-a",)])
def test_configmaps_of_others_are_neither_listed_nor_watched(namespaces: tuple[str, ...]) -> None:
    role = rendered(ALL, namespaces)
    found = ruled([*role["__controller_cluster_rules"], *role["__controller_work_rules"]])
    assert found["", "configmaps"] == {"get", "create", "patch", "delete"}
