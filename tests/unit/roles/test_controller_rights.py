"""The controller may do what it does, and no more: its rules follow from the APIs that it runs."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Any

import pytest

from slipway.apis import APIS
from slipway.apis.kubeai import names as kubeai
from slipway.apis.kubeai.names import ADAPTER_LABEL
from slipway.apis.llmkube import names as llmkube
from slipway.apis.llmkube.rules.quotas import NAMESPACES
from slipway.apis.ome.describe import SERVICES
from slipway.apis.ome.names import NODE_LABEL
from slipway.apis.ome.services.plan import POD_READER
from slipway.controller.loaders import signing
from slipway.kube.objects import CONFIG_MAP, NODE, PERSISTENT_VOLUME_CLAIM, POD, PRIORITY_CLASS
from slipway.kube.writes.write_only import OF_STRANGER, OF_VANISHED_OWNER
from slipway.serving.contract.delivery import OBSERVED, WORKLOADS
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.scaling import STATE, WAKE
from slipway.serving.wire.agent import SERVING_LABEL
from slipway.weights.nodes import RECORDS

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
OWN_VERBS = {"": {"get", "list", "watch", "patch"}, "/status": {"patch"}, "/finalizers": {"update"}}
ALL = ("krypton", "kubeai", "llmkube")
FIVE = (*ALL, "ome", "deckhouse")
FIXED = ["annotations", "finalizers", "ownerReferences"]
"""What the controller may not change of a pod's metadata, beside labels that are not for adapters."""
Rights = dict[tuple[str, str], set[str]]


def ruled(rules: Any) -> Rights:
    """(group, resource) -> verbs."""
    verbs: Rights = {}
    for rule in rules:
        for group, resource in product(rule["apiGroups"], rule["resources"]):
            verbs.setdefault((group, resource), set()).update(rule["verbs"])
    return verbs


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
        ("inference.llmkube.dev", f"{kind}{suffix}"): verbs
        for kind in ("models", "inferenceservices", "modelrouters", "loraadapters", "gpuquotas", "modelpools")
        for suffix, verbs in OWN_VERBS.items()
    }
    assert added == own | {
        ("batch", "jobs"): MANAGED,
        ("autoscaling", "horizontalpodautoscalers"): MANAGED,
        ("pyrra.dev", "servicelevelobjectives"): MANAGED,
        ("", "nodes"): {"list", "watch"},
        ("", "namespaces"): {"list", "watch"},
        ("", "persistentvolumeclaims"): shared,
        ("scheduling.k8s.io", "priorityclasses"): shared - {"patch"},
    }


def test_ome_adds_what_its_nodes_groups_routers_and_autoscalers_need() -> None:
    added = {resource: verbs for resource, verbs in rights("ome").items() if resource not in rights("krypton")}
    others = {resource: verbs for resource, verbs in added.items() if resource[0] != "ome.io"}
    assert others == {
        ("batch", "jobs"): MANAGED,
        ("autoscaling", "horizontalpodautoscalers"): MANAGED,
        ("leaderworkerset.x-k8s.io", "leaderworkersets"): MANAGED,
        ("keda.sh", "scaledobjects"): MANAGED,
        ("apps", "deployments/scale"): {"get", "update"},
        ("leaderworkerset.x-k8s.io", "leaderworkersets/scale"): {"get", "update"},
        ("rbac.authorization.k8s.io", "roles"): MANAGED,
        ("rbac.authorization.k8s.io", "rolebindings"): MANAGED,
        ("", "persistentvolumeclaims"): MANAGED,
        ("", "persistentvolumes"): MANAGED,
        ("", "nodes"): {"list", "watch", "patch"},
    }
    assert rights("ome")["", "pods"] == {"get", "list", "watch"}


def test_the_controller_has_all_rights_of_the_role_that_it_gives_routers() -> None:
    """The API server does not allow accounts to grant rights that they do not have."""
    granted = rights("ome")
    assert all(granted["", resource] >= set(POD_READER["verbs"]) for resource in POD_READER["resources"])


