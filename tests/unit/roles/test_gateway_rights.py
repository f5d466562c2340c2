"""The gateway may do what it does, and no more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from jinja2.nativetypes import NativeEnvironment

from slipway.depot.storage.models import UPLOAD, UPLOADED
from slipway.depot.storage.presence import VANISHED
from slipway.gateway.settings import Settings
from tests import documents

from ..ansible_files import role_variables
from .rendering import Rendered

ROLE = Path(__file__).parents[3] / "roles/gateway"
VARS = role_variables(ROLE)


def woken(*apis: str) -> list[dict[str, list[str]]]:
    rules: list[dict[str, list[str]]] = Rendered("gateway", gateway_apis=[*apis])["__gateway_wake_rules"]
    return rules


def test_models_are_scaled_only_where_the_api_is_on() -> None:
    assert woken() == woken("krypton") == woken("llmkube") == []
    assert woken("krypton", "kubeai") == [
        {"apiGroups": ["kubeai.org"], "resources": ["models/scale"], "verbs": ["get", "update"]}
    ]
    written = [rule for rule in VARS["__gateway_cluster_rules"] if set(rule["verbs"]) - {"list", "watch"}]
    assert [rule["resources"] for rule in written] == [["events"]]


def test_the_secret_of_keys_is_read_by_its_name_and_neither_listed_nor_watched() -> None:
    assert VARS["__gateway_keys_rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["{{ __gateway_keys_secret }}"],
            "verbs": ["get"],
        }
    ]


def test_the_rules_reach_the_cluster() -> None:
    install = documents.read(ROLE / "tasks/main.yml")[-1]
    assert "__gateway_wake_rules" in install["vars"]["component_cluster_rules"]
    assert "__gateway_wake_rules" in install["vars"]["component_tenant_rules"]


def test_the_api_server_lets_the_gateway_wake_and_nothing_else() -> None:
    """That it refuses the rest is shown on a cluster, in tests/cluster/test_permissions.py."""
    objects = Rendered("gateway", gateway_namespace="models-system")["__gateway_policy_objects"]
    wakes, events = (one["spec"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy")
    account = "system:serviceaccount:models-system:slipway-gateway"
    for spec in (wakes, events):
        assert spec["matchConditions"][0]["expression"] == f'request.userInfo.username == "{account}"'
        assert spec["failurePolicy"] == "Fail"
    assert [spec["matchConstraints"]["resourceRules"][0]["resources"] for spec in (wakes, events)] == [
        ["*/scale"],
        ["events"],
    ]


def test_the_depot_writes_the_annotations_that_it_may() -> None:
    role = Rendered("depot")
    assert {*role["__depot_annotations"]} == {UPLOAD, UPLOADED, VANISHED}
    assert [rule["verbs"] for rule in role["__depot_tenant_rules"]] == [["patch"]]


@pytest.mark.parametrize("role", ["gateway", "controller"])
@pytest.mark.parametrize(("chosen", "rights"), [("", []), ("slipway=yes", [["list", "watch"]])])
def test_namespaces_are_read_only_where_they_are_chosen_by_their_labels(
    role: str, chosen: str, rights: list[list[str]]
) -> None:
    names = role_variables(ROLE.parent / role)
    text = names[f"__{role}_namespaces_rules"].removeprefix("{{").removesuffix("}}")
    values = {
        f"{role}_routed_namespaces": chosen,
        f"__{role}_reading_namespaces": names[f"__{role}_reading_namespaces"],
    }
    rules = NativeEnvironment().compile_expression(text)(**values)
    assert [rule["verbs"] for rule in rules] == rights
    assert all(rule["resources"] == ["namespaces"] for rule in rules)
    tasks = documents.read(ROLE.parent / role / "tasks/main.yml")
    variables = (task.get("vars", {}) for task in tasks)
    [given] = [one["component_cluster_rules"] for one in variables if "component_cluster_rules" in one]
    assert f"__{role}_namespaces_rules" in given + str(names.get(f"__{role}_cluster_rules", ""))


def page(*apis: str, ui: bool = True) -> Rendered:
    return Rendered("gateway", gateway_apis=[*apis], gateway_ui=ui)


def test_for_the_page_models_are_listed_and_nothing_else_is_done_to_them() -> None:
    rules = page("kubeai", "llmkube")["__gateway_ui_rules"]
    assert [(*rule["apiGroups"], *rule["resources"]) for rule in rules] == [
        ("kubeai.org", "models"),
        ("inference.llmkube.dev", "models"),
        ("inference.llmkube.dev", "inferenceservices"),
    ]
    assert {(*rule["verbs"],) for rule in rules} == {("list", "watch")}
    install = documents.read(ROLE / "tasks/main.yml")[-1]
    assert "__gateway_ui_rules" in install["vars"]["component_cluster_rules"]


def test_without_the_page_no_models_are_listed() -> None:
    assert page("kubeai", "llmkube", "ome", ui=False)["__gateway_ui_rules"] == []
    assert page("kubeai", ui=False)["__gateway_settings"]["uiKinds"] == []


def test_the_gateway_reads_the_settings_of_the_page() -> None:
    settings = page("kubeai")["__gateway_settings"]
    read = msgspec.convert({"ui": settings["ui"], "uiKinds": settings["uiKinds"]}, Settings)
    assert (read.ui, [kind.plural for kind in read.ui_kinds]) == (True, ["models"])
