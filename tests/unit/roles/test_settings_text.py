"""The settings in ConfigMaps are plain YAML that a person can read."""

from __future__ import annotations

import yaml
from ansible.template import trust_as_template

from .rendering import ROLES, Rendered


def test_settings_that_are_equal_are_written_out_without_anchors() -> None:
    apis = "{{ dict(['krypton', 'kubeai'] | product([{}])) }}"
    component = Rendered(
        "component",
        role_path=str(ROLES / "component"),
        component_name="slipway-controller",
        component_namespace="system",
        component_settings={"apis": trust_as_template(apis), "logLevel": "INFO"},
    )
    [config] = [
        one for one in yaml.safe_load_all(component.text("component.yml.j2")) if one and one["kind"] == "ConfigMap"
    ]
    text = config["data"]["controller.yaml"]
    assert yaml.safe_load(text) == {"apis": {"krypton": {}, "kubeai": {}}, "logLevel": "INFO"}
    assert "&" not in text
    assert "*" not in text
