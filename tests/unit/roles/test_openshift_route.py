"""When the playbooks publish the gateway by a Route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment

from tests import documents

ROOT = Path(__file__).parents[3]
KEYS = {"gateway_api_keys": {"alice": "sk-1"}, "gateway_api_keys_secret": ""}
SECRET = {"gateway_api_keys": {}, "gateway_api_keys_secret": "keys"}
OPEN = {"gateway_api_keys": {}, "gateway_api_keys_secret": ""}


def condition(playbook: str) -> str:
    plays = documents.read(ROOT / f"playbooks/{playbook}.yml")
    tasks = [task for play in plays for task in play.get("tasks", [])]
    role = "slipway.inference.openshift_route"
    actions = ("ansible.builtin.import_role", "ansible.builtin.include_role")
    (task,) = [task for task in tasks if any(task.get(action, {}).get("name") == role for action in actions)]
    when: str = task["when"]
    return when


def published(**variables: Any) -> bool:
    """What playbooks/shared/parts.yml says, which the playbooks ask."""
    environment = NativeEnvironment()
    environment.filters["bool"] = lambda value: value in (True, "true")
    parts = documents.read(ROOT / "playbooks/shared/parts.yml")
    has_route: bool = environment.from_string(parts["slipway_has_openshift_route"]).render(**variables)
    return has_route


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({**OPEN}, False),
        ({**KEYS}, False),
        ({"preflight_openshift": False, **KEYS}, False),
        # Every client of the router would reach it.
        ({"preflight_openshift": True, **OPEN}, False),
        ({"preflight_openshift": True, **KEYS}, True),
        ({"preflight_openshift": True, **SECRET}, True),
        ({"preflight_openshift": True, "slipway_openshift_route": "true", **OPEN}, True),
        ({"preflight_openshift": True, "slipway_openshift_route": False, **KEYS}, False),
    ],
)
def test_on_openshift_a_gateway_that_asks_for_keys_is_published(variables: dict[str, Any], expected: bool) -> None:
    assert published(**variables) is expected


def test_the_playbooks_ask_for_it() -> None:
    assert condition("upgrade") == condition("site") == "slipway_has_openshift_route | bool"