PARTS = ("cluster", "work", "own")
READS = {"get", "list", "watch", "patch", "delete", "deletecollection"}
"""Verbs whose answers may show an object. That to a faulty patch shows the whole object before any policy is asked. An
update shows only what it brings."""


def test_the_controller_holds_the_rights_to_wake_children_and_the_gateway_role_does_not() -> None:
    granted = rights("ome")
    assert all(granted[kind.group, f"{kind.plural}/scale"] == {*WAKE} for kind in SERVICES.scaled)
    assert Rendered("gateway", gateway_apis=["ome"])["__gateway_wake_rules"] == []


@pytest.mark.parametrize("namespaces", [(), ("team-a",)])
@pytest.mark.parametrize("apis", [FIVE, *((api.name,) for api in APIS)], ids=" ".join)
def test_nothing_is_granted_by_wildcard_and_no_secret_is_read(
    apis: tuple[str, ...], namespaces: tuple[str, ...]
) -> None:
    rules = [rule for part in PARTS for rule in rendered(apis, namespaces)[f"__controller_{part}_rules"]]
    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
    secrets = [rule for rule in rules if {"secrets", "secrets/*"} & {*rule["resources"]}]
    assert {name for rule in secrets if READS & {*rule["verbs"]} for name in rule.get("resourceNames", ["any"])} == {
        signing.NAME
    }
    assert {verb for rule in secrets for verb in rule["verbs"]} <= {"create", "update", "get"}


@pytest.mark.parametrize("part", PARTS)
def test_the_controller_patches_and_updates_only_what_it_may_read(part: str) -> None:
    """A patch or an update as a way to read what the rights do not show."""
    granted = ruled(rendered(FIVE)[f"__controller_{part}_rules"])
    whole = {rule: verbs for rule, verbs in granted.items() if "/" not in rule[1] and rule != ("", "secrets")}
    blind = {rule: verbs for rule, verbs in whole.items() if not verbs & {"get", "list"}}
    assert not {rule: verbs for rule, verbs in blind.items() if verbs & (READS | {"update"})}


def test_it_may_only_replace_secrets_that_it_created_for_the_same_owner() -> None:
    """That it refuses the rest is shown on a cluster, in tests/cluster/test_permissions.py."""
    policy, binding = Rendered("controller", controller_namespace="models-system")[
        "__controller_secrets_policy_objects"
    ]
    spec = policy["spec"]
    (matched,) = spec["matchConstraints"]["resourceRules"]
    assert (matched["resources"], matched["operations"]) == (["secrets", "secrets/*"], ["UPDATE"])
    (condition,) = spec["matchConditions"]
    account = "system:serviceaccount:models-system:slipway-controller"
    assert condition["expression"] == f'request.userInfo.username == "{account}"'
    assert spec["failurePolicy"] == "Fail"
    strange, gone = spec["validations"]
    assert (OF_STRANGER in strange["message"], OF_VANISHED_OWNER in gone["message"]) == (True, True)
    assert {one["reason"] for one in (strange, gone)} == {"Forbidden"}
    owners = {(kind.group, kind.kind) for api in APIS for kind in [api.resource.kind]}
    owners |= {(kind.group, kind.kind) for kind in WORKLOADS}
    assert {f"{group}/{kind}" for group, kind in owners} <= {*re.findall(r'"([\w.]+/\w+)"', str(spec["variables"]))}
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_it_may_only_create_and_read_the_signing_secret_of_its_namespace() -> None:
    role = rendered(ALL, ("team-a",))
    assert [rule for rule in role["__controller_own_rules"] if "secrets" in rule["resources"]] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [signing.NAME], "verbs": ["get"]},
    ]
    assert ("", "secrets") not in ruled(role["__controller_work_rules"])


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_kind_that_an_api_makes_or_refers_to_is_granted(api: Any) -> None:
    granted = rights(api.name)
    watches = api.watches(Settings(system_namespace="slipway-system"))
    for watch in watches:
        if watch.owned:
            needed = MANAGED if watch.listed else MANAGED - {"list", "watch"}
            assert granted[watch.kind.group, watch.kind.plural] >= needed, watch.kind
    granted |= {
        ("", "configmaps"): ruled(rendered((api.name,))["__controller_own_rules"]).get(("", "configmaps"), set())
    }
    own = {other.resource.kind for other in APIS if other.name == api.name}
    for kind in {watch.kind for watch in watches if not watch.owned} - {POD}:
        assert kind in {CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, PRIORITY_CLASS, NODE, NAMESPACES, *OBSERVED} | own
        if kind in OBSERVED:
            assert granted[kind.group, kind.plural] >= {"get", "list", "watch", "patch"}, kind
            continue
        verbs = {"get", "list", "watch"} | (set() if kind in own else {"create"})
        noted = {"patch"} if kind in own | {CONFIG_MAP, PERSISTENT_VOLUME_CLAIM} else set()
        assert granted[kind.group, kind.plural] >= (
            {"list", "watch"} if kind in (NODE, NAMESPACES) else verbs | noted
        ), kind


