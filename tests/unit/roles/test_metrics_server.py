"""metrics-server gets the rights that its project gives it, and never takes another one's place."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.filter.core import FilterModule
from jinja2 import meta
from jinja2.nativetypes import NativeEnvironment

from tests import documents

ROLE = Path(__file__).parents[3] / "roles/metrics_server"
VARS = documents.read(ROLE / "vars/main.yml")
DEFAULTS = documents.read(ROLE / "defaults/main.yml")
OURS = "app.kubernetes.io/part-of=slipway"


def tasks(name: str) -> list[dict[str, Any]]:
    top_tasks: list[dict[str, Any]] = documents.read(ROLE / f"tasks/{name}.yml")
    return [inner for task in top_tasks for inner in task.get("block", [task])]


def rendered(value: Any, **variables: Any) -> Any:
    """As Ansible sees it: templates in variables of the role are resolved too."""
    if isinstance(value, dict):
        return {key: rendered(inner, **variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [rendered(inner, **variables) for inner in value]
    if not isinstance(value, str) or "{{" not in value:
        return value
    environment = NativeEnvironment()
    environment.filters |= FilterModule().filters() | {"slipway.inference.listed": list}
    context = DEFAULTS | VARS | variables
    used = meta.find_undeclared_variables(environment.parse(value))
    return environment.from_string(value).render(
        {name: rendered(context[name], **variables) for name in used if name in context}
    )


def test_its_rights_are_those_that_the_project_publishes() -> None:
    rules = VARS["__metrics_server_cluster_rules"]
    rights = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group, resource in product(rule["apiGroups"], rule["resources"])
    }

    assert rights == {
        ("", "nodes/metrics"): {"get"},
        ("", "nodes"): {"get", "list", "watch"},
        ("", "pods"): {"get", "list", "watch"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
    }


def test_outside_of_its_namespace_it_reads_one_configmap_by_a_role_of_kubernetes() -> None:
    [binding] = [manifest for manifest in VARS["__metrics_server_rights"] if manifest["kind"] == "RoleBinding"]

    assert binding["metadata"]["namespace"] == "kube-system"
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"


def test_access_to_pods_shows_their_use_and_allows_no_writes() -> None:
    [reader] = [manifest for manifest in VARS["__metrics_server_rights"] if manifest["kind"] == "ClusterRole"]
    labels = rendered(VARS["__metrics_server_aggregated"])

    assert {label.rpartition("-")[2] for label in labels} == {"view", "edit", "admin"}
    assert [set(rule["verbs"]) for rule in reader["rules"]] == [{"get", "list", "watch"}]


@pytest.mark.parametrize("insecure", [False, True])
def test_kubelets_without_a_signed_certificate_are_trusted_only_if_configured(insecure: bool) -> None:
    container = rendered(VARS["__metrics_server_container"], metrics_server_kubelet_insecure_tls=insecure)

    assert ("--kubelet-insecure-tls" in container["args"]) == insecure
    assert "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname" in container["args"]
    assert "--metric-resolution=15s" in container["args"]
    assert container["image"] == DEFAULTS["metrics_server_image"]


def test_every_object_is_marked_as_ours() -> None:
    objects = [*rendered(VARS["__metrics_server_objects"]), rendered(VARS["__metrics_server_registration"])]

    assert [manifest["kind"] for manifest in objects] == [
        "RoleBinding", "ClusterRole", "Service", "PodDisruptionBudget", "APIService",
    ]  # fmt: skip
    assert {manifest["metadata"]["labels"]["app.kubernetes.io/part-of"] for manifest in objects} == {"slipway"}


def test_nothing_is_installed_if_a_foreign_one_is_registered() -> None:
    _check, look, say, install = documents.read(ROLE / "tasks/main.yml")

    assert look["slipway.inference.k8s_info"]["label_selectors"] == [OURS.replace("=", "!=")]
    assert say["when"] == "__metrics_server_others.resources | length > 0"
    assert install["when"] == "__metrics_server_others.resources | default([none]) | length == 0"


@pytest.mark.parametrize(
    ("registered", "expected"),
    [
        ({"service": {"name": "metrics", "namespace": "kube-system"}}, "Service metrics in namespace kube-system"),
        ({"service": None}, "the API server itself"),
        ({}, "the API server itself"),
    ],
)
def test_another_one_is_named(registered: dict[str, Any], expected: str) -> None:
    others = {"resources": [{"spec": registered}]}

    assert rendered(VARS["__metrics_server_other"], __metrics_server_others=others) == expected


def test_a_foreign_installation_that_does_not_answer_is_reported() -> None:
    say = documents.read(ROLE / "tasks/main.yml")[2]["ansible.builtin.debug"]["msg"]
    down = {"type": "Available", "status": "False", "message": "no endpoints"}
    others = {"resources": [{"spec": {}, "status": {"conditions": [down]}}]}

    assert rendered(say, __metrics_server_others=others).rstrip().endswith("It does not answer: no endpoints")


def test_its_api_is_registered_only_when_it_answers_and_goes_before_it() -> None:
    installed = [task["name"] for task in tasks("main")]
    removed = [task["name"] for task in tasks("uninstall")]

    assert installed.index("Install metrics-server") < installed.index("Register its API")
    assert removed.index("Remove the registration") < removed.index("Remove metrics-server")


def test_only_our_own_registration_is_removed() -> None:
    look, remove = tasks("uninstall")[:2]

    assert look["slipway.inference.k8s_info"]["label_selectors"] == [OURS]
    assert remove["when"] == "__metrics_server_ours.resources | length > 0"


def test_the_playbook_installs_it_only_where_asked_and_removes_what_is_ours() -> None:
    def conditions(playbook: str) -> list[str | None]:
        plays = documents.read(ROLE.parents[1] / f"playbooks/{playbook}.yml")
        used = [task for play in plays for task in play.get("tasks", ()) if "inference.metrics_server" in str(task)]
        return [task.get("when") for task in used]

    assert conditions("site") == conditions("upgrade") == ["slipway_has_metrics_server | bool"]
    assert conditions("uninstall") == [None]
