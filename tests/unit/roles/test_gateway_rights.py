"""The gateway may do what it does, and no more."""

from __future__ import annotations

from pathlib import Path

import yaml

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