def test_limited_to_namespaces_only_kinds_without_one_are_granted_in_the_whole_cluster() -> None:
    everywhere, limited = rendered(ALL), rendered(ALL, ("team-a",))
    wide = ruled(limited["__controller_cluster_rules"])
    assert wide == {
        ("", "nodes"): {"list", "watch"},
        ("", "namespaces"): {"list", "watch"},
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
    averages = {("", "configmaps"): {"get", "create", "patch"}}
    assert ruled(rendered(("ome",))["__controller_own_rules"]) == own | averages
    assert ruled(rendered(ALL, ("team-a",))["__controller_own_rules"]) == own | config | limited


def test_the_controller_may_only_change_a_pods_adapter_labels() -> None:
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


def test_the_controller_may_only_change_a_nodes_model_labels_and_annotations() -> None:
    """That it refuses the rest is shown on a cluster, in tests/cluster/test_permissions.py."""
    policy, binding = Rendered("controller", controller_namespace="models-system")["__controller_nodes_policy_objects"]
    spec = policy["spec"]
    (matched,) = spec["matchConstraints"]["resourceRules"]
    assert (matched["resources"], matched["operations"], matched["scope"]) == (["nodes"], ["UPDATE"], "Cluster")
    (condition,) = spec["matchConditions"]
    account = "system:serviceaccount:models-system:slipway-controller"
    assert condition["expression"] == f'request.userInfo.username == "{account}"'
    assert spec["failurePolicy"] == "Fail"
    spec_stays, finalizers, owners, labels, records = (one["expression"] for one in spec["validations"])
    assert spec_stays == "object.spec == oldObject.spec"
    assert "object.metadata.finalizers == oldObject.metadata.finalizers" in finalizers
    assert "object.metadata.ownerReferences == oldObject.metadata.ownerReferences" in owners
    assert set(re.findall(r'startsWith\("([^"]*)"\)', labels)) == {NODE_LABEL, RECORDS}
    assert set(re.findall(r'startsWith\("([^"]*)"\)', records)) == {RECORDS}
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


OWN_GROUPS = {kind.group for api in APIS for kind in [api.resource.kind]}


@pytest.mark.parametrize("namespaces", [(), ("team-a",)])
@pytest.mark.parametrize("apis", [FIVE, *((api.name,) for api in APIS)], ids=" ".join)
def test_a_policy_covers_everything_that_the_controller_may_change_or_delete(
    apis: tuple[str, ...], namespaces: tuple[str, ...]
) -> None:
    """That they refuse the rest is shown on a cluster, in tests/cluster/test_permissions.py."""
    role = rendered(apis, namespaces)
    held: Rights = {}
    for policy in role["__controller_policies"]:
        if policy["kind"] == "ValidatingAdmissionPolicy":
            assert policy["spec"]["failurePolicy"] == "Fail"
            # Without a reason, the API server answers 422, as if the object were wrong.
            assert {one.get("reason") for one in policy["spec"]["validations"]} == {"Forbidden"}
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
                for group, resource in product(rule["apiGroups"], rule["resources"]):
                    held.setdefault((group, resource), set()).update(rule["operations"])
    operations = {"patch": "UPDATE", "update": "UPDATE", "delete": "DELETE"}
    granted = ruled([rule for part in PARTS for rule in role[f"__controller_{part}_rules"]])
    loose = {
        (group, resource, verb)
        for (group, resource), verbs in granted.items()
        for verb in verbs & operations.keys()
        if group not in OWN_GROUPS and operations[verb] not in held.get((group, resource), set())
    }
    # One policy is about all scales. The only lease is named.
    assert held["*", "*/scale"] >= {"UPDATE"}
    assert {one for one in loose if not one[1].endswith("/scale")} == {("coordination.k8s.io", "leases", "update")}


def test_policies_know_what_the_controller_writes_on_things_of_others() -> None:
    role = Rendered("controller", controller_kubeai_config={"modelAutoscaling": {"stateConfigMapName": "averages"}})
    expressions = {
        one["metadata"]["name"].removeprefix("slipway-controller-owned-"): one["spec"]["validations"][0]["expression"]
        for one in role["__controller_owned_policy_objects"]
        if one["kind"] == "ValidatingAdmissionPolicy"
    }
    prefixes = {kubeai.LOADED, llmkube.LOADED}
    assert set(re.findall(r'startsWith\("([^"]*)"\)', expressions["claims"])) == prefixes
    assert f'request.name in ["{STATE}", "averages"]' in expressions["configmaps"]
    kinds = {f"{api.resource.kind.group}/{api.resource.kind.kind}" for api in APIS}
    assert kinds <= set(re.findall(r'"([\w.]+/\w+)"', expressions["objects"]))


@pytest.mark.parametrize("namespaces", [(), ("team-a",)])
def test_configmaps_of_others_are_neither_listed_nor_watched(namespaces: tuple[str, ...]) -> None:
    role = rendered(ALL, namespaces)
    verbs = ruled([*role["__controller_cluster_rules"], *role["__controller_work_rules"]])
    assert verbs["", "configmaps"] == {"get", "create", "patch", "delete"}


def test_people_get_models_by_kubernetes_own_roles_and_never_a_status_or_a_secret() -> None:
    roles = {one["metadata"]["name"]: one for one in rendered(ALL)["__controller_people_objects"]}
    aggregated = {
        name: [label.rpartition("-")[2] for label in one["metadata"]["labels"] if "aggregate-to-" in label]
        for name, one in roles.items()
    }
    read, write = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}
    group = "ai.deckhouse.io"

    assert aggregated == {f"slipway-ai-models-{role}": [role] for role in ("view", "edit", "admin")}
    assert {name.rpartition("-")[2]: ruled(one["rules"]) for name, one in roles.items()} == {
        "view": {(group, "models"): read, (group, "clustermodels"): read},
        "edit": {(group, "models"): write},
        "admin": {(group, "clustermodels"): write},
    }


def test_of_secrets_it_reads_those_of_catalogs_that_are_named_beside_its_own() -> None:
    def named(*secrets: str) -> list[str]:
        role = Rendered("controller", controller_apis=[*ALL], controller_catalog_secrets=[*secrets])
        rules = [one for one in role["__controller_own_rules"] if one["resources"] == ["secrets"]]
        return sorted(name for one in rules if "get" in one["verbs"] for name in one["resourceNames"])

    assert named() == ["slipway-controller-signing"]
    assert named("east", "east-ca") == ["east", "east-ca", "slipway-controller-signing"]
