"""The gateway may do what it does, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from slipway.apis import APIS

ROLE = Path(__file__).parents[3] / "roles/gateway"
VARS = yaml.safe_load((ROLE / "vars/main.yml").read_text())


def test_each_api_says_what_is_woken() -> None:
    assert set(VARS["__gateway_scaled"]) == {api.name for api in APIS}


def test_models_are_scaled_only_where_the_api_is_on() -> None:
    assert VARS["__gateway_scaled"]["krypton"] == []
    assert VARS["__gateway_scaled"]["kubeai"] == [
        {"apiGroups": ["kubeai.org"], "resources": ["models/scale"], "verbs": ["get", "update"]}
    ]
    written = [rule for rule in VARS["__gateway_cluster_rules"] if set(rule["verbs"]) - {"list", "watch"}]
    assert [rule["resources"] for rule in written] == [["events"]]


def test_the_rules_reach_the_cluster() -> None:
    install = yaml.safe_load((ROLE / "tasks/main.yml").read_text())[-1]
    assert "__gateway_wake_rules" in install["vars"]["component_cluster_rules"]


@pytest.mark.parametrize("role", ["gateway", "controller"])
@pytest.mark.parametrize(("chosen", "rights"), [("", []), ("slipway=yes", [["list", "watch"]])])
def test_namespaces_are_read_only_where_they_are_chosen_by_their_labels(
    role: str, chosen: str, rights: list[list[str]]
) -> None:
    names = yaml.safe_load((ROLE.parent / role / "vars/main.yml").read_text())
    text = names[f"__{role}_namespaces_rules"].removeprefix("{{").removesuffix("}}")
    values = {
        f"{role}_routed_namespaces": chosen,
        f"__{role}_reading_namespaces": names[f"__{role}_reading_namespaces"],
    }
    rules = NativeEnvironment().compile_expression(text)(**values)
    assert [rule["verbs"] for rule in rules] == rights
    assert all(rule["resources"] == ["namespaces"] for rule in rules)
    install = yaml.safe_load((ROLE.parent / role / "tasks/main.yml").read_text())[-1]
    given = install["vars"]["component_cluster_rules"]
    assert f"__{role}_namespaces_rules" in given + str(names.get(f"__{role}_cluster_rules", ""))
